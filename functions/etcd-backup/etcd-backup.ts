import { Pod, reconciler } from '#sdk'
import type { AgentPod } from './agent-pod.ts'
import { runsOf } from './agent-runs.ts'
import { backupPod } from './pod.ts'
import { type BackupObject, type BackupOutcome, EtcdBackup } from './resource.ts'
import { failed, isAtEnd, isPeriodic, readyOf, recorded } from './status.ts'
import { failuresOf, progressOf, retryAt } from './tries.ts'

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
