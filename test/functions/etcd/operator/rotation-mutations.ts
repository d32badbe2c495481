import { clusterOf } from '../../../../functions/etcd/operator/cluster.ts'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import type { PodObject } from '../../../../functions/etcd/operator/parts.ts'
import type { Answer } from '../../../../functions/etcd/operator/seen.ts'
import { type Change, type Disturbance, type Scenario, secretGoes, staleMount } from './explore.ts'
import type { Mutation } from './mutations.ts'
import type { Subject } from './world.ts'

type Given = Parameters<typeof decide>[0]
type State = NonNullable<Given['object']['status']['TLS']>

const hearing = (change: (run: Given, state: State) => Given): Subject => ({
  decide: (run) => decide(run.object.status.TLS ? change(run, run.object.status.TLS) : run),
})
const recording =
  (change: (state: State, run: Given) => Partial<State>) =>
  (run: Given, state: State): Given => ({
    ...run,
    object: { ...run.object, status: { ...run.object.status, TLS: { ...state, ...change(state, run) } } },
  })
const answering = (run: Given, change: (answer: Answer) => Partial<Answer>): Given => {
  const answers = Object.entries(run.external.answers).map(([name, one]) => [name, { ...one, ...change(one) }])
  return { ...run, external: { ...run.external, answers: Object.fromEntries(answers) } }
}
/** Pods that have been made by the policy of now. */
const allOfPolicy = (run: Given): Given => {
  const { policy } = clusterOf(run)
  const owned = ((kind: { kind: string }) =>
    run.owned(kind as never).map((one: PodObject) => {
      if (kind.kind !== 'Pod') return one
      const annotations = { ...one.metadata.annotations, 'etcd.database.coreos.com/policy': policy }
      return { ...one, metadata: { ...one.metadata, annotations } }
    })) as Given['owned']
  return { ...run, owned }
}
const withoutSecrets = (run: Given): Given => ({
  ...run,
  owned: (kind: { kind: string }) => (kind.kind === 'Secret' ? [] : run.owned(kind as never)),
})
const admitting = (run: Given, { trusted }: State) => answering(run, () => ({ admits: Math.max(...trusted) }))

const rotated = (subject: Subject, overlapMinutes = 1): Scenario => ({
  spec: { size: 3, TLS: { auto: { overlapMinutes } } },
  changes: [['another authority', (world) => world.edit({ TLS: { auto: { overlapMinutes, rotation: 1 } } })]],
  subject,
})

/** Long enough for a kubelet to bring the files that are there now. */
export const daysPass = (days: number): Change => [
  `${days} days pass`,
  (world) => {
    for (let seconds = 0; seconds < 100; seconds++) world.pass()
    world.etcds.skip(days * 86_400)
  },
]

interface RotationMutation extends Mutation {
  every?: number
  disturbances: Disturbance[]
}

export const rotationMutations: RotationMutation[] = [
  {
    guard: 'members are replaced before the new authority issues certificates',
    breaks: /distrust|cut off/,
    scenario: rotated(
      hearing((run, state) => (state.phase.startsWith('Trust') ? allOfPolicy(admitting(run, state)) : run)),
    ),
    disturbances: [],
  },
  {
    guard: 'each member has shown that it trusts the new authority before that issues certificates',
    breaks: /distrust|cut off/,
    scenario: rotated(hearing((run, state) => (state.phase.startsWith('Trust') ? admitting(run, state) : run))),
    disturbances: [staleMount],
    every: 20,
  },
  {
    guard: 'each member has shown a certificate of the new authority before the former one goes',
    breaks: /distrust|cut off/,
    scenario: rotated(hearing((run, { authority }) => answering(run, () => ({ issuer: authority })))),
    disturbances: [],
  },
  {
    guard: 'clients have time to read their Secret',
    breaks: /a client is cut off/,
    scenario: rotated(hearing(recording(() => ({ since: '2020-01-01T00:00:00Z' }))), 5),
    disturbances: [],
  },
  {
    guard: 'an authority that is trusted is not drawn again',
    breaks: /distrust|cut off/,
    scenario: rotated(
      hearing((run, state) => {
        const names = run.owned({ kind: 'Secret' } as never).map(({ metadata }: PodObject) => metadata.name)
        const isGone = state.phase === 'Stable' && !names.includes(`ex-ca-${state.authority}`)
        return isGone ? withoutSecrets(recording(() => ({ phase: 'Preparing' }))(run, state)) : run
      }),
    ),
    disturbances: [secretGoes('ex-ca-1')],
    every: 10,
  },
  {
    guard: 'certificates are issued again before they end',
    breaks: /distrust|cut off/,
    scenario: {
      spec: { size: 3, TLS: { auto: {} } },
      changes: [60, 29, 2].map(daysPass),
      subject: hearing((run, { issuedAt }) => ({ ...run, now: new Date(Date.parse(issuedAt)) })),
    },
    disturbances: [],
  },
]
