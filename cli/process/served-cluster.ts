import type { Logger } from 'pino'
import type { FunctionAccess, IgnoredSignal } from '#dispatch'
import { type StoredEventReport, shownKey, viewRuns, viewUsage } from '#events'
import type { KubeClient, RequestReport } from '#kube'
import type { SlotShare } from '#queue'
import type { Reconciler } from '#sdk'
import type { Config } from './config.ts'
import { openStreams, type Streams } from './connections.ts'
import { openHistory, type RunHistory } from './history.ts'
import type { Guard } from './isolation.ts'
import { openFollowedKube, openKube } from './kube.ts'
import { certificateGauge, createMetrics, depthGauges, type Metrics, storageGauges } from './metrics.ts'
import { bridgeGauges } from './run-metrics.ts'
import { createRuntime, type Runtime, type RuntimeOptions } from './runtime.ts'
import type { TraceKeeper } from './tracing.ts'
import { openUsage, usageMetrics } from './usage.ts'
import { type CpuAccount, UsageMeter } from './usage-meter.ts'

/** What all clusters of a process share. */
export interface ProcessShare {
  parts: RuntimeOptions['parts']
  functions: readonly Reconciler[]
  access: readonly FunctionAccess[]
  guard: Pick<Guard, 'invoke'>
  traces: TraceKeeper | undefined
  cpu: CpuAccount
  apiConcurrency: number
  log: Logger
  /** Called with the client of a cluster before it is served, for example to install. */
  prepare?: (kube: KubeClient, log: Logger) => Promise<void>
  /** Returns the revision of the functions. */
  revision: (kube: KubeClient) => Promise<string | undefined>
  /** Called when a call of a function ignores its signal. */
  ignored: (call: IgnoredSignal) => void
}

/** How the process serves one cluster. */
export interface ServeTerms {
  /** The name of the cluster in metrics, log lines and failures of functions. Left out: it is the only one. */
  name?: string
  labels?: Readonly<Record<string, string>>
  /** Keys that are held at the same time. */
  slots: number | undefined | SlotShare
  /** The memory limit of the indexes of related objects, in bytes. Default 128 MiB. */
  indexBytes?: () => number
  /** The part of the objects that all runs of a process may hold; 1: it has only this cluster. */
  stateShare?: number
  /** The number of concurrent lists. Default 8. */
  listsAtOnce?: number
  onRequest?: (request: RequestReport) => void
  /** Called with the client before anything else is opened. */
  admit?: (kube: KubeClient) => Promise<void>
  /** See RuntimeOptions. */
  lost: NonNullable<RuntimeOptions['lost']>
  /** Repeats an attempt while its servers do not answer. */
  whenThere?: <T>(open: () => Promise<T>) => Promise<T>
}

/** One cluster, with all that serves it. */
export interface ServedCluster extends AsyncDisposable {
  kube: KubeClient
  streams: Streams
  runtime: Runtime
  history: RunHistory | undefined
  registry: Metrics['registry']
}

/** The name of the parts of a process, in its log and in NATS. */
export const roleOf = ({ bridge, dispatch }: RuntimeOptions['parts']): string =>
  bridge && dispatch ? 'up' : bridge ? 'bridge' : 'dispatch'

async function kubeOf(
  config: Config,
  name: string | undefined,
  onRequest: (request: RequestReport) => void,
): Promise<KubeClient> {
  if (!config.byAgent) return (name === undefined ? openKube : openFollowedKube)(config, onRequest)
  const { openAgentKube } = await import('./agent-link.ts')
  return openAgentKube(config, onRequest)
}

/** Connects to a cluster and opens its streams. Nothing is served before `runtime.run()`. */
export async function openServed(config: Config, of: ProcessShare, terms: ServeTerms): Promise<ServedCluster> {
  await using opened = new AsyncDisposableStack()
  const { parts, functions } = of
  const { name, slots, stateShare = 1, whenThere = (open) => open() } = terms
  const log = name === undefined ? of.log : of.log.child({ cluster: name })
  const metrics = createMetrics(name)
  const meter = new UsageMeter(of.cpu)
  const requested = (request: RequestReport) => {
    metrics.onRequest(request)
    meter.requested()
    terms.onRequest?.(request)
  }
  const kube = opened.use(await whenThere(() => kubeOf(config, name, requested)))
  await terms.admit?.(kube)
  metrics.start(functions.map((one) => one.name))
  const certificates = certificateGauge(metrics.registry, config.NATS_CERT)
  const stored = (event: StoredEventReport) => meter.storedEvent(event)
  const { indexBytes } = terms
  const options = { slots, indexBytes, observer: metrics.queue, stored, certificates, raiseReplicas: parts.bridge }
  const streams = opened.use(await whenThere(() => openStreams(config, kube, roleOf(parts), log, options)))
  // The streams belong to this cluster: nothing is written into another one that was named by mistake.
  const { prepare } = of
  if (prepare) await whenThere(() => prepare(kube, log))
  const { js, events, queue, dead } = streams
  depthGauges(metrics.registry, queue, dead)
  const usage = openUsage(config, streams, meter, { raiseReplicas: parts.bridge, log })
  usageMetrics(metrics.registry, usage)
  const views = [viewRuns(js, config.FAIRLEAD_PREFIX), viewUsage(js, config.FAIRLEAD_PREFIX)]
  const streamNames = [events, queue, dead, ...views].map(({ stream }) => stream)
  storageGauges(metrics.registry, streamNames, (stream) => js.usage(stream), config.FAIRLEAD_STORAGE_MAX_BYTES)
  const history = openHistory(config, streams, {
    raiseReplicas: parts.bridge,
    dropped: metrics.runDropped,
    sent: (record, bytes) => meter.storedRun(record, bytes),
    log,
  })
  const runtime = createRuntime({
    kube,
    traces: of.traces,
    streams,
    parts,
    functions,
    shard: config.FAIRLEAD_SHARD,
    invoke: (one) => of.guard.invoke(one, name),
    apiConcurrency: of.apiConcurrency,
    access: of.access,
    runRates: config.FAIRLEAD_RUN_RATES,
    revision: parts.dispatch ? await of.revision(kube) : undefined,
    maxStateBytes: config.FAIRLEAD_MAX_STATE_MIB * 2 ** 20,
    stateShare,
    listsAtOnce: terms.listsAtOnce,
    cluster: name === undefined ? undefined : { name, labels: terms.labels ?? {} },
    log,
    lost: terms.lost,
    ignored: of.ignored,
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
  bridgeGauges(metrics.registry, () => runtime.bridge?.status())
  const resources = opened.move()
  return {
    kube,
    streams,
    runtime,
    history,
    registry: metrics.registry,
    [Symbol.asyncDispose]: () => resources.disposeAsync(),
  }
}
