import { type RestoreObject, restoreContainer, type SeedData, type SeedParts } from '#functions/etcd-restore'
import type { Cluster } from './cluster.ts'
import { peerUrlOf, seedName, tokenOf } from './names.ts'
import type { PodObject } from './parts.ts'
import { DATA, DATA_DIR, DATA_VOLUME } from './pod.ts'
import type { ClusterObject } from './resource.ts'
import type { Step } from './step.ts'

/**
 * Begins a restore if a snapshot is verified and not yet used. It is recorded before anything is deleted, and so made
 * once.
 */
export function beginRestore({ object, restore }: Cluster): Step | undefined {
  const uid = restore?.metadata.uid
  const { restoring, restoredFrom } = object.status
  if (restore?.status.verified === undefined || uid === undefined || uid === restoring || uid === restoredFrom)
    return undefined
  const message = `the members are replaced by the snapshot ${restore.status.verified.path}`
  return { reason: 'Restoring', message, begins: { restoring: uid } }
}

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
  return {
    ...pod,
    spec: {
      ...others,
      containers,
      initContainers: [...initContainers, parts.initContainer],
      volumes: [...volumes, ...parts.volumes],
    },
  }
}
