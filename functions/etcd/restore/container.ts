import { type AgentContainer, agentContainer, secretVolume, storeSource } from '../backup/index.ts'
import type { RestoreObject } from './resource.ts'

/** Added to the revision, so that watches of every former revision end and clients notice the change of the data. */
const BUMP = 1_000_000_000

/** The first member of the cluster that begins with the snapshot. */
export interface SeedData {
  name: string
  peerUrl: string
  /** The token of the cluster. It differs from the token of the former members. */
  token: string
  /** The value of etcd's --data-dir, a folder below the mount. */
  dataDir: string
  volume: string
  mountPath: string
}

/** The parts of a pod whose member begins with a snapshot. */
export interface SeedParts {
  /** Makes the data directory. If it runs again, it does nothing. */
  initContainer: AgentContainer
  /** The volumes that it needs besides the data volume. */
  volumes: ReturnType<typeof secretVolume>[]
  /** The ServiceAccount and the labels by which the pod has an identity in the cloud. */
  serviceAccount?: string
  labels?: Record<string, string>
}

/**
 * Returns the parts that make the first member's data directory from the verified snapshot. Undefined: the snapshot is
 * not verified.
 */
export function restoreContainer({ spec, status }: RestoreObject, seed: SeedData): SeedParts | undefined {
  if (status.verified === undefined) return undefined
  const { args, secret, labels } = storeSource(spec.backupStorageType, spec)
  const source = ['restore', ...args, `--sha256=${status.verified.sha256}`]
  return {
    initContainer: seedContainer(
      source,
      { image: spec.agentImage, seconds: spec.timeoutInSecond, secrets: secret === undefined ? [] : ['store'] },
      seed,
    ),
    volumes: secret === undefined ? [] : [secretVolume('store', secret)],
    serviceAccount: spec.agentServiceAccount,
    labels,
  }
}

/** The members of a cluster that has lost its quorum. */
export interface Survivors {
  /** The URLs of members. The one with the highest revision among those that answer is read. */
  endpoints: readonly string[]
  /** The revision that one of them is known to have. */
  revision: number
  /** The Secret with the certificate of a client. */
  tlsSecret: string | undefined
}

/** Returns the parts that make the first member's data directory from a snapshot of a member that still answers. */
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
