import type { Cluster } from './cluster.ts'
import type { Step } from './step.ts'

/**
 * Returns the origin of the cluster's data. It is recorded before the data change, so that each change happens once,
 * and before anything is deleted for it.
 */
export function incarnationOf({ object, members }: Cluster, step: Step | undefined, clusterID: string | undefined) {
  const { incarnation = 0, restoring, restoredFrom, recovering, recovered } = object.status
  const before = { restoredFrom, recovered }
  if (step?.begins !== undefined) return { ...before, incarnation: incarnation + 1, ...step.begins }
  // A first member has answered.
  const isNew = clusterID !== undefined && clusterID !== object.status.clusterID
  return {
    incarnation,
    restoring: clusterID === undefined ? restoring : undefined,
    restoredFrom: isNew && restoring !== undefined ? restoring : restoredFrom,
    // A quorum ends the recovery: that of the new cluster, or that of the former one.
    recovering: members === undefined ? recovering : undefined,
    recovered: isNew && recovering !== undefined ? recovering : recovered,
  }
}
