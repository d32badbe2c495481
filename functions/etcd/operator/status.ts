import type { ConditionUpdate } from 'fairlead'
import { type Cluster, isReady, type Member } from './cluster.ts'
import { CLIENT_PORT, clientServiceOf, seedName, selectorOf } from './names.ts'
import { named, quorumOf } from './parts.ts'
import { versionIn, versionOf } from './pod.ts'
import { refusedRecovery, returnedOf, survivorsOf } from './recovery.ts'
import { refusedRestore } from './restoration.ts'
import { tlsStatus } from './rotation.ts'
import { type Step, said } from './step.ts'
import { isUnprepared, isUpgraded } from './upgrade.ts'
import { refusedPath, supportedFrom } from './version.ts'

type Phase = NonNullable<Cluster['object']['status']['phase']>
type Availability = Pick<ConditionUpdate, 'status' | 'reason'> & { message: string }

export function statusOf(cluster: Cluster, step: Step | undefined) {
  const { object, pods, members, names, leader, lastSize, now } = cluster
  const { spec, status: before } = object
  const ready = names.filter((name) => isReady(named(pods, name)))
  const clusterID = clusterIdAfter(cluster, step)
  const isReplaced = clusterID !== before.clusterID && before.clusterID !== undefined
  const lastLoss = before.quorumLostSince ?? now.toISOString()
  const available = availability(cluster, ready, step, lastLoss)
  const isFailed = step?.isStuck === true && before.clusterID === undefined
  const learners = (members ?? []).filter(({ isLearner }) => isLearner).map(({ name }) => name)
  const versionOf = ({ name, answer }: Member) => answer?.version ?? before.versions?.[name]
  const told = (members ?? []).map((one) => [one.name, versionOf(one)] as const)
  const lostSince = available.reason === 'QuorumLost' ? lastLoss : undefined
  return {
    status: {
      phase: isReplaced ? ('Creating' as const) : phaseOf(before.phase, available, isFailed),
      reason: isFailed ? step.message : '',
      controlPaused: spec.paused,
      size: clusterID === undefined ? 0 : lastSize,
      selector: selectorOf(object),
      serviceName: clientServiceOf(object),
      clientPort: CLIENT_PORT,
      members: { ready, unready: names.filter((name) => !ready.includes(name)), learners },
      ...(leader && { leader: leader.name }),
      versions: members === undefined ? (before.versions ?? {}) : Object.fromEntries(told.filter(isKnown)),
      ...versions(cluster, step),
      ...(clusterID !== undefined && { clusterID }),
      ...incarnationOf(cluster, step, clusterID),
      ...tlsStatus(cluster, step),
      ...(cluster.isAuthEnabled !== undefined && { authEnabled: cluster.isAuthEnabled }),
      ...(lostSince !== undefined && { quorumLostSince: lostSince }),
    },
    conditions: conditionsOf(cluster, available, step, refusalOf(cluster, lostSince)),
  }
}

const beginsRestore = (step: Step | undefined): boolean => step?.begins !== undefined && 'restoring' in step.begins

/** Returns the ID of the cluster. It is known from the confirmation by a quorum until a restore begins. */
function clusterIdAfter({ object, members, clusterID }: Cluster, step: Step | undefined): string | undefined {
  if (beginsRestore(step)) return undefined
  return members === undefined ? object.status.clusterID : clusterID
}

const isKnown = (one: readonly [string, string | undefined]): one is readonly [string, string] => one[1] !== undefined

/** Returns the phase. A cluster that has been available once stays Running, unless it has failed. */
function phaseOf(before: Phase | undefined, available: Availability, isFailed: boolean): Phase {
  if (isFailed) return 'Failed'
  return before === 'Running' || available.status === 'True' ? 'Running' : 'Creating'
}

/**
 * Returns the versions. The current version is the last one that all members have run. A cluster that is not formed yet
 * has that of its first member.
 */
function versions(cluster: Cluster, step: Step | undefined): { currentVersion: string; targetVersion: string } {
  const { object, pods } = cluster
  const version = versionIn(object)
  if (beginsRestore(step)) return { currentVersion: version, targetVersion: '' }
  const seed = object.status.clusterID === undefined ? named(pods, seedName(object)) : undefined
  const before = object.status.clusterID === undefined ? seed && versionOf(seed) : object.status.currentVersion
  const currentVersion = isUpgraded(cluster, version) ? version : (before ?? version)
  // Without a quorum it is not known whether etcd is prepared for a lower version.
  const isAble = cluster.members === undefined ? object.status.targetVersion === version : !isUnprepared(cluster)
  const isTarget = currentVersion !== version && refusedPath(object) === undefined && isAble
  return { currentVersion, targetVersion: isTarget ? version : '' }
}

function availability(
  cluster: Cluster,
  ready: readonly string[],
  step: Step | undefined,
  lostSince: string,
): Availability {
  const { object, members, voters, clusterID, lastSize } = cluster
  const isForming = members === undefined || step?.put !== undefined || step?.drop !== undefined
  const isReplaced = members !== undefined && clusterID !== object.status.clusterID
  if (isReplaced || (object.status.phase !== 'Running' && isForming))
    return { status: 'False', reason: 'Creating', message: 'the first member has not formed the cluster yet' }
  if (members !== undefined) {
    const healthy = voters.filter(({ isHealthy }) => isHealthy)
    const spare = voters.length - quorumOf(voters.length)
    const even = voters.length % 2 === 0 ? `, no more than ${voters.length - 1} members would` : ''
    const message = `${healthy.length} of ${voters.length} members are healthy; ${spare} may fail${even}`
    return { status: 'True', reason: 'QuorumPresent', message }
  }
  const isThere = ready.length >= quorumOf(lastSize)
  if (isThere && step?.isStuck) return { status: 'Unknown', reason: step.reason, message: step.message }
  if (isThere)
    return {
      status: 'Unknown',
      reason: 'Unreachable',
      message: `${ready.join(', ')} are ready, and do not answer here: see that TCP ${CLIENT_PORT} of the pods is reachable`,
    }
  return { status: 'False', reason: 'QuorumLost', message: loss(cluster, ready, lostSince) }
}

/** Describes the missing members, and the ways to recover. */
function loss(cluster: Cluster, ready: readonly string[], lostSince: string): string {
  const { pods, claims, names, lastSize, answers } = cluster
  const there = pods.map(({ metadata }) => metadata.name)
  const disks = claims.map(({ metadata }) => metadata.name)
  const list = (names: readonly string[]) => names.join(', ') || 'none'
  const missing = quorumOf(lastSize) - ready.length
  return (
    `${missing} more of ${lastSize} members have to be ready; pods: ${list(there)}; ready: ${list(ready)}; ` +
    `answering: ${answers.length}; volumes: ${list(disks)}. Nothing is deleted. ` +
    waysOut(
      cluster,
      names.filter((name) => disks.includes(name) && !ready.includes(name)),
      lostSince,
    )
  )
}

function waysOut(cluster: Cluster, returning: readonly string[], lostSince: string): string {
  const wait =
    returning.length > 0
      ? `Members ${returning.join(', ')} have volumes and come back with them: to wait for their nodes is better`
      : 'Bring back the nodes of the missing members'
  const [survivor] = survivorsOf(cluster)
  if (survivor === undefined || cluster.lastSize === 1) return `${wait}, or restore a backup`
  return (
    `${wait}. Or restore a backup, or go on from member ${survivor.name} without what it does not have, all that comes ` +
    `after revision ${survivor.revision}: set spec.recovery.quorumLostSince to ${lostSince}`
  )
}

type Refusal = { reason: 'RestoreRefused' | 'RecoveryRefused'; message: string }

/** Returns the reason why a requested restore or recovery does not begin. */
function refusalOf(cluster: Cluster, lostSince: string | undefined): Refusal | undefined {
  const restore = refusedRestore(cluster)
  if (restore !== undefined) return { reason: 'RestoreRefused', message: restore }
  const recovery = refusedRecovery(cluster, lostSince)
  return recovery === undefined ? undefined : { reason: 'RecoveryRefused', message: recovery }
}

function conditionsOf(
  cluster: Cluster,
  available: Availability,
  step: Step | undefined,
  refusal: Refusal | undefined,
): ConditionUpdate[] {
  const { object, voters } = cluster
  const unhealthy = voters.filter(({ isHealthy }) => !isHealthy)
  const isStuck = step?.isStuck === true
  const during = (type: NonNullable<Step['condition']>): ConditionUpdate =>
    step?.condition === type
      ? { type, status: 'True', reason: step.reason, message: step.message }
      : { type, status: 'False', reason: 'Idle' }
  const progress: Omit<ConditionUpdate, 'type' | 'status'> = step
    ? { reason: step.reason, message: step.message }
    : { reason: 'AsSpecified', message: supportedFrom(object) ?? available.message }
  return [
    { type: 'Available', ...available },
    { type: 'Progressing', status: step && !isStuck ? 'True' : 'False', ...progress },
    degradation(available, unhealthy.length > 0 ? said(unhealthy) : undefined, isStuck ? step : undefined),
    refusal === undefined ? during('Recovering') : { type: 'Recovering', status: 'False', ...refusal },
    during('Scaling'),
    during('Upgrading'),
    during('Maintaining'),
    { type: 'Ready', status: available.status === 'True' && step === undefined ? 'True' : 'False', ...progress },
  ]
}

function degradation(available: Availability, unhealthy: string | undefined, stuck: Step | undefined): ConditionUpdate {
  const type = 'Degraded'
  if (available.status !== 'True' && available.reason !== 'Creating') return { type, ...available, status: 'True' }
  if (stuck !== undefined) return { type, status: 'True', reason: stuck.reason, message: stuck.message }
  if (unhealthy === undefined) return { type, status: 'False', reason: 'AsExpected', message: '' }
  return { type, status: 'True', reason: 'MembersUnhealthy', message: `${unhealthy} do not answer as members should` }
}

/**
 * Returns the origin of the cluster's data. It is recorded before the data change, so that each change happens once,
 * and before anything is deleted for it.
 */
function incarnationOf(cluster: Cluster, step: Step | undefined, clusterID: string | undefined) {
  const { object, members, pods, now } = cluster
  const { incarnation = 0, restoring, restoredFrom, recovering, recovered, recoveringSince } = object.status
  const returned = returnedOf(cluster)
  const before = { restoredFrom, recovered, ...(returned.length > 0 && { returned }) }
  if (step?.begins !== undefined) {
    const begun: { restoring?: string; recovering?: string } = step.begins
    const since = begun.recovering === undefined ? undefined : now.toISOString()
    return { ...before, incarnation: incarnation + 1, ...begun, recoveringSince: since }
  }
  // A first member has answered.
  const isNew = clusterID !== undefined && clusterID !== object.status.clusterID
  const isOver =
    members !== undefined && pods.every(({ metadata }) => members.some(({ name }) => name === metadata.name))
  return {
    ...before,
    incarnation,
    restoring: clusterID === undefined ? restoring : undefined,
    restoredFrom: isNew && restoring !== undefined ? restoring : restoredFrom,
    // A quorum ends the recovery: that of the new cluster, or that of the former one.
    recovering: members === undefined ? recovering : undefined,
    recovered: isNew && recovering !== undefined ? recovering : recovered,
    recoveringSince: isOver ? undefined : recoveringSince,
  }
}
