import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import type { KubeObject } from '#contracts'
import { EtcdCluster, etcd } from '#functions/etcd'
import { Pod } from '#sdk'
import { outcomeOf } from '#testing'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import { seedName } from '../../../../functions/etcd/operator/names.ts'
import type { PodObject } from '../../../../functions/etcd/operator/parts.ts'
import { imageIn, imageOf, podFor, withVersion } from '../../../../functions/etcd/operator/pod.ts'
import type { Answer } from '../../../../functions/etcd/operator/seen.ts'
import { type Change, faultOf, play, verifiedRestore } from './explore.ts'
import { restored, restoredLater } from './recovery.ts'
import { EtcdWorld, type Spec } from './world.ts'

type Given = Parameters<typeof decide>[0]
const MIB = 1024 * 1024

/** A cluster at rest. */
const rest = (spec: Spec): Given => play({ spec }).world.given
const answering = (given: Given, change: (answer: Answer, name: string) => Partial<Answer>): Given => {
  const answers = Object.entries(given.external.answers).map(([name, one]) => [name, { ...one, ...change(one, name) }])
  return { ...given, external: { ...given.external, answers: Object.fromEntries(answers) } }
}
const withSpec = (given: Given, spec: Partial<Given['object']['spec']>): Given => ({
  ...given,
  object: { ...given.object, spec: { ...given.object.spec, ...spec } },
})
const conditionOf = ({ conditions = [] }: ReturnType<typeof decide>, name: string) =>
  conditions.find(({ type }) => type === name)
const leads = ({ id, leader }: Answer): boolean => id === leader
const followers = (given: Given): string[] =>
  Object.entries(given.external.answers)
    .filter(([, answer]) => !leads(answer))
    .map(([name]) => name)
    .sort()
const leaderOf = (given: Given): string =>
  Object.entries(given.external.answers).find(([, answer]) => leads(answer))?.[0] ?? ''

describe('an EtcdCluster at rest', () => {
  const given = rest({ size: 3 })

  it('asks for nothing, and for no other look', () => {
    const { effect, requeueAfter, status } = decide(given)
    expect([effect, requeueAfter]).toEqual([undefined, undefined])
    expect(status).toMatchObject({ phase: 'Running', size: 3, leader: leaderOf(given), clusterID: expect.any(String) })
    expect(conditionOf(decide(given), 'Available')).toMatchObject({
      status: 'True',
      message: '3 of 3 members are healthy; 1 may fail',
    })
  })

  it('has a budget for disruptions of what a quorum can spare, and none where there is one member', () => {
    const budgets = (size: number) =>
      decide(rest({ size }))
        .apply?.filter(({ kind }) => kind === 'PodDisruptionBudget')
        .map(({ spec }) => spec)
    expect([1, 2, 3, 5].map(budgets)).toEqual([
      [],
      [expect.objectContaining({ minAvailable: 2 })],
      [expect.objectContaining({ minAvailable: 2 })],
      [expect.objectContaining({ minAvailable: 3 })],
    ])
  })

  it('says that an even number of members tolerates no more', () => {
    expect(conditionOf(decide(rest({ size: 4 })), 'Available')?.message).toContain('no more than 3 members would')
  })

  it('touches nothing while it is paused, and says so', () => {
    const { apply, effect, status } = decide(withSpec(given, { paused: true, size: 5 }))
    expect([apply, effect, status?.controlPaused]).toEqual([undefined, undefined, true])
  })
})

describe('what etcd refuses for now', () => {
  const given = withSpec(rest({ size: 3 }), { size: 5 })

  it('is not asked for again in the run, and is asked for soon after', () => {
    const { effect } = decide(given)
    expect(effect?.kind).toBe('addLearner')
    const error = 'etcdserver: unhealthy cluster'
    const decision = decide({ ...given, performed: { effect: { kind: 'addLearner' }, error } })
    expect([decision.effect, decision.requeueAfter]).toEqual([undefined, 1])
    expect(conditionOf(decision, 'Scaling')?.message).toContain(error)
  })
})

describe('the pod of a member', () => {
  const initContainersOf = (spec: object) => {
    const cluster = EtcdCluster.of({ metadata: { name: 'ex', namespace: 'default' }, spec: { size: 3, ...spec } })
    const birth = { name: 'ex-a', members: ['ex-a'], state: 'new', version: '3.7.3' } as const
    return podFor(EtcdCluster.parse(cluster), birth, 'policy').spec?.initContainers?.map(({ name }) => name)
  }

  it('waits for its name in the DNS where members have TLS between them, and nowhere else', () => {
    expect(initContainersOf({})).toBeUndefined()
    expect(initContainersOf({ TLS: { static: { member: { peerSecret: 'p' } } } })).toEqual(['check-dns'])
  })
})

describe('alarms', () => {
  const given = rest({ size: 3 })
  const [first] = followers(given)
  const alarmed = (alarm: 'NOSPACE' | 'CORRUPT', id: string, dbSize = 1, dbSizeInUse = 1) =>
    answering(given, () => ({ alarms: [{ id, alarm }], dbSize, dbSizeInUse, dbSizeQuota: 100 }))

  it('replace the member that etcd calls corrupt', () => {
    const { id } = given.external.answers[first!]!
    expect(decide(alarmed('CORRUPT', id)).effect).toMatchObject({ kind: 'remove', id })
  })

  it('are taken back when the corrupt member is gone', () => {
    expect(decide(alarmed('CORRUPT', '4711')).effect).toMatchObject({ kind: 'disarm', id: '4711', alarm: 'CORRUPT' })
  })

  it('stop everything where etcd cannot tell which member is corrupt', () => {
    const decision = decide(alarmed('CORRUPT', '0'))
    expect([decision.effect, conditionOf(decision, 'Degraded')?.reason]).toEqual([undefined, 'CorruptMember'])
  })

  it.each([
    ['compact a full database', 95, 95, { kind: 'compact' }],
    ['defragment a member whose file is mostly free', 95, 10, { kind: 'defragment', via: first }],
    ['are taken back when there is space', 50, 10, { kind: 'disarm', alarm: 'NOSPACE' }],
  ])('%s', (_, dbSize, inUse, effect) => {
    expect(decide(alarmed('NOSPACE', '1', dbSize, inUse)).effect).toMatchObject(effect)
  })

  it('say what may be done where compaction frees nothing', () => {
    const error = 'mvcc: required revision has been compacted'
    const full = alarmed('NOSPACE', '1', 95, 95)
    const decision = decide({ ...full, performed: { effect: { kind: 'compact' }, error } })
    expect(decision.effect).toBeUndefined()
    expect(conditionOf(decision, 'Degraded')?.message).toContain('raise ETCD_QUOTA_BACKEND_BYTES')
  })
})

describe('defragmentation', () => {
  const given = rest({ size: 3 })
  const fragmented = (names: string[]) =>
    answering(given, (_, name) => (names.includes(name) ? { dbSize: 400 * MIB, dbSizeInUse: 100 * MIB } : {}))

  it('is for followers first, and the leader leads no more before its turn', () => {
    const all = Object.keys(given.external.answers)
    expect(decide(fragmented(all)).effect).toEqual({ kind: 'defragment', via: followers(given)[0] })
    expect(decide(fragmented([leaderOf(given)])).effect).toMatchObject({ kind: 'moveLeader', via: leaderOf(given) })
  })

  it('waits for its window, also past midnight', () => {
    const at = (hour: number) => ({ ...fragmented(followers(given)), now: new Date(Date.UTC(2026, 0, 2, hour)) })
    const inWindow = (hour: number) =>
      decide(withSpec(at(hour), { defragmentation: { fromHour: 23, hours: 3 } })).effect !== undefined
    expect([22, 23, 0, 1, 2].map(inWindow)).toEqual([false, true, true, true, false])
  })

  it('waits until all members are healthy', () => {
    const [away = '', ...others] = followers(given)
    const { [away]: _, ...answers } = fragmented(others).external.answers
    expect(decide({ ...given, external: { ...given.external, answers } }).effect).toBeUndefined()
  })
})

describe('another version', () => {
  const given = rest({ size: 3, version: '3.6.16' })
  const reasonOf = (from: string, to: string) => {
    const object = { ...given.object, status: { ...given.object.status, currentVersion: from } }
    return conditionOf(decide(withSpec({ ...given, object }, { version: to })), 'Degraded')?.reason
  }

  it.each([
    ['3.6.16', '3.8.0'],
    ['3.6.10', '3.7.3'],
    ['3.5.31', '3.6.16'],
    ['3.6.16', '3.5.35'],
    ['3.7.3', '3.5.35'],
    ['3.6.16', '4.0.0'],
  ])('is refused on a way that etcd does not support: %s to %s', (from, to) => {
    expect(reasonOf(from, to)).toBe('VersionPathNotSupported')
  })

  it('is recorded before the first member has it', () => {
    const wanted = withSpec(given, { version: '3.7.3' })
    const { status, apply } = decide(wanted)
    const images = (decision: ReturnType<typeof decide>) =>
      decision.apply
        ?.filter(({ kind }) => kind === 'Pod')
        .map(({ spec }) => (spec as { containers: { image: string }[] }).containers[0]?.image.split(':v')[1])
        .sort()
    expect([status?.targetVersion, images({ apply })]).toEqual(['3.7.3', ['3.6.16', '3.6.16', '3.6.16']])
    const recorded = { ...wanted, object: { ...wanted.object, status: { ...wanted.object.status, ...status } } }
    expect(images(decide(recorded))).toEqual(['3.6.16', '3.6.16', '3.7.3'])
  })

  it('goes to the next member only when the pod of the one before is Ready with its new container', () => {
    const target = { ...given.object.status, targetVersion: '3.7.3' }
    const wanted = withSpec({ ...given, object: { ...given.object, status: target } }, { version: '3.7.3' })
    const podsIn = ({ apply = [] }: ReturnType<typeof decide>) => apply.filter(({ kind }) => kind === 'Pod')
    const pods = podsIn(decide(wanted)) as PodObject[]
    const newIn = (all: readonly KubeObject[]) => all.filter((one) => JSON.stringify(one).includes(':v3.7.3')).length
    const [first] = pods.filter((pod) => newIn([pod]) === 1)
    const answered = answering(wanted, (_, name) => (name === first?.metadata.name ? { version: '3.7.3' } : {}))
    /** The first pod has the new image, and this in its status. */
    const decided = (containerID: string, status: 'True' | 'False') =>
      newIn(
        podsIn(
          decide({
            ...answered,
            owned: ((kind: { kind: string }) =>
              kind.kind === 'Pod'
                ? pods.map((pod) => (pod === first ? withContainer(pod, containerID, status) : pod))
                : given.owned(kind as never)) as Given['owned'],
          }),
        ),
      )
    const former = first?.status?.containerStatuses?.[0]?.containerID ?? ''
    expect(former).not.toBe('')
    expect([decided(former, 'True'), decided('new', 'False'), decided('new', 'True')]).toEqual([1, 1, 2])
  })

  it('that is lower is prepared by etcd first, and called off when it is not wanted any more', () => {
    const seven = rest({ size: 3 })
    const lower = withSpec(seven, { version: '3.6.16' })
    expect(decide(lower).effect).toMatchObject({ kind: 'downgrade', action: 'enable', version: '3.6' })
    const prepared = answering(lower, () => ({ storageVersion: '3.6.0', downgradeTo: '3.6.0' }))
    expect([decide(prepared).effect, decide(prepared).status?.targetVersion]).toEqual([undefined, '3.6.16'])
    const again = answering(seven, () => ({ downgradeTo: '3.6.0' }))
    expect(decide(again).effect).toMatchObject({ kind: 'downgrade', action: 'cancel' })
  })
})

describe('a restore', () => {
  const seedOf = ({ apply = [] }: ReturnType<typeof decide>) =>
    apply
      .map((one) => one as PodObject)
      .find(({ spec }) => spec?.initContainers?.some(({ name }) => name === 'restore'))
  const toVersion = (version: string): Change => [version, (world) => world.edit({ version })]

  it('begins at spec.version, whatever the former members run', () => {
    const old: Spec = { size: 3, version: '3.5.32' }
    const { world } = play({ spec: old, changes: [toVersion('3.7.3'), restoredLater] })
    expect(faultOf(world)).toBeUndefined()
    expect(world.stored.status).toMatchObject({ currentVersion: '3.7.3', targetVersion: '', restoredFrom: 'r1' })
  })

  it('of a snapshot of a later minor version than spec.version changes nothing, until the version is set to it', () => {
    const { world } = play({ spec: { size: 3, version: '3.5.32' } })
    const before = world.pods.map(({ metadata }) => metadata.name)
    restoredLater[1](world)
    const refused = decide(world.given)
    const message =
      'bucket/key is of etcd 3.7.3, and spec.version of the EtcdCluster is 3.5.32: set that to 3.7.3 first'
    expect(refused.status).toMatchObject({ incarnation: 0, size: 3, currentVersion: '3.5.32' })
    expect(conditionOf(refused, 'Recovering')).toMatchObject({ status: 'False', reason: 'RestoreRefused', message })
    expect(conditionOf(refused, 'Ready')?.status).toBe('True')
    expect([world.run(), world.run()]).toEqual([false, false])
    expect(world.pods.map(({ metadata }) => metadata.name)).toEqual(before)
    expect(world.events.filter(({ reason }) => reason === 'RestoreRefused')).toHaveLength(1)
    world.edit({ version: '3.7.3' })
    expect(decide(world.given).status).toMatchObject({ restoring: 'r1', currentVersion: '3.7.3' })
  })

  it('does not begin at a version that is not supported', () => {
    const { world } = play({ spec: { size: 3 }, changes: [toVersion('3.5.11'), restored] })
    expect(world.stored.conditions['Recovering']?.reason).toBe('RestoreRefused')
    expect([world.etcd.voters.length, world.stored.status['restoring']]).toEqual([3, undefined])
  })

  it.each([
    ['verified for a former EtcdCluster of the name', verifiedRestore('3.7.3', 'u0')],
    ['verified without a record of the EtcdCluster', verifiedRestore('3.7.3', null)],
  ])('that was %s does not seed this one', (_, restore) => {
    const world = new EtcdWorld({ size: 3 })
    world.restore = restore
    world.run()
    expect([world.pods.length, world.pods[0]?.spec?.initContainers]).toEqual([1, undefined])
    expect(world.stored.status['restoring']).toBeUndefined()
    expect(world.stored.conditions['Recovering']?.reason).toBe('Idle')
  })

  it('that has begun waits with the reason if spec.version becomes too low before the first member exists', () => {
    const { world } = play({ spec: { size: 3, version: '3.7.3' } })
    restoredLater[1](world)
    const { status } = decide(world.given)
    const begun = { ...world.given.object, status: { ...status, conditions: [] } } as Given['object']
    const given = { ...world.given, object: begun, owned: (() => []) as Given['owned'], external: { answers: {} } }
    expect(seedOf(decide(given))?.spec?.containers[0]?.image).toMatch(/:v3\.7\.3$/)
    const low = decide(withSpec(given, { version: '3.6.16' }))
    expect([seedOf(low), conditionOf(low, 'Degraded')?.reason]).toEqual([undefined, 'SnapshotTooNew'])
  })
})

describe('the first member of a cluster that has not answered', () => {
  const world = new EtcdWorld({ size: 3, version: '3.7.9' })
  world.run()
  const [seed] = world.pods as [PodObject]
  const { name } = seed.metadata
  const waiting = { name: 'etcd', image: '', imageID: '', ready: false, restartCount: 0 }
  /** Its container has this status, and spec.version is set to that. */
  const seen = (version: string, container: object, ready = 'False'): Given => {
    const status = {
      phase: 'Running',
      conditions: [{ type: 'Ready', status: ready }],
      containerStatuses: [{ ...waiting, ...container }],
    }
    const owned = ({ kind }: { kind: string }) => (kind === 'Pod' ? [{ ...seed, status }] : [])
    return withSpec({ ...world.given, owned: owned as unknown as Given['owned'] }, { version })
  }
  const imageAfter = (given: Given) =>
    imageIn(decide(given).apply?.find((one) => one.metadata.name === name) as PodObject).split(':v')[1]
  const unpulled = { state: { waiting: { reason: 'ImagePullBackOff' } } }
  const running = { state: { running: {} } }
  const crashed = { state: { waiting: { reason: 'CrashLoopBackOff' } }, restartCount: 3 }

  it.each([
    ['was never pulled', '3.7.3', unpulled],
    ['was never pulled, also by one of an earlier minor version', '3.6.16', unpulled],
    ['refuses the data of a later version', '3.8.0', crashed],
    ['ends again and again, also by one of an earlier minor version', '3.6.16', crashed],
    ['runs and does not answer', '3.7.3', running],
  ])('gets the image of spec.version in place of one that %s', (_, version, container) => {
    const given = seen(version, container)
    expect(imageAfter(given)).toBe(version)
    const annotated = { ...given, owned: (() => decide(given).apply?.filter(isPod)) as unknown as Given['owned'] }
    expect(decide(annotated).status).toMatchObject({ currentVersion: version, targetVersion: '' })
  })

  it('keeps its image while it is ready, and while it answers', () => {
    expect(imageAfter(seen('3.7.3', {}, 'True'))).toBe('3.7.9')
    const answer = { ...Object.values(rest({ size: 1 }).external.answers)[0]!, id: '1', leader: '1' }
    const external = { answers: { [name]: answer } }
    expect(imageAfter({ ...seen('3.7.3', crashed), external })).toBe('3.7.9')
  })

  it('keeps an image that runs if that of spec.version is of an earlier minor version', () => {
    const given = seen('3.6.16', running)
    expect([imageAfter(given), decide(given).status]).toEqual([
      '3.7.9',
      expect.objectContaining({ currentVersion: '3.7.9', targetVersion: '' }),
    ])
  })
})
const isPod = ({ kind }: { kind: string }): boolean => kind === 'Pod'

it.each([1, 3])(
  'a member of %i gets the corrected version if the image of its upgrade cannot be pulled, and no other member does',
  (size) => {
    const given = rest({ size })
    const [silent] = [...followers(given), leaderOf(given)]
    const answers = Object.fromEntries(Object.entries(given.external.answers).filter(([name]) => name !== silent))
    const external = size === 1 ? { answers: {} } : { ...given.external, answers }
    const after = (reason: string, upgraded: string, version: string) => {
      const state = { waiting: { reason } }
      const conditions = [{ type: 'Ready', status: 'False', lastTransitionTime: given.now.toISOString() }]
      const status = { phase: 'Running', conditions, containerStatuses: [{ name: 'etcd', state }] }
      const podOf = (pod: PodObject) =>
        pod.metadata.name === silent ? { ...withVersion(given.object, pod, upgraded), status } : pod
      const owned = (kind: { kind: string }) =>
        kind.kind === 'Pod' ? given.owned(Pod).map(podOf) : given.owned(kind as never)
      const decision = decide(withSpec({ ...given, external, owned: owned as never }, { version }))
      const images = (decision.apply ?? []).filter(isPod).map((pod) => [pod.metadata.name, imageIn(pod as PodObject)])
      const { [silent ?? '']: image, ...others } = Object.fromEntries(images) as Record<string, string>
      expect(new Set(Object.values(others))).toEqual(new Set(size === 1 ? [] : [imageOf(given.object, '3.7.3')]))
      return image?.split(':v')[1]
    }
    expect(after('ImagePullBackOff', '3.7.99', '3.7.99')).toBe('3.7.99')
    expect(after('ImagePullBackOff', '3.7.99', '3.7.3')).toBe('3.7.3')
    expect(after('ImagePullBackOff', '3.8.99', '3.7.3')).toBe('3.7.3')
    expect(after('CrashLoopBackOff', '3.8.0', '3.7.3'), 'it may have written data of 3.8').toBe('3.8.0')
  },
)

describe('a lost quorum', () => {
  it('makes no member of a lower version for which etcd is not prepared', () => {
    const lower = withSpec(rest({ size: 3 }), { version: '3.6.16' })
    const { status } = decide({ ...lower, external: { answers: {} } })
    expect(status).toMatchObject({ currentVersion: '3.7.3', targetVersion: '' })
  })
})

const withContainer = (pod: PodObject, containerID: string, status: 'True' | 'False'): PodObject => ({
  ...pod,
  status: {
    ...pod.status,
    conditions: [{ type: 'Ready', status }],
    containerStatuses: pod.status?.containerStatuses?.map((one) => ({ ...one, containerID })) ?? [],
  },
})

describe('a pod that does not run', () => {
  const given = rest({ size: 3 })
  const [away = ''] = followers(given)
  const pull = { waiting: { reason: 'ImagePullBackOff', message: 'Back-off pulling image "no/etcd:v3.7.3"' } }
  const crash = { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 10s' } }
  const ended = { terminated: { exitCode: 2, reason: 'Error' } }
  /** The pod is in this state, and does not answer. */
  const progress = (name: string, container: object, status = given.object.status) => {
    const { [name]: _, ...answers } = given.external.answers
    const broken = { phase: 'Pending', conditions: [], containerStatuses: [{ name: 'etcd', ...container }] }
    const owned = (kind: { kind: string }) =>
      given
        .owned(kind as never)
        .map((one: KubeObject) => (one.metadata.name === name ? { ...one, status: broken } : one))
    const isNew = status.clusterID === undefined
    const decision = decide({
      ...given,
      object: { ...given.object, status },
      external: isNew ? { answers: {} } : { ...given.external, answers },
      owned: ((kind: { kind: string }) =>
        owned(kind).filter(({ metadata }) => !isNew || metadata.name === name)) as Given['owned'],
    })
    return ['Progressing', 'Ready'].map((type) => conditionOf(decision, type)?.message)
  }
  const text = (name: string, why: string) => expect.stringContaining(`pod ${name}: container etcd: ${why}`)

  it('is named in the conditions, with what Kubernetes says: an image that cannot be pulled, a process that ends', () => {
    const pulled = text(away, 'ImagePullBackOff: Back-off pulling image "no/etcd:v3.7.3"')
    expect(progress(away, { state: pull })).toEqual([pulled, pulled])
    const crashed = text(away, 'CrashLoopBackOff: back-off 10s; it ended with exit code 2: Error')
    expect(progress(away, { state: crash, lastState: ended })).toEqual([crashed, crashed])
  })

  it('is named when it is the first member of a new cluster', () => {
    const seed = seedName(given.object)
    const seeding = expect.stringContaining(
      `member ${seed} forms the cluster; pod ${seed}: container etcd: ImagePullBackOff`,
    )
    expect(progress(seed, { state: pull }, { conditions: [] })).toEqual([seeding, seeding])
  })

  it('is not named while it starts as usual', () => {
    const state = { waiting: { reason: 'ContainerCreating' } }
    expect(progress(away, { state })[0]).not.toContain('container etcd')
    expect(progress(away, { state: { running: {} }, lastState: ended })[0]).not.toContain('container etcd')
  })
})

describe('what cannot be done', () => {
  const cluster = (spec: object) =>
    EtcdCluster.of({ metadata: { name: 'ex', namespace: 'default' }, spec: { size: 3, ...spec } })
  const outcome = (spec: object) => outcomeOf(etcd, { object: cluster(spec), external: { answers: {} } })

  it.each([
    ['an etcd without learners', { version: '3.2.13' }, 'VersionNotSupported', 'set spec.version to 3.7.3'],
    [
      'TLS with a Secret that is not there',
      { TLS: { static: { member: { peerSecret: 'p' } } } },
      'SecretMissing',
      'Secret p is missing',
    ],
  ])('is told, and nothing is made: %s', async (_, spec, reason, message) => {
    const { apply, conditions } = await outcome(spec)
    expect(apply).toBeUndefined()
    expect(conditions).toContainEqual(
      expect.objectContaining({ type: 'Degraded', status: 'True', reason, message: expect.stringContaining(message) }),
    )
  })

  it('is not what the example asks for', async () => {
    const url = new URL('../../../../functions/etcd/example.yaml', import.meta.url)
    const object = parse(readFileSync(url, 'utf8')) as ReturnType<typeof cluster>
    const { apply = [] } = await outcomeOf(etcd, {
      object: { ...object, metadata: { ...object.metadata, namespace: 'default' } },
      external: { answers: {} },
    })
    expect(apply.map(({ kind }) => kind).sort()).toEqual(['Pod', 'PodDisruptionBudget', 'Service', 'Service'])
  })
})
