import { hash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from '#contracts'
import {
  type ClusterAccess,
  createKubeClient,
  type KubeClient,
  type KubeRequest,
  kubeConfigPaths,
  loadForeignKubeConfig,
  loadInCluster,
  loadKubeConfig,
  type RequestReport,
  resourcePath,
  type TokenSource,
} from '#kube'
import type { Config } from './config.ts'
import { UsageError } from './exit.ts'
import { version } from './version.ts'

export const USER_AGENT = `fairlead/${version} (${process.platform}/${process.arch})`
const NAMESPACES = { group: '', version: 'v1', resource: 'namespaces' }
/** More than etcd stores of an object. Who answers is not known before. */
const NAMESPACE_BYTES = 2 * 2 ** 20

/** Connects to the API server of the kubeconfig; in a pod without one, to the API server of the pod's cluster. */
export async function openKube(config: Config, onRequest?: (request: RequestReport) => void): Promise<KubeClient> {
  return createKubeClient({
    ...(await accessOf(config)),
    userAgent: USER_AGENT,
    onRequest,
  })
}

/** Returns the access that `openKube` uses. */
async function accessOf(config: Config): Promise<ClusterAccess> {
  if (config.byAgent)
    throw new UsageError(
      `cluster ${config.cluster} is reached by its agents, so there is no kubeconfig for this: run the command without --cluster, with a kubeconfig of that cluster`,
    )
  const { KUBECONFIG, KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, foreignKubeConfig } = config
  if (foreignKubeConfig !== undefined) return loadForeignKubeConfig(foreignKubeConfig)
  return KUBECONFIG === undefined && host !== undefined && port !== undefined
    ? loadInCluster({ host, port, now: Date.now })
    : loadKubeConfig({ paths: kubeConfigPaths(KUBECONFIG, homedir()), context: config.context })
}

/**
 * Returns a function that reads the access again when it may have changed. A kubeconfig with a plugin is read again only
 * when its own text has changed, because each reading runs the plugin, which renews its credentials by itself.
 */
function followedAccess(config: Config): () => Promise<ClusterAccess> {
  let plugin: { digest: string; access: ClusterAccess } | undefined
  return async () => {
    const text = await textOf(config)
    const digest = hash('sha256', text)
    if (digest === plugin?.digest) return plugin.access
    const access = await accessOf(config)
    plugin = /\bexec"?\s*:/.test(text) ? { digest, access } : undefined
    return access
  }
}

/** Returns what connections to the API server are made of. A new token is not part of it. */
function connectionOf({ token: _token, agent: _agent, ...connection }: ClusterAccess): object {
  return connection
}

/** Returns what the access is read from, without what a pod has from its kubelet. */
async function textOf({ KUBECONFIG, foreignKubeConfig }: Config): Promise<string> {
  if (foreignKubeConfig !== undefined) return foreignKubeConfig.text
  const files = kubeConfigPaths(KUBECONFIG, homedir()).map((path) => readFile(path, 'utf8').catch(() => ''))
  return (await Promise.all(files)).join('\n')
}

/** How long a token of a kubeconfig is used before its file is read again. */
const READ_AGAIN_MS = 60_000

/** Connects to the API server of a kubeconfig, and follows a new token in it: connections and watches stay open. */
export async function openFollowedKube(
  config: Config,
  onRequest?: (request: RequestReport) => void,
): Promise<KubeClient> {
  const read = followedAccess(config)
  let access = await read()
  let readAt = performance.now()
  const token: TokenSource = async (rejected) => {
    if (rejected !== undefined || performance.now() - readAt > READ_AGAIN_MS) {
      readAt = performance.now()
      // A file that is missing for a moment changes nothing.
      const now = await read().catch(() => access)
      // The token of another server is not for this one.
      if (isDeepStrictEqual(connectionOf(now), connectionOf(access))) access = now
    }
    return access.token?.(rejected)
  }
  return createKubeClient({ ...access, ...(access.token && { token }), userAgent: USER_AGENT, onRequest })
}

/** Returns a function that reads what connections to the API server are made of. */
export function followedConnection(config: Config): () => Promise<object> {
  if (config.byAgent) return async () => ({})
  const read = followedAccess(config)
  return async () => connectionOf(await read())
}

/**
 * Returns the UID of kube-system, which identifies the cluster in events: every cluster has this namespace, and it
 * cannot be deleted.
 */
export async function clusterId(
  kube: KubeClient,
  options: Pick<KubeRequest, 'timeoutMs' | 'signal' | 'alone'> = {},
): Promise<string> {
  const path = resourcePath(NAMESPACES, undefined, 'kube-system')
  const { metadata } = await kube.request<KubeObject>({ method: 'GET', path, maxBytes: NAMESPACE_BYTES, ...options })
  return metadata.uid ?? ''
}

/** At the address of a cluster, another one answers. */
export class AnotherClusterError extends Error {
  override readonly name = 'AnotherClusterError'
}

/** `id`: of the cluster that was there before. */
export function requireSameCluster(now: string, id: string): void {
  if (now !== id)
    throw new AnotherClusterError(`another cluster answers: its namespace kube-system has UID ${now}, not ${id}`)
}
