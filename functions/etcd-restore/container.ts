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

/** What a pod gets so that its member begins with a snapshot. */
export interface SeedParts {
  /** Run again, it does nothing. */
  initContainer: AgentContainer
  /** That it needs beside that of the data. */
  volumes: ReturnType<typeof secretVolume>[]
}

/** Makes the data directory of the first member from the verified snapshot. Undefined: the snapshot is not verified. */
export function restoreContainer({ spec, status }: RestoreObject, seed: SeedData): SeedParts | undefined {
  if (status.verified === undefined) return undefined
  const { args, secret } = storeSource(spec.backupStorageType, spec)
  const source = ['restore', ...args, `--sha256=${status.verified.sha256}`]
  return {
    initContainer: seedContainer(
      source,
      { image: spec.agentImage, seconds: spec.timeoutInSecond, secrets: ['store'] },
      seed,
    ),
    volumes: [secretVolume('store', secret)],
  }
}

/** Members of a cluster that has lost its quorum. */
export interface Survivors {
  /** URLs. The one with the highest revision is read, of those that answer. */
  endpoints: readonly string[]
  /** That one of them is known to have. */
  revision: number
  /** Secret with the certificate of a client. */
  tlsSecret: string | undefined
}

/** Makes the data directory of the first member from a snapshot of a member that still answers. */
export function recoverContainer(
  { endpoints, revision, tlsSecret }: Survivors,
  { agentImage: image, timeoutInSecond: seconds }: { agentImage: string; timeoutInSecond: number },
  seed: SeedData,
): SeedParts {
  const secrets = tlsSecret === undefined ? [] : (['etcd-tls'] as const)
  return {
    initContainer: seedContainer(
      ['recover', `--endpoints=${endpoints.join(',')}`, `--revision=${revision}`],
      { image, seconds, secrets },
      seed,
    ),
    volumes: tlsSecret === undefined ? [] : [secretVolume('etcd-tls', tlsSecret)],
  }
}

type AgentUse = Pick<Parameters<typeof agentContainer>[0], 'image' | 'secrets'> & { seconds: number }

function seedContainer(source: string[], { image, seconds, secrets }: AgentUse, seed: SeedData): AgentContainer {
  const { name, peerUrl, token, dataDir, volume, mountPath } = seed
  const container = agentContainer({
    name: 'restore',
    image,
    args: [
      ...source,
      `--data-dir=${dataDir}`,
      `--name=${name}`,
      `--peer-url=${peerUrl}`,
      `--token=${token}`,
      `--bump-revision=${BUMP}`,
      `--timeout=${seconds}`,
    ],
    secrets,
  })
  return { ...container, volumeMounts: [...(container.volumeMounts ?? []), { name: volume, mountPath }] }
}
