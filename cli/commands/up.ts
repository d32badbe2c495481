import { flushCompileCache } from 'node:module'
import { keyOf, type StoredEventReport, shownKey, viewRuns, viewUsage } from '#events'
import type { Config } from '#process/config'
import { openStreams, retryWhileUnreachable } from '#process/connections'
import { dieBecause, endInTime, IgnoredSignalError, untilStopped } from '#process/exit'
import { forcedInstall, loadFunctions, readFunctionAccess, type Selection } from '#process/functions'
import { openHistory } from '#process/history'
import { guardFunctions } from '#process/isolation'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { certificateGauge, createMetrics, depthGauges, serveMetrics, storageGauges } from '#process/metrics'
import { createRuntime, ownRevision, type RuntimeOptions, releaseMemoryWhenIdle } from '#process/runtime'
import { openTraceKeeper } from '#process/tracing'
import { openUsage, usageMetrics } from '#process/usage'
import { UsageMeter } from '#process/usage-meter'

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

/** Runs `up`, `bridge` and `dispatch`: one program with different parts. */
export async function up(config: Config, parts: RuntimeOptions['parts'], options: UpOptions): Promise<void> {
  const log = await createLogger(config)
  const metrics = createMetrics()
  const meter = new UsageMeter()
  const functions = await loadFunctions(options)
  if (parts.dispatch && functions.length === 0)
    log.warn(
      'no functions are selected: only functions over HTTP are called; -f FILE and --builtin NAMES select others',
    )
  const access = await readFunctionAccess(config.FAIRLEAD_FUNCTION_ACCESS)
  await using kube = await openKube(config, (request) => {
    metrics.onRequest(request)
    meter.requested()
  })
  const whenThere = <T>(open: () => Promise<T>) => retryWhileUnreachable(options.waitSeconds, log, open)
  const { FAIRLEAD_SHARD: shard } = config
  if (options.install) {
    const { install, withDeclared } = await import('#install')
    const forcedBy = forcedInstall(options, config)
    const installed = await whenThere(async () =>
      install(kube, await withDeclared(kube, functions, { refuses: (line) => log.error(line) }), {
        ...options,
        forcedBy,
        shard,
      }),
    )
    for (const one of installed) log.debug(one, 'installed')
    const counts = [...Map.groupBy(installed, ({ result }) => result)].map(([result, { length }]) => [result, length])
    log.info(Object.fromEntries(counts), 'installed')
  }
  metrics.start(functions.map(({ name }) => name))
  const { concurrency: slots } = options
  const certificates = certificateGauge(metrics.registry, config.NATS_CERT)
  const stored = (event: StoredEventReport) => meter.storedEvent(event)
  const shared = { slots, observer: metrics.queue, stored, certificates, raiseReplicas: parts.bridge }
  const open = () => openStreams(config, kube, role(parts), log, shared)
  await using streams = await whenThere(open)
  const { js, events, queue, dead } = streams
  depthGauges(metrics.registry, queue, dead)
  const usage = openUsage(config, streams, meter, { raiseReplicas: parts.bridge, log })
  usageMetrics(metrics.registry, usage)
  const views = [viewRuns(js, config.FAIRLEAD_PREFIX), viewUsage(js, config.FAIRLEAD_PREFIX)]
  const streamNames = [events, queue, dead, ...views].map(({ stream }) => stream)
  storageGauges(metrics.registry, streamNames, (stream) => js.usage(stream), config.FAIRLEAD_STORAGE_MAX_BYTES)
  const fatal = dieBecause(process.env)
  using guard = guardFunctions({
    files: options.function,
    leaseMs: config.FAIRLEAD_LEASE_SECONDS * 1000,
    log,
    fatal,
    async blocked({ reconciler, object, message: why }) {
      const [name = '', namespace] = object.split('/').reverse()
      runtime.dispatcher?.lost({ reconciler, key: keyOf(namespace, name), why })
      await history?.flush()
    },
  })
  const revision = parts.dispatch ? await ownRevision(kube, config, log) : undefined
  await using traces = await openTraceKeeper(process.env, log)
  const history = openHistory(config, streams, {
    raiseReplicas: parts.bridge,
    dropped: metrics.runDropped,
    sent: (record, bytes) => meter.storedRun(record, bytes),
    log,
  })
  const runtime = createRuntime({
    kube,
    traces,
    streams,
    parts,
    functions,
    shard,
    invoke: guard.invoke,
    apiConcurrency: options.apiConcurrency,
    access,
    runRates: config.FAIRLEAD_RUN_RATES,
    revision,
    maxStateBytes: config.FAIRLEAD_MAX_STATE_MIB * 2 ** 20,
    log,
    lost: fatal,
    ignored: ({ key, ...call }) => {
      log.error({ ...call, key: shownKey(key) }, 'a function ignores its signal: this process ends to free the key')
      stop.abort(new Error('a function ignores its signal'))
    },
    bridgeObserver: metrics.bridge,
    eventDropped: metrics.eventDropped,
    declared: metrics.declared,
    history,
    usage: { meter, store: usage },
    runObserver: (step) => {
      metrics.run(step)
      log.debug({ ...step, key: shownKey(step.key) }, 'run')
    },
  })
  const server =
    options.listen === undefined
      ? undefined
      : await serveMetrics(options.listen, metrics.registry, {
          status: () => runtime.bridge?.status(),
          troubles: () => runtime.troubles(),
        })
  using _heap = releaseMemoryWhenIdle()
  const stop = untilStopped()
  endInTime(stop.signal, options.graceSeconds, fatal)
  log.info(
    {
      role: role(parts),
      functions: functions.map(({ name }) => name),
      server: kube.host,
      nats: streams.js.nc.getServer(),
    },
    'started',
  )
  // Node.js writes the compile cache at the exit. A killed process would never write it, and each start would compile
  // again.
  flushCompileCache()
  await runtime.run(stop.signal, options.graceSeconds * 1000)
  log.info({ role: role(parts), because: (stop.signal.reason as Error).message }, 'stopped')
  server?.close()
  const held = runtime.dispatcher?.calls() ?? []
  if (held.length === 0) return
  const names = held.slice(0, MAX_NAMES).map(({ reconciler, key }) => `${reconciler} ${shownKey(key)}`)
  throw new IgnoredSignalError(
    `${held.length} calls of functions have ignored their signals, their keys run again when their leases end: ${names.join(', ')}`,
  )
}

const role = ({ bridge, dispatch }: RuntimeOptions['parts']): string =>
  bridge && dispatch ? 'up' : bridge ? 'bridge' : 'dispatch'
