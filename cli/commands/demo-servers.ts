import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type ClusterOptions,
  defaultClusterDir,
  ensureDevelopmentCluster,
  existingServers,
  isBuilt,
  type NodeKind,
  NoNodeError,
  type Progress,
  startCluster,
  startNats,
  withTask,
} from '#lab'

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
  /** Called before programs are built; `again` if the demo has been shown without a node before. */
  onBuild: (again: boolean) => void
}

/**
 * Returns the servers that the environment names, and starts the missing ones. While the programs of a node are not
 * built, servers without a node come first, and the node is built when the caller asks for the next servers.
 */
export async function* demoServers(options: DemoServersOptions): AsyncGenerator<DemoServers> {
  const { env, keep, hasNode, progress, signal, onBuild } = options
  const { kubeconfig, natsUrl } = await existingServers(env)
  const existing = { kubernetes: kubeconfig !== undefined, nats: natsUrl !== undefined }
  if (kubeconfig !== undefined) {
    const own = natsUrl === undefined ? await ownNats(options) : undefined
    const urls = { kubeconfig, natsUrl: own?.nats.url ?? natsUrl ?? '' }
    return yield { ...urls, node: undefined, existing, dir: own?.dir, stop: async () => own?.nats.stop() }
  }
  if (keep) {
    const dir = defaultClusterDir(env)
    const { state } = await ensureDevelopmentCluster({ dir, progress, signal, onBuild: () => onBuild(false) })
    const { kubeconfig: started = '', natsUrl: local = '', node } = state ?? {}
    return yield { kubeconfig: started, natsUrl: natsUrl ?? local, node, existing, dir, stop: async () => {} }
  }

  const nats = natsUrl === undefined
  const start = async (parts: Partial<ClusterOptions>): Promise<DemoServers> => {
    const cluster = await temporaryCluster({ ...parts, nats, progress, signal })
    return {
      kubeconfig: cluster.kubeconfig,
      natsUrl: natsUrl ?? cluster.nats?.url ?? '',
      node: cluster.node,
      existing,
      dir: undefined,
      stop: () => cluster.stop(),
    }
  }
  const startBare = () => start({ node: 'none', controllers: false, onBuild: () => onBuild(false) })
  const bareFirst = !hasNode || !(await isBuilt('real', { nats, minimal: true }))
  if (bareFirst) yield await startBare()
  if (!hasNode) return
  try {
    yield await start({ node: 'real', minimal: true, onBuild: () => onBuild(true) })
  } catch (error) {
    if (!(error instanceof NoNodeError)) throw error
    progress.line(`No real pod is shown: ${error.message}.`)
    if (!bareFirst) yield await startBare()
  }
}

async function temporaryCluster(options: Omit<ClusterOptions, 'dir'>) {
  const dir = await mkdtemp(join(tmpdir(), 'fl-'))
  try {
    return await startCluster({ ...options, dir, dieWithParent: true, temporary: true })
  } catch (error) {
    // The logs of a failed start contain the error. The others have none, or none of interest.
    const hasLogs = existsSync(join(dir, 'log')) && !(options.signal?.aborted || error instanceof NoNodeError)
    if (!hasLogs) await rm(dir, { recursive: true, force: true })
    throw error
  }
}

async function ownNats({ keep, progress, signal }: DemoServersOptions) {
  const dir = await mkdtemp(join(tmpdir(), 'fl-'))
  const wanted = { dir, progress, signal, dieWithParent: !keep, temporary: !keep }
  return { dir, nats: await withTask(progress, 'nats-server', () => startNats(wanted)) }
}
