import type { ConditionUpdate } from '#sdk'
import { type Cluster, isHealthy, isReady, votes } from './cluster.ts'
import { CLIENT_PORT, clientServiceOf, selectorOf } from './names.ts'
import { quorumOf } from './parts.ts'
import { imageIn, imageOf, versionIn } from './pod.ts'
import { said } from './replacement.ts'
import { tlsStatus } from './rotation.ts'
import type { Step } from './step.ts'
import { isPrepared } from './upgrade.ts'
import { isDowngrading, refusedPath, supportedFrom } from './version.ts'

type Phase = NonNullable<Cluster['object']['status']['phase']>
type Availability = Pick<ConditionUpdate, 'status' | 'reason'> & { message: string }

export function statusOf(cluster: Cluster, id: string | undefined, step: Step | undefined) {
  const { object, pods, members, leader, lastSize, now } = cluster
  const { spec, status: before } = object
  const names = [...new Set([...pods.map(({ metadata }) => metadata.name), ...(members ?? []).map(({ name }) => name)])]
  const ready = pods.filter(isReady).map(({ metadata }) => metadata.name)
  const isBeginning = step?.begins !== undefined
  const clusterID = isBeginning ? undefined : id
  const available = availability(cluster, ready, step)
  const isFailed = step?.isStuck === true && before.clusterID === undefined
  const learners = (members ?? []).filter(({ isLearner }) => isLearner).map(({ name }) => name)
  const answering = (members ?? []).flatMap(({ name, answer }) => (answer ? [[name, answer.version] as const] : []))
  const lostSince = available.reason === 'QuorumLost' ? (before.quorumLostSince ?? now.toISOString()) : undefined
  return {
    status: {
      phase: isBeginning ? ('Creating' as const) : phaseOf(before.phase, available, isFailed),
      reason: isFailed ? step.message : '',
      controlPaused: spec.paused,
      size: clusterID === undefined ? 0 : lastSize,
      selector: selectorOf(object),
      serviceName: clientServiceOf(object),
      clientPort: CLIENT_PORT,
      members: { ready, unready: names.filter((name) => !ready.includes(name)).sort(), learners },
      ...(leader && { leader: leader.name }),
      versions: members === undefined ? (before.versions ?? {}) : Object.fromEntries(answering),
      ...versions(cluster),
      ...(clusterID !== undefined && { clusterID }),
      ...restoration(before, step, clusterID),
      ...tlsStatus(cluster, step),
      ...(cluster.isAuthEnabled !== undefined && { authEnabled: cluster.isAuthEnabled }),
      ...(lostSince !== undefined && { quorumLostSince: lostSince }),
    },
    conditions: conditionsOf(cluster, available, step),
  }
}

/** A restore is done when the first member of the new cluster has answered. */
function restoration(before: Cluster['object']['status'], step: Step | undefined, clusterID: string | undefined) {
  const { incarnation = 0 } = before
  const begins = step?.begins
  const restoring = begins ?? before.restoring
  const isDone = begins === undefined && clusterID !== undefined
  const restoredFrom = isDone ? (restoring ?? before.restoredFrom) : before.restoredFrom
  return {
    incarnation: begins === undefined ? incarnation : incarnation + 1,
    ...(restoring !== undefined && !isDone && { restoring }),
    ...(restoredFrom !== undefined && { restoredFrom }),
  }
}

/** It has been available once when it is running, whatever becomes of it. */
function phaseOf(before: Phase | undefined, available: Availability, isFailed: boolean): Phase {
  if (isFailed) return 'Failed'
  return before === 'Running' || available.status === 'True' ? 'Running' : 'Creating'
}

/** The current version is the last one that all members have run. */
function versions({ object, members = [] }: Cluster): { currentVersion: string; targetVersion: string } {
  const version = versionIn(object)
  const isRun =
    members.length > 0 &&
    members.every(({ pod, answer }) => pod && imageIn(pod) === imageOf(object, version) && answer?.version === version)
  const currentVersion = isRun ? version : (object.status.currentVersion ?? version)
  const isUnprepared = isDowngrading(object) && !members.every(({ answer }) => isPrepared(answer, version))
  const isTarget = currentVersion !== version && refusedPath(object) === undefined && !isUnprepared
  return { currentVersion, targetVersion: isTarget ? version : '' }
}

function availability(cluster: Cluster, ready: readonly string[], step: Step | undefined): Availability {
  const { object, members, lastSize } = cluster
  if (object.status.phase !== 'Running' && (members === undefined || step?.reason === 'Seeding'))
    return { status: 'False', reason: 'Creating', message: 'the cluster has never been available' }
  if (members !== undefined) {
    const voters = members.filter(votes)
    const healthy = voters.filter((one) => isHealthy(cluster, one))
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
  return { status: 'False', reason: 'QuorumLost', message: loss(cluster, ready) }
}

/** What is missing, and what may be done. */
function loss({ pods, claims, lastSize, answers }: Cluster, ready: readonly string[]): string {
  const there = pods.map(({ metadata }) => metadata.name)
  const disks = claims.map(({ metadata }) => metadata.name)
  const list = (names: readonly string[]) => names.join(', ') || 'none'
  const missing = quorumOf(lastSize) - ready.length
  return (
    `${missing} more of ${lastSize} members have to be ready; pods: ${list(there)}; ready: ${list(ready)}; ` +
    `answering: ${answers.length}; volumes: ${list(disks)}. Nothing is deleted. ` +
    'Bring back the nodes or volumes of the missing members, or restore a backup'
  )
}

function conditionsOf(cluster: Cluster, available: Availability, step: Step | undefined): ConditionUpdate[] {
  const { object, members = [] } = cluster
  const unhealthy = members.filter((one) => votes(one) && !isHealthy(cluster, one))
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
    during('Recovering'),
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
