import type { AgentPod } from '#functions/etcd-backup'
import { failuresOf, isGivenUp, progressOf, retryAt, runsOf } from '#functions/etcd-backup'
import { Pod, reconciler } from '#sdk'
import { Endpoints, isServed, Replaced, type ReplacedCluster } from './cluster.ts'
import { verifyPod } from './pod.ts'
import { EtcdRestore, type RestoreObject, type RestoreOutcome } from './resource.ts'
import { checked, failed, readyOf, succeeded, tooNew } from './status.ts'

/**
 * Replaces the data of a cluster with a snapshot. This function starts a pod that reads and checks the snapshot, and
 * records the result in the status. Only then the function of the EtcdCluster replaces its members, and records the
 * EtcdRestore in its own status.
 */
export const etcdRestore = reconciler({
  name: 'etcd-restore',
  for: EtcdRestore,
  owns: [Pod],
  related: [Replaced, Endpoints],
  reconcile({ object, owned, related, now }) {
    const { spec, status } = object
    if (status.succeeded === true) return { conditions: readyOf(object) }
    const [cluster] = related(Replaced)
    if (cluster === undefined)
      return waiting('NoCluster', `there is no EtcdCluster ${spec.etcdCluster.name}: create it`)
    if (status.verified === undefined) return check(object, owned(Pod), cluster, now)
    const { uid } = object.metadata
    const { restoring, restoredFrom } = cluster.status ?? {}
    if (restoredFrom === uid)
      return isServed(cluster, related(Endpoints))
        ? succeeded(object)
        : waiting('Restoring', notServed(object, cluster))
    const obstacle = restoring === uid ? undefined : obstacleOf(object, cluster)
    return obstacle ?? { conditions: readyOf(object) }
  },
})

const waiting = (reason: string, message: string): RestoreOutcome => ({
  conditions: [{ type: 'Ready', status: 'False', reason, message }],
})

const notServed = ({ spec, status }: RestoreObject, cluster: ReplacedCluster): string =>
  `EtcdCluster ${spec.etcdCluster.name} has the data of ${status.verified?.path}; Service ` +
  `${cluster.status?.serviceName} leads to no ready member yet`

/** Returns the reason why a verified snapshot does not replace the cluster. */
function obstacleOf({ metadata, spec, status }: RestoreObject, cluster: ReplacedCluster): RestoreOutcome | undefined {
  const { uid } = cluster.metadata
  if (status.clusterUID !== uid) {
    const former = `the snapshot was verified for the EtcdCluster ${spec.etcdCluster.name} with another UID than ${uid}`
    return waiting('OtherCluster', `${former}: delete EtcdRestore ${metadata.name}, and create it again`)
  }
  const newer = status.verified && tooNew(status.verified, cluster.spec.version)
  return newer === undefined ? undefined : waiting('SnapshotTooNew', newer)
}

/** Checks the snapshot. The cluster is not changed before this has succeeded. */
function check(object: RestoreObject, pods: readonly AgentPod[], cluster: ReplacedCluster, now: Date): RestoreOutcome {
  const { active, ended } = runsOf(pods, object.status.lastPod)
  if (ended) return checked(object, ended, cluster)
  if (active) return underWay(object, active, now)
  const failures = failuresOf(object)
  const conditions = readyOf(object)
  if (isGivenUp(failures)) return { conditions }
  const due = failures.count === 0 ? now : retryAt(failures)
  return now < due ? { conditions, requeueAt: due } : { conditions, apply: [verifyPod(object, failures.count)] }
}

function underWay(object: RestoreObject, pod: AgentPod, now: Date): RestoreOutcome {
  const progress = progressOf(pod, now)
  if ('lost' in progress) return failed(object, pod, progress.lost, progress.at)
  const reading = { reason: 'Verifying', message: `pod ${pod.metadata.name} reads the snapshot` }
  const { reason, message } = progress.obstacle ?? reading
  return { apply: [pod], ...waiting(reason, message), requeueAt: progress.lostAt }
}
