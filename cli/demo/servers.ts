import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  defaultClusterDir,
  ensureDevelopmentCluster,
  existingServers,
  type NodeKind,
  type Progress,
  startCluster,
  startNats,
} from '#local'

export interface DemoServers {
  kubeconfig: string
  natsUrl: string
  /** What runs pods; undefined on a cluster that was there already. */
  node: NodeKind | undefined
  /** Was there before: the demo must leave it as it found it. */
  existing: { kubernetes: boolean; nats: boolean }
  /** Folder of the servers that stay. */
  dir: string | undefined
  stop(): Promise<void>
}

export interface DemoServersOptions {
  env: NodeJS.ProcessEnv
  /** The servers outlive this process, in the folder of `fairlead local`. */
  keep: boolean
  /** False: pods are stored, and something else has to end them. */
  hasNode: boolean
  progress: Progress
  signal: AbortSignal
}

/** The servers that the environment names; what it does not name is started here. */
export async function demoServers({ env, keep, hasNode, progress, signal }: DemoServersOptions): Promise<DemoServers> {
  const { kubeconfig, natsUrl } = await existingServers(env)
  const existing = { kubernetes: kubeconfig !== undefined, nats: natsUrl !== undefined }
  if (kubeconfig !== undefined && natsUrl !== undefined)
    return { kubeconfig, natsUrl, node: undefined, existing, dir: undefined, stop: async () => {} }

  if (keep && kubeconfig === undefined) {
    const dir = defaultClusterDir(env)
    const { state } = await ensureDevelopmentCluster({ dir, progress, signal })
    const { kubeconfig: started = '', natsUrl: local = '', node } = state ?? {}
    return { kubeconfig: started, natsUrl: natsUrl ?? local, node, existing, dir, stop: async () => {} }
  }

  const dir = await mkdtemp(join(tmpdir(), 'fl-'))
  if (kubeconfig !== undefined) {
    const nats = await startNats({ dir, dieWithParent: !keep, temporary: !keep })
    return { kubeconfig, natsUrl: nats.url, node: undefined, existing, dir, stop: () => nats.stop() }
  }
  const parts = hasNode ? ({ node: 'auto', minimal: true } as const) : ({ node: 'none', controllers: false } as const)
  const wanted = { nats: !existing.nats, dieWithParent: true, temporary: true, progress, signal }
  const cluster = await startCluster({ dir, ...parts, ...wanted }).catch(async (error: unknown) => {
    // The logs of a start that failed say why; one that was interrupted has nothing to say.
    if (signal.aborted) await rm(dir, { recursive: true, force: true })
    throw error
  })
  return {
    kubeconfig: cluster.kubeconfig,
    natsUrl: natsUrl ?? cluster.nats?.url ?? '',
    node: cluster.node,
    existing,
    dir,
    stop: () => cluster.stop(),
  }
}
