import type { AgentPod } from '#functions/etcd-backup'
import { endingOf, endOf, failureStatus, failuresOf, isGivenUp, type StoredSnapshot } from '#functions/etcd-backup'
import type { ConditionUpdate } from '#sdk'
import type { ReplacedCluster } from './cluster.ts'
import type { RestoreObject, RestoreOutcome } from './resource.ts'

type Status = Partial<NonNullable<RestoreOutcome['status']>>

/** Returns the result of the pod that has read the snapshot, which counts for this EtcdCluster only. */
export function checked(object: RestoreObject, pod: AgentPod, { metadata, spec }: ReplacedCluster): RestoreOutcome {
  const ending = endingOf(pod)
  const at = new Date(endOf(pod))
  if (!ending.succeeded) return failed(object, pod, ending.message, at)
  const { path, size, sha256, etcdRevision, etcdVersion } = ending.report
  const newer = tooNew(ending.report, spec.version)
  if (newer !== undefined) return failed(object, pod, newer, at)
  const status = {
    succeeded: false,
    verified: { path, size, sha256, etcdRevision, etcdVersion },
    clusterUID: metadata.uid,
    lastPod: pod.metadata.name,
  }
  const message = `${path} has ${size} bytes and revision ${etcdRevision}, and is whole`
  return {
    apply: [pod],
    status,
    conditions: readyOf(object, status),
    events: [{ type: 'Normal', reason: 'Verified', message }],
  }
}

export function failed(object: RestoreObject, pod: AgentPod, reason: string, at: Date): RestoreOutcome {
  const status = { ...failureStatus(object, pod, at), reason }
  const conditions = readyOf(object, status)
  const events = conditions.map(({ reason: why }) => ({ type: 'Warning', reason: why, message: reason }) as const)
  return { apply: [pod], status, conditions, events }
}

export function succeeded(object: RestoreObject): RestoreOutcome {
  const { verified, clusterUID } = object.status
  const status = { succeeded: true, verified, clusterUID }
  const conditions = readyOf(object, status)
  const events = conditions.map(({ reason, message = '' }) => ({ type: 'Normal', reason, message }) as const)
  return { status, conditions, events }
}

/** Returns the conditions for a status. There are none before the first check has ended. */
export function readyOf(object: RestoreObject, status: Status = object.status): ConditionUpdate[] {
  const { name } = object.spec.etcdCluster
  const { verified, reason: why = '' } = status
  if (status.succeeded === undefined) return []
  if (status.succeeded) return [ready('True', 'Restored', `EtcdCluster ${name} runs on ${verified?.path}`)]
  if (verified)
    return [ready('False', 'Restoring', `${verified.path} is whole, and EtcdCluster ${name} is replaced by it`)]
  const isAtEnd = isGivenUp(failuresOf({ metadata: object.metadata, status }))
  return [ready('False', isAtEnd ? 'BackoffLimitExceeded' : 'VerifyFailed', why)]
}

const ready = (status: 'True' | 'False', reason: string, message: string): ConditionUpdate => ({
  type: 'Ready',
  status,
  reason,
  message,
})

/**
 * Returns an error if the snapshot is of a later minor version than `spec.version` of the cluster, which the first
 * member runs. etcd would refuse its data after the former members were deleted.
 */
export function tooNew(
  { etcdVersion, path }: Pick<StoredSnapshot, 'etcdVersion' | 'path'>,
  version: string | undefined,
): string | undefined {
  const [snapshot, cluster] = [minorOf(etcdVersion), minorOf(version)]
  if (snapshot === undefined || cluster === undefined || snapshot <= cluster) return undefined
  return `${path} is of etcd ${etcdVersion}, and spec.version of the EtcdCluster is ${version}: set that to ${etcdVersion} first`
}

/** Returns a number for comparisons: 3.10 is later than 3.9. */
function minorOf(version = ''): number | undefined {
  const [, major, minor] = /^v?(\d+)\.(\d+)\./.exec(version) ?? []
  return major === undefined ? undefined : Number(major) * 1000 + Number(minor)
}
