import type { ConditionUpdate } from '#sdk'
import type { AgentPod } from './agent-pod.ts'
import { endingOf, endOf, type StoredSnapshot } from './agent-runs.ts'
import type { BackupObject, BackupOutcome } from './resource.ts'
import { failureStatus, failuresOf, isGivenUp } from './tries.ts'

type Status = Partial<NonNullable<BackupOutcome['status']>>

export const isPeriodic = ({ spec }: BackupObject): boolean => spec.backupPolicy.backupIntervalInSecond > 0

/**
 * Whether no further attempt follows. A single backup is attempted a limited number of times, a periodic one as long as
 * it exists.
 */
export const isAtEnd = (object: BackupObject, status: Status = object.status): boolean =>
  !isPeriodic(object) && isGivenUp(failuresOf({ metadata: object.metadata, status }))

/** Returns the result of a pod that has ended. The pod stays, for its log, until the next one begins. */
export function recorded(object: BackupObject, pod: AgentPod): BackupOutcome {
  const ending = endingOf(pod)
  return ending.succeeded
    ? stored(object, pod, ending.report)
    : failed(object, pod, ending.message, new Date(endOf(pod)))
}

function stored(object: BackupObject, pod: AgentPod, report: StoredSnapshot): BackupOutcome {
  const { etcdVersion, etcdRevision, path, size, sha256, time, ahead = [], retentionError } = report
  const lastSuccessDate = time ?? new Date(endOf(pod)).toISOString()
  const lastPod = pod.metadata.name
  const status = { succeeded: true, etcdVersion, etcdRevision, lastSuccessDate, path, size, sha256, lastPod }
  const kept = { type: 'Warning', reason: 'RetentionFailed', message: retentionError ?? '' } as const
  return {
    apply: [pod],
    status,
    conditions: readyOf(object, status),
    events: [
      { type: 'Normal', reason: 'BackedUp', message: messageOf(status) },
      ...(retentionError === undefined ? [] : [kept]),
      ...(ahead.length === 0 ? [] : [{ type: 'Warning', reason: 'BackupInFuture', message: aheadOf(ahead) } as const]),
    ],
  }
}

function aheadOf([first = '', ...others]: readonly string[]): string {
  const what = others.length === 0 ? `${first} has a time` : `${first} and ${others.length} more have times`
  return `${what} after this backup. Such backups are kept and do not count for maxBackups: correct the clock of the node, and delete them if you do not need them`
}

/** Returns the outcome of a failure. The last stored snapshot stays in the status. */
export function failed(object: BackupObject, pod: AgentPod, Reason: string, at: Date): BackupOutcome {
  const { etcdVersion, etcdRevision, lastSuccessDate, path, size, sha256 } = object.status
  const before = { etcdVersion, etcdRevision, lastSuccessDate, path, size, sha256 }
  const status = { ...before, ...failureStatus(object, pod, at), Reason }
  const conditions = readyOf(object, status)
  const events = conditions.map(({ reason }) => ({ type: 'Warning', reason, message: Reason }) as const)
  return { apply: [pod], status, conditions, events }
}

/** Returns the conditions for a status. There are none before the first run has ended. */
export function readyOf(object: BackupObject, status: Status = object.status): ConditionUpdate[] {
  if (status.succeeded === undefined) return []
  if (status.succeeded) return [{ type: 'Ready', status: 'True', reason: 'BackedUp', message: messageOf(status) }]
  const reason = isAtEnd(object, status) ? 'BackoffLimitExceeded' : 'BackupFailed'
  return [{ type: 'Ready', status: 'False', reason, message: status.Reason ?? '' }]
}

const messageOf = ({ path, size, etcdRevision }: Status): string =>
  `${path} has ${size} bytes and revision ${etcdRevision}`
