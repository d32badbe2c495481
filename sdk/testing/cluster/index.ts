import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { RunObserver } from '#dispatch'
import { install, PROCESS_ACCOUNT } from '#install'
import {
  createKubeClient,
  isForbidden,
  isNotFound,
  type KubeClient,
  kubeConfigPaths,
  loadKubeConfig,
  resourcePath,
} from '#kube'
import { type Cluster, type ClusterOptions, startCluster } from '#lab'
import { type Config, readConfig } from '#process/config'
import { openStreams, type Streams } from '#process/connections'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { createRuntime } from '#process/runtime'
import type { Kind, KubeObject, ObservedBy, Reconciler } from '#sdk'
import { SYSTEM_NAMESPACE } from '#spec'

/**
 * The options of `runOperators`. `timeoutSeconds` (30) limits each wait.
 *
 * @example
 * import type { OperatorOptions } from 'fairlead/testing/cluster'
 * const options: OperatorOptions = { controllers: true, timeoutSeconds: 60 }
 * options.timeoutSeconds // => 60
 */
export type OperatorOptions = Pick<ClusterOptions, 'node' | 'controllers' | 'audit' | 'progress'> & {
  /** Existing servers to use instead of new ones. They remain, and so do the installed objects. */
  use?: { kubeconfig: string; natsUrl: string }
  /** Called at each step of each run. */
  observer?: RunObserver
  /**
   * The time-out of each wait, in seconds.
   *
   * @default 30
   */
  timeoutSeconds?: number
}

const GRACE_MS = 5000

/**
 * Runs reconcilers against real servers of their own: etcd, kube-apiserver and nats-server, built on first use. With
 * `controllers` the reconcilers have only the rights that are generated from their declarations; without it they have
 * all rights. Rejects if they are not served within `timeoutSeconds`. Disposing stops the servers.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * import { runOperators } from 'fairlead/testing/cluster'
 * import { Website, website } from './website.ts'
 * await using operators = await runOperators([website])
 * await operators.create(Website, Website.of({ metadata: { name: 'hello' }, spec: { html: 'hi' } }))
 * const page = await operators.until(ConfigMap, 'hello', (found) => found !== undefined)
 * page?.data // => { 'index.html': 'hi' }
 */
export async function runOperators(
  reconcilers: readonly Reconciler[],
  options: OperatorOptions = {},
): Promise<RunningOperators> {
  const resources = new AsyncDisposableStack()
  try {
    const cluster = options.use === undefined ? resources.use(await ownCluster(options)) : undefined
    const config = configOf(options.use ?? { kubeconfig: cluster?.kubeconfig ?? '', natsUrl: cluster?.nats?.url ?? '' })
    const log = await createLogger(config)
    const kube = resources.use(await openKube(config))
    await install(kube, reconcilers)
    // The garbage collector looks for new kinds every 30 s, and ignores kinds that it does not know.
    if (options.controllers === true) await cluster?.restart('kube-controller-manager')
    const own = options.controllers === true ? resources.use(await openWithGeneratedRights(config, kube)) : kube
    const streams = resources.use(await openStreams(config, kube, 'test', log))
    const operators = new RunningOperators(kube, cluster, options.timeoutSeconds ?? 30, resources)
    await operators.serve(reconcilers, { kube: own, streams, log, runObserver: options.observer })
    return operators
  } catch (error) {
    await resources.disposeAsync()
    throw error
  }
}

/**
 * Connects as the account of a process that is both bridge and dispatcher. Needs the controller manager, which
 * aggregates the rules of its roles.
 */
async function openWithGeneratedRights(config: Config, admin: KubeClient): Promise<KubeClient> {
  const { token } = (
    await admin.create<{ status: { token: string } }>(
      resourcePath(
        { group: '', version: 'v1', resource: 'serviceaccounts' },
        SYSTEM_NAMESPACE,
        PROCESS_ACCOUNT,
        'token',
      ),
      { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} },
    )
  ).status
  const { cert: _, key: __, ...server } = await loadKubeConfig({ paths: kubeConfigPaths(config.KUBECONFIG, '') })
  return createKubeClient({ ...server, token: async () => token, userAgent: 'fairlead-test' })
}

const configOf = ({ kubeconfig, natsUrl }: { kubeconfig: string; natsUrl: string }): Config =>
  readConfig({ LOG_LEVEL: 'error', KUBECONFIG: kubeconfig, NATS_URL: natsUrl, FAIRLEAD_LEASE_SECONDS: '3' })

async function ownCluster({ node, controllers = false, audit, progress }: OperatorOptions) {
  const cluster = await startCluster({
    dir: await mkdtemp(join(tmpdir(), 'fl-')),
    dieWithParent: true,
    temporary: true,
    controllers,
    ...(node && { node }),
    ...(audit && { audit }),
    ...(progress && { progress }),
  })
  return Object.assign(cluster, { [Symbol.asyncDispose]: () => cluster.stop() })
}

/** The connections and settings that reconcilers work with. */
interface Work {
  kube: KubeClient
  streams: Streams
  log: Logger
  runObserver: RunObserver | undefined
}

async function mayWatch(kube: KubeClient, reconcilers: readonly Reconciler[]): Promise<boolean> {
  for (const { for: primary } of reconcilers)
    try {
      await kube.list(resourcePath(primary), { limit: 1 }).next()
    } catch (error) {
      if (!isForbidden(error)) throw error
      return false
    }
  return true
}

/**
 * Reconcilers that run in this process. An object without a namespace is created in `default`.
 *
 * @example
 * import { runOperators, type RunningOperators } from 'fairlead/testing/cluster'
 * import { Website, website } from './website.ts'
 * await using operators: RunningOperators = await runOperators([website])
 * const missing = await operators.get(Website, 'missing')
 * missing // => undefined
 */
export class RunningOperators implements AsyncDisposable {
  readonly kube: KubeClient
  /** Undefined with existing servers. */
  readonly cluster: Cluster | undefined
  readonly #timeoutSeconds: number
  readonly #resources: AsyncDisposableStack

  constructor(kube: KubeClient, cluster: Cluster | undefined, timeoutSeconds: number, resources: AsyncDisposableStack) {
    this.kube = kube
    this.cluster = cluster
    this.#timeoutSeconds = timeoutSeconds
    this.#resources = resources
  }

  /** Resolves when all of the reconcilers are served. */
  async serve(reconcilers: readonly Reconciler[], { kube, streams, log, runObserver }: Work): Promise<void> {
    await this.#wait(() => mayWatch(kube, reconcilers), 'the rights to watch the reconciled objects')
    const runtime = createRuntime({
      kube,
      streams,
      parts: { bridge: true, dispatch: true },
      functions: reconcilers,
      apiConcurrency: 10,
      log,
      ...(runObserver && { runObserver }),
    })
    const stop = new AbortController()
    const running = runtime.run(stop.signal, GRACE_MS)
    this.#resources.defer(async () => {
      stop.abort()
      await running
    })
    const served = (): boolean => reconcilers.every(({ name }) => runtime.dispatcher?.serving().includes(name))
    await this.#wait(async () => served(), `${reconcilers.map(({ name }) => name).join(', ')} to be served`)
  }

  async create(kind: Kind<unknown>, object: KubeObject): Promise<KubeObject> {
    return this.kube.create(resourcePath(kind, object.metadata.namespace ?? 'default'), object)
  }

  async get<K extends Kind<unknown>>(kind: K, name: string, namespace = 'default'): Promise<ObservedBy<K> | undefined> {
    const found = await this.kube.get(resourcePath(kind, namespace, name)).catch((error: unknown) => {
      if (isNotFound(error)) return undefined
      throw error
    })
    return found && (kind.parse(found) as ObservedBy<K>)
  }

  async list<K extends Kind<unknown>>(kind: K, namespace = 'default'): Promise<ObservedBy<K>[]> {
    const all: KubeObject[] = []
    for await (const { items } of this.kube.list(resourcePath(kind, namespace))) all.push(...items)
    return all.map((found) => kind.parse(found) as ObservedBy<K>)
  }

  /** Merges the patch into an object; into its status with `subresource: 'status'`. */
  async patch(
    kind: Kind<unknown>,
    name: string,
    patch: object,
    { namespace = 'default', subresource }: { namespace?: string; subresource?: string } = {},
  ): Promise<KubeObject> {
    return this.kube.patch(resourcePath(kind, namespace, name, subresource), patch, 'merge')
  }

  async delete(kind: Kind<unknown>, name: string, namespace = 'default'): Promise<void> {
    await this.kube.delete(resourcePath(kind, namespace, name), { propagationPolicy: 'Background' })
  }

  /**
   * Resolves with the object as soon as it satisfies the condition; undefined stands for a missing object. Rejects
   * after `timeoutSeconds` with its current state.
   */
  async until<K extends Kind<unknown>>(
    kind: K,
    name: string,
    holds: (found: ObservedBy<K> | undefined) => boolean,
    namespace = 'default',
  ): Promise<ObservedBy<K> | undefined> {
    let found: ObservedBy<K> | undefined
    const look = async (): Promise<boolean> => holds((found = await this.get(kind, name, namespace)))
    await this.#wait(look, `${kind.kind} ${name}`, () => `; it is ${JSON.stringify(found)}`)
    return found
  }

  async #wait(look: () => Promise<boolean>, what: string, last: () => string = () => ''): Promise<void> {
    const end = performance.now() + this.#timeoutSeconds * 1000
    while (!(await look())) {
      if (performance.now() > end) throw new Error(`waited ${this.#timeoutSeconds} s for ${what} in vain${last()}`)
      await sleep(50)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync()
  }
}
