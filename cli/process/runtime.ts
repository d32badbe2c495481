import { hostname } from 'node:os'
import { performance } from 'node:perf_hooks'
import { memoryUsage } from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type Bridge, type BridgeObserver, createBridge, createOrphanedKeySweeper, troubles } from '#bridge'
import type { Invoke, KubeObject, RunLog, Runnable } from '#contracts'
import {
  createDispatcher,
  type Dispatcher,
  type DispatcherDeps,
  type FunctionAccess,
  type IgnoredSignal,
  type RunObserver,
} from '#dispatch'
import { acceptTriggers } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { incarnationOf, StreamLostError, Watermark } from '#nats'
import { endedWithin, repeat } from '#primitives'
import type { RunRate } from '#queue'
import { type Reconciler, toInvoke } from '#sdk'
import type { Config } from './config.ts'
import type { Streams } from './connections.ts'
import { fixForMissing } from './functions.ts'
import type { RunHistory } from './history.ts'
import { type AnotherClusterError, clusterId, requireSameCluster } from './kube.ts'
import { createTracing, type TraceKeeper } from './tracing.ts'
import type { UsageStore } from './usage.ts'
import type { UsageMeter } from './usage-meter.ts'

export interface RuntimeOptions {
  kube: KubeClient
  streams: Streams
  /** The parts that this process runs. */
  parts: { bridge: boolean; dispatch: boolean }
  functions: readonly Reconciler[]
  /** Serves only the Reconcilers whose label names this shard. Left out: those without the label. */
  shard?: string
  /** Default: functions are called directly. */
  invoke?: (reconciler: Reconciler) => Invoke
  apiConcurrency: number
  /** The revision of `functions`; undefined if it is unknown. */
  revision?: string
  /** Default: functions over HTTP are called without credentials. */
  access?: readonly FunctionAccess[]
  /** Default: Reconcilers share no rate. */
  runRates?: readonly RunRate[]
  /** The size limit of the objects that one run reads, in bytes of JSON. */
  maxStateBytes?: number
  /** The part of the objects that all runs of a process may hold. Default 1. */
  stateShare?: number
  /** The number of concurrent lists. Default 8. */
  listsAtOnce?: number | undefined
  log: Logger
  /** The name and the labels of the cluster. Left out: the process serves only this one. */
  cluster?: { name: string; labels: Readonly<Record<string, string>> } | undefined
  /** Default: traces are not exported. */
  traces?: TraceKeeper | undefined
  bridgeObserver?: BridgeObserver
  runObserver?: RunObserver
  /** Default: runs are not recorded. */
  history?: RunHistory | undefined
  /** Default: nothing is metered. */
  usage?: { meter: UsageMeter; store: UsageStore }
  /** Called when a call of a function ignores its signal. */
  ignored?: (call: IgnoredSignal) => void
  eventDropped?: (reconciler: string) => void
  declared?: DispatcherDeps['declared']
  /** Called when a stream was deleted or emptied, or another cluster answers: this runtime cannot continue. */
  lost?: (error: StreamLostError | AnotherClusterError) => void
  now?: () => Date
}

export interface Runtime extends Runnable {
  bridge: Bridge | undefined
  dispatcher: Dispatcher | undefined
  /** The reasons why the process does not work at the moment; empty if it works. */
  troubles(): string[]
  /** Those of them that concern NATS. */
  natsTroubles(): string[]
}

/** How long the end of the process waits for NATS to store the last usage. */
const LAST_STORE_MS = 2000

/** Creates the bridge and the dispatcher of this process, connected to each other if it has both. */
export function createRuntime({
  kube,
  streams,
  parts,
  functions,
  shard = '',
  invoke = toInvoke,
  apiConcurrency,
  revision,
  access = [],
  runRates = [],
  maxStateBytes,
  stateShare,
  listsAtOnce,
  cluster,
  log,
  traces,
  ignored,
  lost,
  history,
  usage,
  now = () => new Date(),
  ...observers
}: RuntimeOptions): Runtime {
  const { js, events, queue, dead } = streams
  // Only bridges write there; dispatchers do not have the permission.
  const incarnation = incarnationOf(js, [events, queue], { creates: parts.bridge })
  const natsHealth = createNatsHealth(incarnation, now, lost)
  const deadLetter = dead.put.bind(dead)
  const requireCluster = async (signal: AbortSignal) => {
    // A connection that was kept may lead to the cluster that was there before.
    const id = await clusterId(kube, { signal, alone: true })
    try {
      requireSameCluster(id, events.cluster)
    } catch (error) {
      lost?.(error as AnotherClusterError)
      throw error
    }
  }
  const { keep, sample } = traces ?? { keep: undefined, sample: () => false }
  const attributes = cluster && { 'k8s.cluster.name': cluster.name }
  const tracing = createTracing({ keep, sample, attributes, now: Date.now })
  const metered = (name: string, call: Invoke) => usage?.meter.around(name, call) ?? call
  const dispatcher = parts.dispatch
    ? createDispatcher({
        kube,
        events,
        queue,
        functions: new Map(functions.map((one) => [one.name, metered(one.name, invoke(one))])),
        fixForMissing,
        shard,
        instance: `${hostname()}-${process.pid}`.slice(-128),
        apiConcurrency,
        revision,
        access,
        runRates,
        maxStateBytes,
        stateShare,
        cluster: cluster && { ...cluster, id: events.cluster },
        deadLetter,
        ignored,
        log,
        sampled: keep !== undefined,
        ended: history && ((run) => history.ended(run)),
        eventDropped: observers.eventDropped,
        declared: observers.declared,
        requested: usage && ((by) => usage.meter.requestedBy(by)),
        observer: (step) => {
          tracing.run(step)
          history?.step(step)
          usage?.meter.run(step)
          observers.runObserver?.(step)
        },
      })
    : undefined
  const bridge = parts.bridge
    ? createBridge({
        kube,
        events,
        queue,
        shard,
        listsAtOnce,
        log,
        incarnation,
        requireCluster,
        watermark: new Watermark(js, queue),
        ownWrites: dispatcher,
        tracer: tracing,
        triggers: (take, signal) => acceptTriggers(js, { root: events.root, log, signal }, take),
        observer: {
          ...observers.bridgeObserver,
          seen: (change) => {
            usage?.meter.seen()
            observers.bridgeObserver?.seen?.(change)
          },
          published: (change) => {
            tracing.bridge(change)
            usage?.meter.published(change)
            observers.bridgeObserver?.published?.(change)
          },
        },
      })
    : undefined
  const orphanedKeys =
    bridge && createOrphanedKeySweeper({ kube, queue, shard, deadLetter, orphans: bridge.orphanedKeys, log })
  const runnables: Runnable[] = [natsHealth, bridge, orphanedKeys, dispatcher, history, usage?.store].filter(
    (part) => part !== undefined,
  )

  return {
    bridge,
    dispatcher,
    natsTroubles: () => natsHealth.troubles(),
    troubles: () => [...natsHealth.troubles(), ...(bridge ? troubles(bridge.status(), now()) : [])],
    async run(signal, graceMs) {
      await Promise.all(runnables.map((part) => part.run(signal, graceMs)))
      if (usage) await endedWithin(LAST_STORE_MS, usage.store.end())
    },
  }
}

/** The process is idle if it spent less than IDLE_BELOW of this interval in code. */
const LOOK_EVERY_MS = 10_000
const IDLE_BELOW = 0.05
/** The growth that justifies the pause of a collection: both in bytes and as a part of the resident memory. */
const WORTH = { bytes: 64 * 2 ** 20, part: 0.25 }

export interface ResidentMemory {
  now: number
  /** The resident memory after the last full collection; 0 before the first one, since a start leaves much garbage. */
  before: number
}

export const isWorthCollecting = ({ now, before }: ResidentMemory): boolean =>
  now - before >= Math.max(WORTH.bytes, before * WORTH.part)

/**
 * Releases the memory of the start, and of each burst, once the process is idle. Node.js 24.21 never releases it: V8
 * releases memory only when its embedder reports idle time, and Node.js does not. The collection blocks the process for
 * 0.1 to 0.3 s with a heap of some hundred MiB, once after the start and after each burst.
 */
export function releaseMemoryWhenIdle(everyMs = LOOK_EVERY_MS): Disposable {
  let busy = performance.eventLoopUtilization()
  let before = 0
  const look = async () => {
    const { utilization } = performance.eventLoopUtilization(busy)
    busy = performance.eventLoopUtilization()
    if (utilization > IDLE_BELOW) return
    if (!isWorthCollecting({ now: memoryUsage.rss(), before })) return
    await collectAll()
    before = memoryUsage.rss()
  }
  const stop = () => clearInterval(timer)
  // Builds of Node.js without an inspector do not release memory.
  const timer = setInterval(() => void look().catch(stop), everyMs).unref()
  return { [Symbol.dispose]: stop }
}

/** Collects as for a heap snapshot, which also frees memory that V8 keeps for later use. */
async function collectAll(): Promise<void> {
  const { Session } = await import('node:inspector/promises')
  const session = new Session()
  session.connect()
  try {
    await session.post('HeapProfiler.collectGarbage')
  } finally {
    session.disconnect()
  }
}

/** The process is unhealthy after this time without an answer of NATS, for which a change may have to wait. */
const UNHEALTHY_AFTER_MS = 30_000
const ASK_EVERY_MS = 5000

export interface NatsHealth extends Runnable {
  /** Reports that NATS has not answered for half a minute; empty otherwise. */
  troubles(): string[]
}

/**
 * Checks whether NATS answers, even while there are no changes. `ask` rejects after its time-out, or with the error
 * that `lost` receives.
 */
export function createNatsHealth(
  ask: () => Promise<unknown>,
  now: () => Date,
  lost: (error: StreamLostError) => void = () => undefined,
): NatsHealth {
  let answeredAt = now()
  return {
    run(signal) {
      const askOnce = async () => {
        await ask()
        answeredAt = now()
      }
      // Other failures increase the age of the last answer.
      const failed = (error: unknown) => (error instanceof StreamLostError ? lost(error) : undefined)
      return repeat(askOnce, { signal, everyMs: ASK_EVERY_MS, failed })
    },
    troubles() {
      const isHealthy = now().getTime() - answeredAt.getTime() <= UNHEALTHY_AFTER_MS
      return isHealthy ? [] : [`NATS has not answered since ${answeredAt.toISOString()}`]
    },
  }
}

const PODS = { group: '', version: 'v1', resource: 'pods' }
/** The kubelet reports the image digest a second or two after the container has started. */
const TRIES = 10
const PAUSE_MS = 1000

interface Pod extends KubeObject {
  status?: { containerStatuses?: { name: string; imageID?: string }[] }
}

/**
 * Returns the revision of the functions in this process: from the environment, else the digest of its container's
 * image. Undefined if neither is known: then no change of the revision is detected.
 */
export async function ownRevision(
  kube: Pick<KubeClient, 'get'>,
  { FAIRLEAD_REVISION, POD_NAME, POD_NAMESPACE, POD_CONTAINER }: Config,
  log: Pick<RunLog, 'warn'>,
  pause: (ms: number) => Promise<unknown> = sleep,
): Promise<string | undefined> {
  if (FAIRLEAD_REVISION !== undefined) return FAIRLEAD_REVISION
  if (POD_NAME === undefined || POD_NAMESPACE === undefined || POD_CONTAINER === undefined) return undefined
  try {
    for (let left = TRIES; left > 0; left--) {
      const digest = digestIn(await kube.get<Pod>(resourcePath(PODS, POD_NAMESPACE, POD_NAME)), POD_CONTAINER)
      if (digest !== undefined) return digest
      await pause(PAUSE_MS)
    }
    log.warn({ pod: POD_NAME, container: POD_CONTAINER }, 'the image digest is not known: set FAIRLEAD_REVISION')
  } catch (error) {
    log.warn({ err: error }, 'the image digest cannot be read: a new revision of functions here is not noticed')
  }
  return undefined
}

function digestIn({ status }: Pod, container: string): string | undefined {
  const { imageID = '' } = status?.containerStatuses?.find(({ name }) => name === container) ?? {}
  return /sha256:[0-9a-f]{64}/.exec(imageID)?.[0]
}
