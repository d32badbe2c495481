import { type AgentContainer, agentContainer, secretVolume, storeSource } from '#functions/etcd-backup'
import type { RestoreObject } from './resource.ts'

/** Watchers of any revision before notice that the data is another. */
const BUMP = 1_000_000_000

/** The first member of the cluster that begins with the snapshot. */
export interface SeedData {
  name: string
  peerUrl: string
  /** Of the cluster: another one than that of the members before. */
  token: string
  /** As etcd has it in --data-dir; below the mount. */
  dataDir: string
  volume: string
  mountPath: string
}

/**
 * The init container that makes the data directory of the first member from the verified snapshot, and the volume that it
 * needs. Run again, it does nothing. Undefined: the snapshot is not verified.
 */
export function restoreContainer({ spec, status }: RestoreObject, seed: SeedData) {
  if (status.verified === undefined) return undefined
  const { args } = storeSource(spec.backupStorageType, spec)
  const { name, peerUrl, token, dataDir, volume, mountPath } = seed
  const container = agentContainer({
    name: 'restore',
    image: spec.agentImage,
    args: [
      'restore',
      ...args,
      `--sha256=${status.verified.sha256}`,
      `--data-dir=${dataDir}`,
      `--name=${name}`,
      `--peer-url=${peerUrl}`,
      `--token=${token}`,
      `--bump-revision=${BUMP}`,
      `--timeout=${spec.timeoutInSecond}`,
    ],
  })
  const initContainer: AgentContainer = {
    ...container,
    volumeMounts: [...(container.volumeMounts ?? []), { name: volume, mountPath }],
  }
  return { initContainer, volume: secretVolume('store', storeSource(spec.backupStorageType, spec).secret) }
}
