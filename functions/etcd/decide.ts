import { type KubeObject, type ReconcileOutcome, Secret } from '#sdk'
import { kept } from './authorities.ts'
import { type Cluster, clusterOf, type Given, votes } from './cluster.ts'
import { eventsOf } from './events.ts'
import { partsOf } from './parts.ts'
import { nextTlsTime } from './rotation.ts'
import type { EtcdEffect } from './seen.ts'
import { statusOf } from './status.ts'
import type { Step } from './step.ts'
import { stepOf } from './steps.ts'

export type Decision = ReconcileOutcome<ReturnType<typeof statusOf>['status'], EtcdEffect>

/** One step: what Kubernetes is to hold, and at most one change of etcd. The same state gives the same step. */
export function decide(run: Given): Decision {
  const cluster = clusterOf(run)
  const { object, members } = cluster
  const clusterID = members === undefined ? object.status.clusterID : cluster.clusterID
  const step = object.spec.paused ? undefined : stepOf(cluster)
  const status = statusOf(cluster, clusterID, step)
  const told = { ...status, events: eventsOf(cluster, status, step) }
  if (object.spec.paused || step?.touchesNothing === true) return told
  const at = nextTlsTime(cluster)
  // A state that is recorded in this step changes Secrets in the next one.
  const secrets = step?.tls === undefined && cluster.tls ? cluster.tls.secrets : kept(run.owned(Secret))
  return {
    apply: [...wanted(cluster, step), ...secrets],
    ...told,
    ...(step?.effect && { effect: step.effect }),
    ...(step?.after !== undefined && { requeueAfter: step.after }),
    ...(at && { requeueAt: at }),
  }
}

/**
 * A pod or a claim goes only when a quorum has confirmed that it is no member's. What a cluster of before has left on disks
 * goes last.
 */
function wanted({ object, pods, claims, members }: Cluster, step: Step | undefined): KubeObject[] {
  const { put = [], drop = [], claims: added = [] } = step ?? {}
  const { clusterID, phase } = object.status
  const isMember = ({ metadata }: Pick<KubeObject, 'metadata'>): boolean =>
    members === undefined || members.some(({ name }) => name === metadata.name)
  const isIn = ({ metadata }: KubeObject, objects: readonly KubeObject[]): boolean =>
    objects.some((one) => one.metadata.name === metadata.name)
  const keptClaims = claims.filter((claim) => phase !== 'Running' || isMember(claim))
  const keptPods = pods.filter(
    (pod) => (clusterID === undefined || isMember(pod)) && !isIn(pod, put) && !drop.includes(pod.metadata.name),
  )
  const newClaims = added.filter((claim) => !isIn(claim, keptClaims))
  const parts = partsOf(object, members?.filter(votes).length ?? 0)
  return [...parts, ...keptClaims, ...newClaims, ...keptPods, ...put]
}
