import type { Cluster } from './cluster.ts'
import { returnedOf } from './recovery.ts'
import type { Step } from './step.ts'

/**
 * Returns the origin of the cluster's data. It is recorded before the data change, so that each change happens once,
 * and before anything is deleted for it.
 */
export function incarnationOf(cluster: Cluster, step: Step | undefined, clusterID: string | undefined) {
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
