import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { Pod } from '#sdk'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import {
  crash,
  type Disturbance,
  diskGoes,
  explore,
  faultOf,
  lateEffect,
  nodeBlinks,
  nodeGoes,
  play,
  podGoes,
  type Scenario,
  staleRead,
} from './explore.ts'
import { loses, recoveries, recovers, volumes } from './recovery.ts'
import type { Spec } from './world.ts'

/** As in explore.test.ts. */
const SPARSE = Number(process.env['FAIRLEAD_EXPLORE'] ?? 120)
const SIZE = 5

type Given = Parameters<typeof decide>[0]
type Decision = ReturnType<typeof decide>

const conditionOf = ({ conditions = [] }: Decision, name: string) => conditions.find(({ type }) => type === name)
const podsIn = ({ apply = [] }: Decision) =>
  apply.filter(({ kind }) => kind === 'Pod').map(({ metadata }) => metadata.name)
const specOf = (pod: KubeObject | undefined) => Pod.parse(pod!).spec!
/** Returns the input of a decision after the loss of `count` members. */
const lost = (size: number, count: number, pod?: Spec['pod']): Given =>
  play({ spec: { size, ...(pod && { pod }) }, changes: [loses(count)] }).world.given
const asking = (given: Given, quorumLostSince = given.object.status.quorumLostSince ?? ''): Given => ({
  ...given,
  object: {
    ...given.object,
    spec: { ...given.object.spec, recovery: { quorumLostSince, agentImage: 'fairlead:latest', timeoutInSecond: 3600 } },
  },
})
/** Returns the input with the status of an earlier decision. */
const after = (given: Given, { status }: Decision): Given => ({
  ...given,
  object: { ...given.object, status: { conditions: [], ...status } },
})

describe('a quorum that is lost', () => {
  it('is told with the member from which the cluster could go on, and with what that costs', () => {
    const given = lost(3, 2)
    const [[survivor, { revision }] = ['', { revision: 0 }]] = Object.entries(given.external.answers)
    const { message } = conditionOf(decide(given), 'Available') ?? {}
    expect(message).toContain(`go on from member ${survivor} without what it does not have`)
    expect(message).toContain(`after revision ${revision}`)
    expect(message).toContain(`spec.recovery.quorumLostSince to ${given.object.status.quorumLostSince}`)
  })

  it('is told to be waited for where members have volumes', () => {
    expect(conditionOf(decide(lost(3, 2, volumes)), 'Available')?.message).toContain(
      'to wait for their nodes is better',
    )
  })

  it('names no member where none answers', () => {
    const given = lost(3, 3)
    expect(conditionOf(decide(given), 'Available')?.message).toMatch(/Bring back the nodes .*, or restore a backup$/)
  })
})

describe('a recovery from a survivor', () => {
  const given = lost(3, 2)
  const [survivor = ''] = Object.keys(given.external.answers)

  it('is recorded first, then a new member reads the data of the survivor, which stays', () => {
    const begun = decide(asking(given))
    expect([podsIn(begun), begun.status]).toEqual([
      [survivor],
      expect.objectContaining({ recovering: given.object.status.quorumLostSince, incarnation: 1 }),
    ])
    const next = decide(after(asking(given), begun))
    const seed = next.apply?.find(({ kind, metadata }) => kind === 'Pod' && metadata.name !== survivor)
    expect(podsIn(next)).toEqual([survivor, seed?.metadata.name])
    expect(specOf(seed).initContainers?.at(-1)?.args).toEqual(
      expect.arrayContaining([
        'recover',
        expect.stringContaining(`http://${survivor}.ex.default.svc:2379`),
        '--token=u1-1',
      ]),
    )
    expect(conditionOf(next, 'Recovering')).toMatchObject({ status: 'True', reason: 'RecoveringFromSurvivor' })
    expect(conditionOf(next, 'Recovering')?.message).toContain('what only others have of later ones is lost')
  })

  it('lets the members of before go only after it has recorded that the new one answers', () => {
    const { world } = play({ spec: { size: 3 }, changes: [loses(2)] })
    recovers[1](world)
    while (world.stored.status['recovered'] === undefined) {
      expect(world.stored.pods.has(survivor)).toBe(true)
      world.run()
      world.pass()
    }
    expect(world.broken).toEqual([])
  })

  it('goes on from the member that has most, whatever term it has heard of; a learner does not count', () => {
    const [answer] = Object.values(given.external.answers)
    const of = (changes: object[]): Given => ({
      ...given,
      external: {
        ...given.external,
        answers: Object.fromEntries(changes.map((change, at) => [`m${at}`, { ...answer!, ...change }])),
      },
    })
    const chosen = (...changes: object[]) => conditionOf(decide(asking(of(changes))), 'Recovering')?.message
    expect(chosen({ term: 3, revision: 5 }, { term: 2, revision: 9 }, { term: 3, revision: 6 })).toContain('member m1')
    expect(chosen({ revision: 9, index: 20 }, { revision: 9, index: 21 })).toContain('member m1')
    expect(chosen({ revision: 9, isLearner: true }, { revision: 8 })).toContain('member m1')
  })

  it('makes the pod again when the member is gone that had most, and not once the data is there', () => {
    const wanted = asking(given)
    const next = decide(after(wanted, decide(wanted)))
    const seed = Pod.parse(next.apply!.find(({ kind, metadata }) => kind === 'Pod' && metadata.name !== survivor)!)
    const withSeed = (initContainerStatuses: object[], revision: number): Given => ({
      ...after(wanted, decide(wanted)),
      external: {
        ...given.external,
        answers: { [survivor]: { ...given.external.answers[survivor]!, revision } },
      },
      owned: ((kind: { kind: string }) => [
        ...given.owned(kind as never),
        ...(kind.kind === 'Pod' ? [{ ...seed, status: { initContainerStatuses } }] : []),
      ]) as Given['owned'],
    })
    const { revision } = given.external.answers[survivor]!
    const done = { name: 'restore', state: { terminated: { exitCode: 0 } } }
    const both = [survivor, seed.metadata.name]
    expect(podsIn(decide(withSeed([], revision)))).toEqual(expect.arrayContaining(both))
    expect(podsIn(decide(withSeed([], revision - 1)))).toEqual([survivor])
    expect(podsIn(decide(withSeed([done], revision - 1)))).toEqual(expect.arrayContaining(both))
  })

  it('mounts the certificate of a client where members want one', () => {
    const TLS = { static: { member: { serverSecret: 's' }, operatorSecret: 'o' } }
    const wanted = asking(given)
    const secure = {
      ...after(wanted, decide(wanted)),
      related: ((kind: { kind: string }) =>
        kind.kind === 'Secret'
          ? ['s', 'o'].map((name) => ({ metadata: { name }, data: SECRETS }))
          : []) as Given['related'],
    }
    const { apply = [] } = decide({ ...secure, object: { ...secure.object, spec: { ...secure.object.spec, TLS } } })
    const seed = apply.find(({ kind, metadata }) => kind === 'Pod' && metadata.name !== survivor)
    const { initContainers, volumes } = specOf(seed)
    expect(initContainers?.at(-1)?.args).toContain('--etcd-tls=/etc/fairlead/etcd-tls')
    expect(volumes).toContainEqual(
      expect.objectContaining({ name: 'etcd-tls', secret: expect.objectContaining({ secretName: 'o' }) }),
    )
  })

  it.each<[string, Given, string]>([
    ['a quorum is there', asking(play({ spec: { size: 3 } }).world.given, 'x'), 'none is lost: remove it'],
    ['it names another loss', asking(given, '2020-01-01T00:00:00.000Z'), 'set quorumLostSince to that'],
    ['no member answers', asking(lost(3, 3)), 'no member answers'],
    ['there was one member', asking(lost(1, 1, volumes)), 'the cluster has one member'],
  ])('is refused, with the reason, if %s', (_, asked, message) => {
    const decision = decide(asked)
    expect(decision.status?.recovering).toBeUndefined()
    expect(conditionOf(decision, 'Recovering')).toMatchObject({
      status: 'False',
      reason: 'RecoveryRefused',
      message: expect.stringContaining(message),
    })
  })

  /** With these members Ready, and so beyond a partition if they do not answer. */
  const ready = (given: Given, names: readonly string[], pods = podsIn(decide(given))): Given => ({
    ...given,
    owned: ((kind: { kind: string }) => [
      ...given
        .owned(kind as never)
        .filter((one: KubeObject) => kind.kind !== 'Pod' || !pods.includes(one.metadata.name)),
      ...(kind.kind === 'Pod'
        ? pods.map((name) => ({
            metadata: { name },
            status: { conditions: [{ type: 'Ready', status: names.includes(name) ? 'True' : 'False' }] },
          }))
        : []),
    ]) as Given['owned'],
  })

  it('is refused while a quorum of members is Ready that do not answer here, and begins when none is Ready', () => {
    const { unready = [] } = given.object.status.members ?? {}
    const wanted = asking(given)
    const decided = (names: readonly string[]) => decide(ready(wanted, names, unready))
    const two = decided(unready.slice(0, 2))
    expect([two.status?.recovering, conditionOf(two, 'Recovering')?.reason]).toEqual([undefined, 'RecoveryRefused'])
    expect(conditionOf(two, 'Recovering')?.message).toContain('are Ready, and so have a quorum')
    const one = decided(unready.slice(0, 1))
    expect([one.status?.recovering, conditionOf(one, 'Recovering')?.reason]).toEqual([undefined, 'WaitingForQuorum'])
    expect(conditionOf(one, 'Recovering')?.message).toContain('is not Ready any more')
    expect(decided([]).status?.recovering).toBe(given.object.status.quorumLostSince)
  })

  it('is not made for a later loss', () => {
    const { world } = play({ spec: { size: 3 }, changes: [loses(2), recovers, loses(2)] })
    expect([world.recovery.begun, world.broken]).toEqual([1, []])
    expect(world.stored.conditions['Recovering']?.reason).toBe('WaitingForQuorum')
    expect(world.stored.conditions['Available']?.reason).toBe('QuorumLost')
  })
})

const SECRETS = Object.fromEntries(
  ['server.crt', 'server.key', 'server-ca.crt', 'etcd-client.crt', 'etcd-client.key', 'etcd-client-ca.crt'].map(
    (key) => [key, Buffer.from(key).toString('base64')],
  ),
)

describe.each([
  ['without volumes', undefined],
  ['with volumes', volumes],
] as const)('an EtcdCluster %s whose quorum is lost', (_, pod) => {
  const everyPod = [podGoes, nodeGoes, nodeBlinks, ...(pod === undefined ? [] : [diskGoes])]
  const disturbances: Disturbance[] = [
    crash,
    staleRead,
    lateEffect,
    ...everyPod.flatMap((kind) => Array.from({ length: SIZE }, (_, at) => kind(at))),
  ]

  it.each(recoveries(pod).slice(0, 3))('%s: once, and as its spec says in the end', (_, scenario) => {
    const { world } = play(scenario)
    expect([faultOf(world), world.recovery.begun, world.etcd.voters.length]).toEqual([undefined, 1, scenario.spec.size])
    expect(world.stored.status).toMatchObject({ incarnation: 1, recovered: expect.any(String) })
    expect(world.run()).toBe(false)
  })

  it.each(recoveries(pod))('%s, whatever happens once at any point', (_, scenario: Scenario) => {
    const { ways, fault } = explore(scenario, disturbances, Math.max(1, SPARSE))
    expect(fault).toBeUndefined()
    expect(ways).toBeGreaterThan(2)
  })
})
