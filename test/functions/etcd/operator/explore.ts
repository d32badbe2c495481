import { EtcdRestore, type RestoreObject } from '#functions/etcd/restore'
import { Crash, type Point } from './stored.ts'
import { EtcdWorld, type Spec, type Subject } from './world.ts'

/** Asks for other data. The snapshot is of this version, and verified for the EtcdCluster with this UID. */
export function verifiedRestore(etcdVersion = '3.6.0', clusterUID: string | null = 'u1'): RestoreObject {
  const s3 = { path: 'bucket/key', awsSecret: 'aws' }
  const verified = { path: 'bucket/key', size: 1, sha256: 'x', etcdRevision: 1, etcdVersion }
  const restore = EtcdRestore.of({
    metadata: { name: 'ex', namespace: 'default', uid: 'r1' },
    spec: { etcdCluster: { name: 'ex' }, backupStorageType: 'S3', s3 },
    status: { succeeded: false, verified, ...(clusterUID !== null && { clusterUID }) },
  })
  return EtcdRestore.parse(restore)
}

/** A change from outside, and what it is called. */
export type Change = readonly [what: string, change: (world: EtcdWorld) => void]

/** Something that goes wrong once, at the point where it is called. */
export interface Disturbance {
  what: string
  /** False: it makes no sense at this point. */
  strike: (world: EtcdWorld, point: Point) => boolean
}

const nth = (world: EtcdWorld, at: number): string | undefined => world.pods[at]?.metadata.name

const onPod = (what: string, at: number, harm: (world: EtcdWorld, name: string) => void): Disturbance => ({
  what: `${what} ${at}`,
  strike(world) {
    const name = nth(world, at)
    if (name === undefined) return false
    harm(world, name)
    return true
  },
})

export const crash: Disturbance = {
  what: 'crash',
  strike() {
    throw new Crash()
  },
}

export const staleRead: Disturbance = {
  what: 'a stale read',
  strike(world, { at }) {
    world.isStale = at === 'read'
    return at === 'read'
  },
}

export const lateEffect: Disturbance = {
  what: 'a late effect',
  strike(world, { at }) {
    world.effects.holdNext = at === 'effect'
    return at === 'effect'
  },
}

export const podGoes = (at: number) => onPod('the deletion of pod', at, (world, name) => world.killPod(name))
export const nodeGoes = (at: number) => onPod('a partition of pod', at, (world, name) => world.cutOff(name))
export const diskGoes = (at: number) => onPod('a lost disk of pod', at, (world, name) => world.loseDisk(name))
export const nodeBlinks = (at: number) =>
  onPod('a short partition of pod', at, (world, name) => {
    world.cutOff(name)
    world.later(20, () => world.reconnect(name))
  })

export const secretGoes = (name: string): Disturbance => ({
  what: `the deletion of Secret ${name}`,
  strike: ({ stored }) => stored.secrets.delete(name),
})
export const lateSecret: Disturbance = {
  what: 'a late change of a Secret',
  strike(world, point) {
    world.writes.holdNextSecret = point.at === 'write'
    return world.writes.holdNextSecret
  },
}
/** A kubelet may give a new pod what it knew before. */
export const staleMount: Disturbance = {
  what: 'a stale volume',
  strike({ trust }) {
    trust.isMountStale = true
    return true
  },
}

/** A silent member is replaced after five minutes, and then another one has to come. */
const PATIENCE_S = 1800
const CALM_S = 12
/** A timer that is so near is waited for, in seconds. */
const SOON_S = 400

/** Lets time pass until nothing changes any more. */
function settle(world: EtcdWorld): void {
  for (let calm = 0, seconds = 0; seconds < PATIENCE_S; seconds++) {
    // A long wait is not looked at in each of its seconds.
    const hasChanged = (calm < CALM_S || calm % CALM_S === 0) && runOf(world)
    calm = hasChanged ? 0 : calm + 1
    if (calm > CALM_S && !((isWaiting(world) || hasTimer(world)) && world.etcd.hasQuorum)) return
    world.pass()
    if (world.broken.length > 0) return
  }
}

const hasTimer = ({ timer, now }: EtcdWorld): boolean =>
  timer !== undefined && timer.getTime() - now.getTime() < SOON_S * 1000

const isWaiting = ({ stored }: EtcdWorld): boolean => stored.conditions['Progressing']?.status === 'True'

function runOf(world: EtcdWorld): boolean {
  try {
    return world.run()
  } catch (error) {
    if (error instanceof Crash) return true
    throw error
  }
}

export interface Scenario {
  spec: Spec
  changes?: readonly Change[]
  subject?: Subject
}

/** What is wrong in the end; undefined: nothing. */
export function faultOf(world: EtcdWorld): string | undefined {
  const [broken] = world.broken
  if (broken !== undefined) return broken
  const { etcd, stored } = world
  const { status: available, reason } = stored.conditions['Available'] ?? { status: '', reason: '' }
  if (!etcd.hasQuorum)
    return available === 'False' && /QuorumLost|Creating/.test(reason)
      ? undefined
      : `a lost quorum is not told: ${reason}`
  if (world.restore && stored.status['restoredFrom'] !== world.restore.metadata.uid) return 'the restore is not told'
  const phase = world.object.status.TLS?.phase ?? 'Stable'
  if (phase !== 'Stable') return `the change of the authority ends in phase ${phase}`
  const { size } = world.object.spec
  const names = etcd.voters.map(({ name }) => name).sort()
  const pods = world.lastingPods.map(({ metadata }) => metadata.name).sort()
  const spared = world.object.status.returned ?? []
  const claims = world.hasVolumes ? [...stored.claims.keys()].filter((one) => !spared.includes(one)).sort() : names
  const seen = JSON.stringify([names, pods, claims, stored.conditions['Progressing']])
  if (names.length !== size || etcd.members.length !== size) return `it ends with other members than wanted: ${seen}`
  if (String(names) !== String(pods) || String(names) !== String(claims)) return `it ends with other pods: ${seen}`
  if (!etcd.voters.every(etcd.isLive)) return `it ends with a member that does not live: ${seen}`
  return stored.conditions['Ready']?.status === 'True' ? undefined : `it is not ready in the end: ${seen}`
}

/** A disturbance made no sense at its point. */
class Missed extends Error {}

interface Way {
  world: EtcdWorld
  /** Points at which something could have happened. */
  points: number
}

/** One way through a scenario, with disturbances at the given points. */
export function play(
  { spec, changes = [], subject }: Scenario,
  strikes: ReadonlyMap<number, Disturbance> = new Map(),
  missed = () => {},
): Way {
  const world = new EtcdWorld(spec, subject)
  let points = 0
  world.happens = (point) => {
    const disturbance = strikes.get(points++)
    if (disturbance?.strike(world, point) === false) missed()
  }
  settle(world)
  for (const [, change] of changes) {
    if (world.broken.length > 0) break
    change(world)
    settle(world)
  }
  // Something may have happened in the last look.
  world.happens = () => {}
  settle(world)
  return { world, points }
}

/** One way with one disturbance. Undefined: it makes no sense at this point, and the way was not followed farther. */
function disturbed(scenario: Scenario, at: number, disturbance: Disturbance): EtcdWorld | undefined {
  const missed = () => {
    throw new Missed()
  }
  try {
    return play(scenario, new Map([[at, disturbance]]), missed).world
  } catch (error) {
    if (error instanceof Missed) return undefined
    throw error
  }
}

/**
 * The first way that ends wrongly, if each of the disturbances comes at each point in turn, or at every so many; and how many
 * ways there were.
 */
export function explore(
  scenario: Scenario,
  disturbances: readonly Disturbance[],
  every = 1,
): { ways: number; fault?: string } {
  const { points, world } = play(scenario)
  const calm = faultOf(world)
  if (calm !== undefined) return { ways: 1, fault: `undisturbed: ${calm}` }
  let ways = 1
  for (const [number, disturbance] of disturbances.entries())
    for (let point = number % every; point < points; point += every) {
      const world = disturbed(scenario, point, disturbance)
      if (world === undefined) continue
      ways++
      const fault = faultOf(world)
      if (fault !== undefined) return { ways, fault: `${disturbance.what} at point ${point}: ${fault}` }
    }
  return { ways }
}
