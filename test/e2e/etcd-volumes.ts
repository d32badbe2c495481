import { chown, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { resourcePath } from '#kube'
import type { World } from './world.ts'

const VOLUMES = { group: '', version: 'v1', resource: 'persistentvolumes' }
/** That members run as. */
const USER = 1000

/** The volume claim of a member that uses one of these volumes. */
export const LOCAL_CLAIM = {
  accessModes: ['ReadWriteOnce'],
  storageClassName: 'local',
  resources: { requests: { storage: '1Mi' } },
}

/** Folders on the node, each of which one claim may take. */
export async function createVolumes({ cluster, kube }: World, count: number): Promise<void> {
  for (let at = 0; at < count; at++) {
    const folder = join(cluster.dir, `volume-${at}`)
    await mkdir(folder)
    await chown(folder, USER, USER)
    const spec = {
      capacity: { storage: '1Gi' },
      accessModes: ['ReadWriteOnce'],
      storageClassName: 'local',
      hostPath: { path: folder },
    }
    const volume = { apiVersion: 'v1', kind: 'PersistentVolume', metadata: { name: `volume-${at}` }, spec }
    await kube.create(resourcePath(VOLUMES), volume)
  }
}
