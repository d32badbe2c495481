import { type RestoreObject, restoreContainer, type SeedData, type SeedParts, tooNew } from '../restore/index.ts'
import type { Cluster } from './cluster.ts'
import { peerUrlOf, seedName, tokenOf } from './names.ts'
import type { PodObject } from './parts.ts'
import { DATA, DATA_DIR, DATA_VOLUME, versionIn } from './pod.ts'
import type { ClusterObject } from './resource.ts'
import type { Step } from './step.ts'
import { supportedFrom } from './version.ts'

/** Returns the EtcdRestore whose snapshot was verified for this EtcdCluster, and not used yet. */
function requested({ object, restore }: Cluster): RestoreObject | undefined {
  const { uid } = restore?.metadata ?? {}
  const { restoring, restoredFrom } = object.status
  if (uid === undefined || uid === restoring || uid === restoredFrom) return undefined
  // An EtcdRestore stays when its EtcdCluster is deleted, and must not replace a later one of the same name.
  return restore?.status.verified && restore.status.clusterUID === object.metadata.uid ? restore : undefined
}

/**
 * Begins a restore if a snapshot is verified and not yet used. It is recorded before anything is deleted, and so made
 * once. The first member runs spec.version, whatever the former members run, because the cluster is a new one.
 */
export function beginRestore(cluster: Cluster): Step | undefined {
  const restore = requested(cluster)
  if (restore === undefined || refusedRestore(cluster) !== undefined) return undefined
  const message = `the members are replaced by the snapshot ${restore.status.verified?.path}`
  return { reason: 'Restoring', message, begins: { restoring: restore.metadata.uid ?? '' } }
}

/** Returns the reason why the restore that is requested does not begin. Undefined: it begins, or none is requested. */
export function refusedRestore(cluster: Cluster): string | undefined {
  const restore = requested(cluster)
  return restore && (supportedFrom(cluster.object) ?? refusedSnapshot(cluster.object, restore))
}

/** Returns the reason why etcd of spec.version cannot start with the snapshot. */
export const refusedSnapshot = (object: ClusterObject, restore: RestoreObject | undefined): string | undefined =>
  restore?.status.verified && tooNew(restore.status.verified, versionIn(object))

/** Deletes the members of the former cluster first. */
export function endFormer({ object, pods }: Cluster): Step | undefined {
  if (object.status.clusterID !== undefined) return undefined
  const seed = seedName(object)
  const former = pods.map(({ metadata }) => metadata.name).filter((name) => name !== seed)
  if (former.length === 0) return undefined
  const message = `members ${former.join(', ')} of the cluster of before go`
  return { reason: 'Restoring', message, drop: former }
}

/** Returns the pod of the first member, with a container that makes its data from the snapshot. */
export function withSnapshot(
  object: ClusterObject,
  pod: PodObject,
  restore: RestoreObject | undefined,
): PodObject | undefined {
  if (object.status.restoring === undefined) return pod
  if (restore?.metadata.uid !== object.status.restoring) return undefined
  const parts = restoreContainer(restore, seedData(object))
  return parts && withParts(pod, parts)
}

/** Returns the settings with which the first member begins. */
export function seedData(object: ClusterObject): SeedData {
  const name = seedName(object)
  const member = { name, peerUrl: peerUrlOf(object, name), token: tokenOf(object) }
  return { ...member, dataDir: DATA_DIR, volume: DATA_VOLUME, mountPath: DATA }
}

export function withParts({ spec, ...pod }: PodObject, parts: SeedParts): PodObject {
  const { initContainers = [], volumes = [], containers = [], ...others } = spec ?? {}
  const { serviceAccount, labels } = parts
  return {
    ...pod,
    metadata: { ...pod.metadata, labels: { ...pod.metadata.labels, ...labels } },
    spec: {
      ...others,
      ...(serviceAccount !== undefined && { serviceAccountName: serviceAccount }),
      containers,
      initContainers: [...initContainers, parts.initContainer],
      volumes: [...volumes, ...parts.volumes],
    },
  }
}
