import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { type Bridge, type BridgeObserver, createBridge, sweepOrphanedKeys, troubles } from '#bridge'
import type { Invoke, KubeObject, ResourceRef } from '#contracts'
import { createDispatcher, type Dispatcher, type FunctionAccess, type IgnoredSignal, type RunObserver } from '#dispatch'
import type { Streams } from '#host/connections'
import { createTracing, type TraceKeeper } from '#host/tracing'
import { incarnationOf, type StreamLostError, Watermark } from '#jetstream'
import type { KubeClient } from '#kube'
import { type Reconciler, toInvoke } from '#sdk'
import { createNatsHealth } from './nats-health.ts'

export interface RuntimeOptions {
  kube: KubeClient
  streams: Streams
  /** Which parts this process has. */
  parts: { bridge: boolean; dispatch: boolean }
  functions: readonly Reconciler[]
  /** Left out: called as they are. */
  invoke?: (reconciler: Reconciler) => Invoke
  apiConcurrency: number
  /** Of `functions`; undefined: not known. */
  revision?: string | undefined
  /** Left out: functions over HTTP are called without credentials. */
  access?: readonly FunctionAccess[]
  /** What one run may read, as JSON. */
  maxStateBytes?: number
  log: Logger
  /** Left out: nobody keeps traces. */
  traces?: TraceKeeper
  bridgeObserver?: BridgeObserver
  runObserver?: RunObserver
  /** Called when a call of a function ignores its signal. */
  ignored?: (call: IgnoredSignal) => void
  eventDropped?: (reconciler: string) => void
  /** Called when somebody has deleted or emptied a stream: this process cannot go on. */
  lost?: (error: StreamLostError) => void
  now?: () => Date
}

export interface Runtime {
  bridge: Bridge | undefined
  dispatcher: Dispatcher | undefined
  /** Why it does not do its work now; nothing: it does. */
  troubles(): string[]
  /** Works until the signal, then finishes what is in flight within the grace and gives the rest back. */
  run(signal: AbortSignal, graceMs: number): Promise<void>
}

/** Bridge and dispatcher of this process, wired to each other where both are here. */
export function createRuntime({
  kube,
  streams,
  parts,
  functions,
  invoke = toInvoke,
  apiConcurrency,
  revision,
  access = [],
  maxStateBytes,
  log,
  traces,
  ignored,
  lost,
  now = () => new Date(),
  ...observers
}: RuntimeOptions): Runtime {
  const { js, events, queue, dead } = streams
  // Dispatchers may not write there.
  const incarnation = incarnationOf(js, [events, queue], { marks: parts.bridge })
  const natsHealth = createNatsHealth(incarnation, now, lost)
  const deadLetter = dead.put.bind(dead)
  const { keep, sample } = traces ?? { keep: undefined, sample: () => false }
  const writing = (ref: ResourceRef, object: KubeObject) => dispatcher?.traceOf(ref, object)
  const tracing = createTracing({ keep, sample, writing, now: Date.now })
  const dispatcher: Dispatcher | undefined = parts.dispatch
    ? createDispatcher({
        kube,
        events,
        queue,
        functions: new Map(functions.map((one) => [one.name, invoke(one)])),
        instance: `${hostname()}-${process.pid}`.slice(-128),
        apiConcurrency,
        revision,
        access,
        maxStateBytes,
        deadLetter,
        ignored,
        log,
        sampled: keep !== undefined,
        eventDropped: observers.eventDropped,
        observer: (step) => {
          tracing.run(step)
          observers.runObserver?.(step)
        },
      })
    : undefined
  const bridge = parts.bridge
    ? createBridge({
        kube,
        events,
        queue,
        log,
        incarnation,
        watermark: new Watermark(js, queue),
        settled: dispatcher && ((echo) => dispatcher.needsNoRun(echo)),
        trace: (change) => tracing.ofChange(change),
        observer: {
          ...observers.bridgeObserver,
          published: (change) => {
            tracing.bridge(change)
            observers.bridgeObserver?.published?.(change)
          },
        },
      })
    : undefined

  return {
    bridge,
    dispatcher,
    troubles: () => [...natsHealth.troubles(), ...(bridge ? troubles(bridge.status(), now()) : [])],
    async run(signal, graceMs) {
      await Promise.all([
        natsHealth.run(signal),
        bridge?.run(signal),
        bridge && sweepOrphanedKeys({ kube, queue, deadLetter, orphans: bridge.orphanedKeys, log }, signal),
        dispatcher?.run(signal).then(() => dispatcher.drain(graceMs)),
      ])
    },
  }
}
