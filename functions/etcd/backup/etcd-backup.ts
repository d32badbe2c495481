import { type ConditionUpdate, Pod, reconciler, shortName } from 'fairlead'
import { type AgentPod, agentPod, tryOf } from './agent-pod.ts'
import {
  endingOf,
  endOf,
  failureStatus,
  failuresOf,
  isGivenUp,
  progressOf,
  retryAt,
  runsOf,
  type StoredSnapshot,
} from './agent-runs.ts'
import { type BackupObject, type BackupOutcome, EtcdBackup } from './resource.ts'
import { storeSource } from './store-spec.ts'

/**
 * Stores snapshots of an etcd cluster, once or periodically. One pod makes each snapshot and reports what it has
 * stored.
 */
export const etcdBackup = reconciler({
  name: 'etcd-backup',
  for: EtcdBackup,
  owns: [Pod],
  reconcile({ object, owned, now }) {
    const { active, ended } = runsOf(owned(Pod), object.status.lastPod)
    if (ended) return recorded(object, ended)
    if (active) return underWay(object, active, now)
    const due = dueAt(object, now)
    const conditions = readyOf(object)
    if (due === undefined) return { conditions }
    if (now < due) return { conditions, requeueAt: due }
    return { conditions, apply: [backupPod(object, failuresOf(object).count)] }
  },
})

/** Returns when the next run is due. Undefined: no further run is due. */
function dueAt(object: BackupObject, now: Date): Date | undefined {
  const { status, spec } = object
  if (isAtEnd(object)) return undefined
  const failures = failuresOf(object)
  if (failures.count > 0) return retryAt(failures)
  if (status.lastSuccessDate === undefined) return now
  if (!isPeriodic(object)) return undefined
  // The interval counts from the last success: however many backups were missed, one replaces them all.
  return new Date(Date.parse(status.lastSuccessDate) + spec.backupPolicy.backupIntervalInSecond * 1000)
}

function underWay(object: BackupObject, pod: AgentPod, now: Date): BackupOutcome {
  const progress = progressOf(pod, now)
  if ('lost' in progress) return failed(object, pod, progress.lost, progress.at)
  const { obstacle, lostAt } = progress
  const { reason, message } = obstacle ?? { reason: 'BackingUp', message: `pod ${pod.metadata.name} is under way` }
  // The result of the last run stays visible, unless this run cannot start.
  const isShown = object.status.succeeded === undefined || obstacle !== undefined
  const waiting = { type: 'Ready', status: 'False', reason, message } as const
  return { apply: [pod], conditions: isShown ? [waiting] : readyOf(object), requeueAt: lostAt }
}

const LONGEST_NAME = 63
const DEFAULT_SECONDS = 60

/** Returns the pod of one run. Its name identifies the run. */
function backupPod({ metadata, spec, status }: BackupObject, failures: number): AgentPod {
  const { timeoutInSecond, backupIntervalInSecond, maxBackups } = spec.backupPolicy
  const { name, namespace = 'default', uid, generation } = metadata
  const run = tryOf([uid, generation, status.lastSuccessDate, failures])
  const periodic = backupIntervalInSecond > 0 ? ['--periodic', ...(maxBackups > 0 ? [`--keep=${maxBackups}`] : [])] : []
  return agentPod(
    {
      name: `${shortName(name, LONGEST_NAME - run.length - 1)}-${run}`,
      labels: { app: 'etcd-backup', etcd_backup: shortName(name, LONGEST_NAME) },
    },
    {
      image: spec.agentImage,
      command: 'backup',
      args: [`--endpoints=${spec.etcdEndpoints.join(',')}`, `--owner=${namespace}/${name}/${uid}`, ...periodic],
      store: storeSource(spec.storageType, spec),
      serviceAccount: spec.agentServiceAccount,
      tlsSecret: spec.clientTLSSecret,
      seconds: timeoutInSecond || DEFAULT_SECONDS,
    },
  )
}

type Status = Partial<NonNullable<BackupOutcome['status']>>

const isPeriodic = ({ spec }: BackupObject): boolean => spec.backupPolicy.backupIntervalInSecond > 0

/**
 * Whether no further attempt follows. A single backup is attempted a limited number of times, a periodic one as long as
 * it exists.
 */
const isAtEnd = (object: BackupObject, status: Status = object.status): boolean =>
  !isPeriodic(object) && isGivenUp(failuresOf({ metadata: object.metadata, status }))

/** Returns the result of a pod that has ended. The pod stays, for its log, until the next one begins. */
function recorded(object: BackupObject, pod: AgentPod): BackupOutcome {
  const ending = endingOf(pod)
  return ending.succeeded
    ? stored(object, pod, ending.report)
    : failed(object, pod, ending.message, new Date(endOf(pod)))
}

function stored(object: BackupObject, pod: AgentPod, report: StoredSnapshot): BackupOutcome {
  const { etcdVersion, etcdRevision, path, size, sha256, time, ahead = [], namesakes, retentionError } = report
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
      ...(namesakes === undefined
        ? []
        : [{ type: 'Warning', reason: 'BackupsNotCounted', message: namesakesOf(namesakes) } as const]),
    ],
  }
}

function aheadOf([first = '', ...others]: readonly string[]): string {
  const what = others.length === 0 ? `${first} has a time` : `${first} and ${others.length} more have times`
  return `${what} after this backup. Such backups are kept and do not count for maxBackups: correct the clock of the node, and delete them if you do not need them`
}

function namesakesOf({ first, count }: NonNullable<StoredSnapshot['namesakes']>): string {
  const what = count === 1 ? `${first} is` : `${first} and ${count - 1} more are`
  return `${what} of an EtcdBackup with this name and another UID, which may be in another cluster, or of a version of Fairlead that did not store the UID. Such backups are kept and do not count for maxBackups: use a path for each cluster, and delete them if you do not need them`
}

/** Returns the outcome of a failure. The last stored snapshot stays in the status. */
function failed(object: BackupObject, pod: AgentPod, Reason: string, at: Date): BackupOutcome {
  const { etcdVersion, etcdRevision, lastSuccessDate, path, size, sha256 } = object.status
  const before = { etcdVersion, etcdRevision, lastSuccessDate, path, size, sha256 }
  const status = { ...before, ...failureStatus(object, pod, at), Reason }
  const conditions = readyOf(object, status)
  const events = conditions.map(({ reason }) => ({ type: 'Warning', reason, message: Reason }) as const)
  return { apply: [pod], status, conditions, events }
}

/** Returns the conditions for a status. There are none before the first run has ended. */
function readyOf(object: BackupObject, status: Status = object.status): ConditionUpdate[] {
  if (status.succeeded === undefined) return []
  if (status.succeeded) return [{ type: 'Ready', status: 'True', reason: 'BackedUp', message: messageOf(status) }]
  const reason = isAtEnd(object, status) ? 'BackoffLimitExceeded' : 'BackupFailed'
  return [{ type: 'Ready', status: 'False', reason, message: status.Reason ?? '' }]
}

const messageOf = ({ path, size, etcdRevision }: Status): string =>
  `${path} has ${size} bytes and revision ${etcdRevision}`
