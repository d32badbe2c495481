import { flushCompileCache } from 'node:module'
import type { Logger } from 'pino'
import type { RunLog, Runnable } from '#contracts'
import { keyOf, shownKey } from '#events'
import type { KubeClient } from '#kube'
import type { Config } from '#process/config'
import { retryWhileUnreachable } from '#process/connections'
import { dieBecause, endInTime, IgnoredSignalError, UsageError, untilStopped } from '#process/exit'
import { forcedInstall, loadFunctions, readFunctionAccess, type Selection } from '#process/functions'
import { guardFunctions } from '#process/isolation'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { type Health, serveMetrics } from '#process/metrics'
import { openJetStream } from '#process/nats'
import { ownRevision, type Runtime, type RuntimeOptions, releaseMemoryWhenIdle } from '#process/runtime'
import { openServed, type ProcessShare, roleOf, type ServedCluster } from '#process/served-cluster'
import { openTraceKeeper } from '#process/tracing'
import { cpuAccount } from '#process/usage-meter'

export interface UpOptions extends Selection {
  install?: boolean
  revision?: string
  listen?: string
  apiConcurrency: number
  concurrency?: number
  graceSeconds: number
  waitSeconds: number
}

const MAX_NAMES = 20
/** The default of --concurrency, for a bridge, which has no such option. */
const SLOTS = 1000

/** What the process runs: one cluster, or all of a file. */
interface Running extends Pick<Runtime, 'run'> {
  health: Health
  metrics: Parameters<typeof serveMetrics>[1]
  /** What the log line of the start tells about it. */
  told: object
  served: (cluster: string | undefined) => ServedCluster | undefined
  /** The calls of functions that have not ended after run(). */
  calls: () => { reconciler: string; key: string }[]
}

/** Returns a further part of a process that serves one cluster. */
export type Beside = (served: ServedCluster, log: RunLog) => Runnable

/** What is left after the end, such as the look-up of a name or a plugin that does not answer, is not waited for. */
const LEFT_MS = 1000

/** Runs `up`, `bridge`, `dispatch` and `agent`: one program with different parts. */
export async function up(
  config: Config,
  parts: RuntimeOptions['parts'],
  options: UpOptions,
  beside?: Beside,
): Promise<void> {
  if (config.byAgent && parts.bridge)
    throw new UsageError(`the bridge of cluster ${config.cluster} is in its agents: run dispatch`)
  await serve(config, parts, options, beside)
  setTimeout(() => process.exit(), LEFT_MS).unref()
}

async function serve(
  config: Config,
  parts: RuntimeOptions['parts'],
  options: UpOptions,
  beside: Beside | undefined,
): Promise<void> {
  const log = await createLogger(config)
  const functions = await loadFunctions(options)
  if (parts.dispatch && functions.length === 0)
    log.warn(
      'no functions are selected: only functions over HTTP are called; -f FILE and --builtin NAMES select others',
    )
  const access = await readFunctionAccess(config.FAIRLEAD_FUNCTION_ACCESS)
  const fatal = dieBecause(process.env)
  let running: Running | undefined
  using guard = guardFunctions({
    files: options.function,
    leaseMs: config.FAIRLEAD_LEASE_SECONDS * 1000,
    log,
    fatal,
    async blocked({ reconciler, object, cluster, message: why }) {
      const [name = '', namespace] = object.split('/').reverse()
      const served = running?.served(cluster)
      served?.runtime.dispatcher?.lost({ reconciler, key: keyOf(namespace, name), why })
      await served?.history?.flush()
    },
  })
  await using traces = await openTraceKeeper(process.env, log)
  const share: ProcessShare = {
    parts,
    functions,
    access,
    guard,
    traces,
    cpu: cpuAccount(),
    apiConcurrency: options.apiConcurrency,
    log,
    ...(options.install && {
      prepare: (kube, ofCluster) => installAll(kube, { config, options, functions, log: ofCluster }),
    }),
    revision: (kube) => ownRevision(kube, config, log),
    ignored: ({ key, ...call }) => {
      log.error({ ...call, key: shownKey(key) }, 'a function ignores its signal: this process ends to free the key')
      stop.abort(new Error('a function ignores its signal'))
    },
  }
  await using resources = new AsyncDisposableStack()
  const { FAIRLEAD_CLUSTERS: file } = config
  running =
    file === undefined
      ? await oneCluster(config, share, { options, fatal, resources, beside })
      : await allClusters(config, share, { options, file })
  const { listen } = options
  const server = listen === undefined ? undefined : await serveMetrics(listen, running.metrics, running.health)
  using _heap = releaseMemoryWhenIdle()
  const stop = untilStopped()
  endInTime(stop.signal, options.graceSeconds, fatal)
  log.info({ role: roleOf(parts), functions: functions.map(({ name }) => name), ...running.told }, 'started')
  // Node.js writes the compile cache at the exit. A killed process would never write it, and each start would compile
  // again.
  flushCompileCache()
  await running.run(stop.signal, options.graceSeconds * 1000)
  log.info({ role: roleOf(parts), because: (stop.signal.reason as Error).message }, 'stopped')
  server?.close()
  const held = running.calls()
  if (held.length === 0) return
  const names = held.slice(0, MAX_NAMES).map(({ reconciler, key }) => `${reconciler} ${shownKey(key)}`)
  throw new IgnoredSignalError(
    `${held.length} calls of functions have ignored their signals, their keys run again when their leases end: ${names.join(', ')}`,
  )
}

interface OneCluster {
  options: UpOptions
  fatal: (error: Error) => void
  resources: AsyncDisposableStack
  beside: Beside | undefined
}

/** The process ends with its cluster: it waits for it at the start, and is started again when a stream is lost. */
async function oneCluster(
  config: Config,
  share: ProcessShare,
  { options, fatal, resources, beside }: OneCluster,
): Promise<Running> {
  const whenThere = <T>(open: () => Promise<T>) => retryWhileUnreachable(options.waitSeconds, share.log, open)
  const served = resources.use(await openServed(config, share, { slots: options.concurrency, lost: fatal, whenThere }))
  const { kube, streams, runtime, registry } = served
  const running: Runnable[] = beside === undefined ? [runtime] : [runtime, beside(served, share.log)]
  return {
    run: async (signal, graceMs) => void (await Promise.all(running.map((part) => part.run(signal, graceMs)))),
    health: runtime,
    metrics: registry,
    told: { server: kube.host, nats: streams.js.nc.getServer() },
    served: () => served,
    calls: () => runtime.dispatcher?.calls() ?? [],
  }
}

/** The process waits for NATS at the start, and for no cluster. */
async function allClusters(
  config: Config,
  share: ProcessShare,
  { options, file }: { options: UpOptions; file: string },
): Promise<Running> {
  const [{ configOf, readClusters }, { Fleet }] = await Promise.all([
    import('#process/clusters'),
    import('#process/fleet'),
  ])
  const { log } = share
  const list = await readClusters(file)
  const entries = list.clusters
  const ofEntries = entries.length === 0 ? [config] : entries.map((entry) => configOf(config, entry))
  const nats = await retryWhileUnreachable(options.waitSeconds, log, () => answering(ofEntries, roleOf(share.parts)))
  const revision = share.parts.dispatch ? await revisionHere(config, log) : undefined
  const fleet = new Fleet({
    file,
    list,
    config,
    share: { ...share, revision: async () => revision },
    slots: options.concurrency ?? SLOTS,
    log,
  })
  return {
    run: (signal, graceMs) => fleet.run(signal, graceMs),
    health: { troubles: () => fleet.troubles(), lines: () => fleet.lines() },
    metrics: fleet.metrics,
    told: { clusters: config.cluster ?? entries.map(({ name }) => name), nats },
    served: (cluster) => (cluster === undefined ? undefined : fleet.served(cluster)),
    calls: () => fleet.calls(),
  }
}

/** Returns the server of NATS that accepts one of the users: without the certificate of one cluster, the others are served. */
async function answering(configs: readonly Config[], role: string): Promise<string> {
  let refused: unknown
  for (const [, one] of new Map(configs.map((each) => [each.NATS_CERT, each]))) {
    try {
      await using js = await openJetStream(one, role)
      return js.nc.getServer()
    } catch (error) {
      refused ??= error
    }
  }
  throw refused
}

/** The pod of this process is in the cluster that it runs in, which may be none of the file. */
async function revisionHere(config: Config, log: RunLog): Promise<string | undefined> {
  const isInPod = config.KUBERNETES_SERVICE_HOST !== undefined && config.POD_NAME !== undefined
  if (!isInPod || config.FAIRLEAD_REVISION !== undefined) return config.FAIRLEAD_REVISION
  await using kube = await openKube({ ...config, KUBECONFIG: undefined })
  return ownRevision(kube, config, log)
}

interface Installing {
  config: Config
  options: UpOptions
  functions: ProcessShare['functions']
  log: Logger
}

async function installAll(kube: KubeClient, { config, options, functions, log }: Installing): Promise<void> {
  const { install, withDeclared } = await import('#install')
  const { FAIRLEAD_SHARD: shard } = config
  const forcedBy = forcedInstall(options, config)
  const declared = await withDeclared(kube, functions, { refuses: (line) => log.error(line) })
  const installed = await install(kube, declared, { ...options, forcedBy, shard })
  for (const one of installed) log.debug(one, 'installed')
  const counts = [...Map.groupBy(installed, ({ result }) => result)].map(([result, { length }]) => [result, length])
  log.info(Object.fromEntries(counts), 'installed')
}
