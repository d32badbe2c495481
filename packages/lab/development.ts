import { mkdirSync } from 'node:fs'
import { connect } from 'node:net'
import { homedir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { createKubeClient, kubeConfigPaths, loadKubeConfig } from '#kube'
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

/** Servers that the user names in the environment. They are used instead of local ones. */
export interface ExistingServers {
  /** KUBECONFIG as it is set: one file, or several separated by colons. */
  kubeconfig?: string
  natsUrl?: string
}

const TIMEOUT_MS = 5000

/** NATS_URL names a server that does not answer. */
class NatsUrlError extends Error {
  override readonly name = 'NatsUrlError'
}

/**
 * Returns the servers that KUBECONFIG and NATS_URL name, after checking that they answer. An error names the variable,
 * its value and the fix.
 */
export async function existingServers(env: Record<string, string | undefined>): Promise<ExistingServers> {
  const [kubeconfig, natsUrl] = [env['KUBECONFIG'], env['NATS_URL']]
  await Promise.all([
    kubeconfig ? usable('KUBECONFIG', kubeconfig, kubernetesAnswers(kubeconfig)) : undefined,
    natsUrl ? usable('NATS_URL', natsUrl, natsAnswers(natsUrl)) : undefined,
  ])
  return { ...(kubeconfig ? { kubeconfig } : {}), ...(natsUrl ? { natsUrl } : {}) }
}

async function usable(variable: string, value: string, answers: Promise<void>): Promise<void> {
  try {
    await answers
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.trim() : String(cause)
    const wayOut = `Unset ${variable} to have a server of its own started on this machine instead.`
    throw new Error(`${variable}=${value} cannot be used: ${reason.replace(/\.$/, '')}. ${wayOut}`, { cause })
  }
}

async function kubernetesAnswers(kubeconfig: string): Promise<void> {
  const access = await loadKubeConfig({ paths: kubeConfigPaths(kubeconfig, homedir()) })
  await using kube = createKubeClient({ ...access, userAgent: 'fairlead-local', timeoutMs: TIMEOUT_MS })
  await kube.request({ method: 'GET', path: '/version' })
}

/** One reachable server is enough, as for a client. */
async function natsAnswers(urls: string): Promise<void> {
  const attempts = urls.split(',').map((url) => portAnswers(new URL(url.includes('://') ? url : `nats://${url}`)))
  await Promise.any(attempts).catch((error: AggregateError) => {
    const [cause] = error.errors as Error[]
    throw new NatsUrlError(cause?.message, { cause })
  })
}

function portAnswers({ hostname, port }: URL): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port || 4222), timeout: TIMEOUT_MS })
    const end = (settle: () => void): void => {
      socket.destroy()
      settle()
    }
    socket.once('connect', () => end(resolve))
    socket.once('error', (error) => end(() => reject(error)))
    socket.once('timeout', () => end(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} s`))))
  })
}
