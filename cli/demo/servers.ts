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
  /** The kind of node that runs pods; undefined on an existing cluster. */
  node: NodeKind | undefined
  /** Servers that existed before: the demo must restore their state. */
  existing: { kubernetes: boolean; nats: boolean }
  /** The folder of servers that continue after the demo. */
  dir: string | undefined
  stop(): Promise<void>
}

export interface DemoServersOptions {
  env: NodeJS.ProcessEnv
  /** Keeps the servers after this process, in the folder of `fairlead local`. */
  keep: boolean
  /** False: pods are only stored, and the demo must end them. */
  hasNode: boolean
  progress: Progress
  signal: AbortSignal
}

/** Returns the servers that the environment names, and starts the missing ones. */
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
    // The logs of a failed start contain the error. An interrupted start has none, so its folder is removed.
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
