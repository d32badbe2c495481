import { mkdirSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'
import { cacheDir } from './build.ts'
import { type ClusterOptions, startCluster } from './cluster.ts'
import type { Environment } from './go-toolchain.ts'
import { withLock } from './lock.ts'
import { openCluster } from './open-cluster.ts'
import { type Progress, silentProgress, withTask } from './progress.ts'
import { type ClusterStatus, clusterStatus } from './state.ts'

export type DevelopmentOptions = Omit<ClusterOptions, 'dieWithParent'>

/** The folder of the user's development cluster: one per user by default. */
export function defaultClusterDir(env: Environment = process.env): string {
  return join(cacheDir(env), 'cluster')
}

/**
 * Returns the cluster in that folder, and starts it if it does not run; it continues after the end of this process.
 * Servers that have died are restarted with their data. Default: a node that runs pods, if the machine supports it.
 * Concurrent calls start one cluster.
 */
export async function ensureDevelopmentCluster(options: DevelopmentOptions): Promise<ClusterStatus> {
  const dir = resolve(options.dir)
  const { progress = silentProgress } = options
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const onWait = ({ pid }: { pid: number }): void => progress.line(`process ${pid} is starting it: waiting`)
  return withLock(join(dir, '.lock'), onWait, async () => {
    const status = clusterStatus(dir)
    if (canGoOn(status)) await recover(status, progress)
    else await startCluster({ node: 'auto', ...options, dir })
    return clusterStatus(dir)
  })
}

async function recover({ dir, processes }: ClusterStatus, progress: Progress): Promise<void> {
  const dead = processes.filter(({ alive }) => !alive).map(({ name }) => name)
  if (dead.length > 0) {
    await withTask(progress, `starting ${dead.join(', ')} again`, () => openCluster(dir).recover())
  }
}

/** Whether dead servers can be restarted. After a reboot, a real node cannot: its links and packet rules are lost. */
function canGoOn({ state, processes }: ClusterStatus): boolean {
  const lives = (wanted: string): boolean => processes.some(({ name, alive }) => name === wanted && alive)
  return state !== undefined && (state.node !== 'real' || (lives('containerd') && lives('kubelet')))
}

/** Returns variables that make kubectl, nats and fairlead use the cluster; kubectl comes first in PATH. */
export function developmentEnvironment(status: ClusterStatus, env: Environment): Record<string, string> {
  const { dir, running, state } = status
  if (!running || !state) {
    const inDir = dir === defaultClusterDir(env) ? '' : ` --dir ${dir}`
    throw new Error(`${faultOf(status)} \`fairlead local up${inDir}\``)
  }
  return {
    KUBECONFIG: state.kubeconfig,
    ...(state.natsUrl ? { NATS_URL: state.natsUrl } : {}),
    PATH: withFirst(join(dir, 'bin'), env['PATH'] ?? ''),
  }
}

function faultOf({ dir, processes }: ClusterStatus): string {
  if (processes.length === 0) return `no local cluster runs in ${dir}: start it with`
  const dead = processes.filter(({ alive }) => !alive).map(({ name }) => name)
  if (dead.length === 0) return `the local cluster in ${dir} is being started: wait for it with`
  return `${dead.join(', ')} of the local cluster in ${dir} died (logs in ${join(dir, 'log')}): start it again with`
}

/**
 * Replaces the exports after an error: the eval fails, and KUBECONFIG names a server that does not answer. With an
 * empty KUBECONFIG, kubectl would use the cluster of ~/.kube/config.
 */
export const asFailingShell = ({ dir }: ClusterStatus): string =>
  `${asShellExports({ KUBECONFIG: join(dir, 'kubeconfig') })}false\n`

/** Returns the exports for `eval "$(fairlead local env)"`. */
export function asShellExports(variables: Record<string, string>): string {
  const quoted = (value: string): string => `'${value.replaceAll("'", `'\\''`)}'`
  return Object.entries(variables)
    .map(([name, value]) => `export ${name}=${quoted(value)}\n`)
    .join('')
}

function withFirst(folder: string, path: string): string {
  const others = path.split(delimiter).filter((entry) => entry !== '' && entry !== folder)
  return [folder, ...others].join(delimiter)
}
