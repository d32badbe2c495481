import { PersistentVolumeClaim } from '#sdk'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import { peerUrlOf } from '../../../../functions/etcd/operator/names.ts'
import type { Answer, ListedMember, Seen } from '../../../../functions/etcd/operator/seen.ts'
import { type Disturbance, diskGoes, nodeGoes, podGoes, type Scenario } from './explore.ts'
import { comeBackApart, comeBackShortly, isAway, loses, recovers, restored, volumes } from './recovery.ts'
import type { Spec, Subject } from './world.ts'

type Given = Parameters<typeof decide>[0]

/** A guard of the decision, and what happens without it. */
export interface Mutation {
  guard: string
  /** The message of the broken law. */
  breaks: RegExp
  scenario: Scenario
  disturbances: Disturbance[]
}

/** The decision with a wrong input. */
const hearing = (change: (run: Given) => Given): Subject => ({ decide: (run) => decide(change(run)), isStrict: false })

const listing = (change: (members: ListedMember[]) => ListedMember[]): Subject =>
  seeing(({ list, ...seen }) => ({ ...seen, ...(list && { list: { ...list, members: change(list.members) } }) }))

const seeing = (change: (seen: Seen) => Seen): Subject =>
  hearing((run) => ({ ...run, external: change(structuredClone(run.external)) }))

const answering = (change: (answer: Answer, seen: Seen) => Answer): Subject =>
  seeing((seen) => ({
    ...seen,
    answers: Object.fromEntries(Object.entries(seen.answers).map(([name, one]) => [name, change(one, seen)])),
  }))

/** Everyone answers as the leader does. */
function allAnswer(seen: Seen): Seen {
  const leader = Object.values(seen.answers).find(({ id, leader }) => id === leader)
  if (leader === undefined) return seen
  const answers = (seen.list?.members ?? []).map(({ id, peerURL }) => [
    /\/\/([^.]+)/.exec(peerURL)?.[1],
    { ...leader, id },
  ])
  return { ...seen, answers: { ...Object.fromEntries(answers), ...seen.answers } }
}

const claimsIn = (run: Given): string[] => run.owned(PersistentVolumeClaim).map(({ metadata }) => metadata.name)
const resize = (from: number, to: number, subject: Subject, pod?: Spec['pod']): Scenario => ({
  spec: { size: from, ...(pod && { pod }) },
  changes: [[`size ${to}`, (world) => world.edit({ size: to })]],
  subject,
})

const statusing = (change: (run: Given) => Partial<Given['object']['status']>): Subject =>
  hearing((run) => ({ ...run, object: { ...run.object, status: { ...run.object.status, ...change(run) } } }))

const leaderIndex = ({ answers }: Seen): number => Math.max(...Object.values(answers).map(({ index }) => index))
const pods = [0, 1, 2]

export const mutations: Mutation[] = [
  {
    guard: 'a learner waits until it has caught up',
    breaks: /promote .*taken the quorum/,
    scenario: resize(
      1,
      2,
      answering((one, seen) => ({ ...one, appliedIndex: leaderIndex(seen) })),
    ),
    disturbances: [],
  },
  {
    guard: 'one learner at a time',
    breaks: /two learners/,
    scenario: resize(
      1,
      3,
      listing((members) => members.filter(({ isLearner }) => !isLearner)),
    ),
    disturbances: [],
  },
  {
    guard: 'nothing is deleted by a list that no quorum confirms',
    breaks: /without a quorum|of a member was deleted/,
    scenario: resize(
      3,
      4,
      seeing(({ list, ...seen }) => ({ ...seen, ...(list && { list: { ...list, isCurrent: true } }) })),
      volumes,
    ),
    disturbances: pods.map(nodeGoes),
  },
  {
    guard: 'a cluster that has answered is not formed again',
    breaks: /second cluster/,
    scenario: resize(
      1,
      3,
      hearing((run) => (run.external.list ? run : { ...run, object: { ...run.object, status: {} } })),
    ),
    disturbances: pods.map(podGoes),
  },
  {
    guard: 'the first member starts again as one that joins',
    breaks: /second cluster/,
    scenario: resize(
      1,
      1,
      hearing((run) => ({ ...run, object: { ...run.object, status: { ...run.object.status, phase: 'Running' } } })),
      volumes,
    ),
    disturbances: [diskGoes(0)],
  },
  {
    guard: 'only healthy members count when one is removed',
    breaks: /taken the quorum|leader was removed/,
    scenario: resize(3, 2, seeing(allAnswer)),
    disturbances: pods.map(nodeGoes),
  },
  {
    guard: 'the leader is not removed',
    breaks: /leader was removed/,
    scenario: resize(
      3,
      1,
      answering((one, { list }) => ({
        ...one,
        leader: list?.members.find(({ id, isLearner }) => !isLearner && id !== one.leader)?.id ?? one.leader,
      })),
    ),
    disturbances: [],
  },
  {
    guard: 'a name is not used twice',
    breaks: /used a second time/,
    scenario: resize(
      2,
      2,
      answering((one, seen) => ({ ...one, index: 7, appliedIndex: 7 - leaderIndex(seen) + one.appliedIndex })),
    ),
    disturbances: pods.map(podGoes),
  },
  {
    guard: 'a recovery is for the loss that it names',
    breaks: /nobody has asked for/,
    scenario: {
      spec: { size: 3, recovery: { quorumLostSince: '2020-01-01T00:00:00.000Z' } },
      changes: [loses(2)],
      subject: hearing((run) => {
        const { recovery, ...spec } = run.object.spec
        const { quorumLostSince } = run.object.status
        const asked = recovery && quorumLostSince !== undefined && { recovery: { ...recovery, quorumLostSince } }
        return { ...run, object: { ...run.object, spec: { ...spec, ...asked } } }
      }),
    },
    disturbances: [],
  },
  {
    guard: 'the members that are left stay until the new one answers',
    breaks: /was deleted without a quorum/,
    scenario: {
      spec: { size: 3 },
      changes: [loses(2), recovers],
      subject: statusing(({ object }) => (object.status.recovering ? { clusterID: undefined } : {})),
    },
    disturbances: [],
  },
  {
    guard: 'a cluster that has found its quorum again is not replaced',
    breaks: /that has a quorum was replaced/,
    scenario: {
      spec: { size: 3 },
      changes: [isAway(4)],
      subject: hearing((run) => unready({ ...run, external: withoutFormer(run) })),
    },
    disturbances: [],
  },
  {
    guard: 'a cluster whose members are Ready beyond a partition is not replaced',
    breaks: /that has a quorum was replaced/,
    scenario: {
      spec: { size: 3, pod: volumes },
      changes: [comeBackApart(4)],
      subject: hearing((run) => unready({ ...run, external: withoutFormer(run) })),
    },
    disturbances: [],
  },
  {
    guard: 'volumes of members that were Ready since the recovery was recorded stay',
    breaks: /was Ready since the recovery was recorded/,
    scenario: {
      spec: { size: 3, pod: volumes },
      changes: [comeBackShortly(4)],
      subject: statusing(() => ({ recoveringSince: undefined, returned: undefined })),
    },
    disturbances: [],
  },
  {
    guard: 'members of a cluster of before do not come back with their volumes',
    breaks: /of before got a pod/,
    scenario: {
      spec: { size: 3, pod: volumes },
      changes: [restored],
      subject: statusing((run) => ({ members: { ready: [], unready: claimsIn(run), learners: [] } })),
    },
    disturbances: [],
  },
  {
    guard: 'each member is Ready before the next one gets another version',
    breaks: /was changed while .* was not Ready/,
    scenario: {
      spec: { size: 3, version: '3.6.16' },
      changes: [['version 3.7.3', (world) => world.edit({ version: '3.7.3' })]],
      subject: hearing((run) => ({
        ...run,
        external: Object.values(run.external.answers).some(({ version }) => version === '3.7.3')
          ? answeringIn(run.external)
          : run.external,
        owned: ((kind: { kind: string }) =>
          run
            .owned(kind as never)
            .map((one: object) =>
              kind.kind === 'Pod' ? { ...one, status: { phase: 'Running', conditions: [READY] } } : one,
            )) as Given['owned'],
      })),
    },
    disturbances: [],
  },
]

/** While a cluster is recovered, only the new member is heard. */
function withoutFormer({ object, external }: Given): Seen {
  const isNew = ({ clusterID }: { clusterID: string }) => clusterID !== object.status.clusterID
  const answers = Object.entries(external.answers).filter(([, answer]) => isNew(answer))
  const [[name, answer] = []] = answers
  if (object.status.recovering === undefined || name === undefined || answer === undefined) return external
  const member = { id: answer.id, name, peerURL: peerUrlOf(object, name), isLearner: false }
  return {
    answers: { [name]: answer },
    list: { clusterID: answer.clusterID, isCurrent: true, members: [member] },
  }
}

/** No member of before is ready while a cluster is recovered. */
function unready(run: Given): Given {
  const owned = (kind: { kind: string }) =>
    run.owned(kind as never).map((one: object) => {
      const isHidden = kind.kind === 'Pod' && run.object.status.recovering !== undefined
      const status = { ...(one as { status?: object }).status, conditions: [] }
      return isHidden ? { ...one, status } : one
    })
  return { ...run, owned: owned as Given['owned'] }
}

const READY = { type: 'Ready', status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z' }

/** Once one member runs the new version, all seem to. */
const answeringIn = (seen: Seen): Seen => {
  const all = allAnswer(seen)
  return {
    ...all,
    answers: Object.fromEntries(Object.entries(all.answers).map(([k, v]) => [k, { ...v, version: '3.7.3' }])),
  }
}
