import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { type Bridge, type BridgeObserver, createBridge, createOrphanedKeySweeper, troubles } from '#bridge'
import type { Invoke, Runnable } from '#contracts'
import { createDispatcher, type Dispatcher, type FunctionAccess, type IgnoredSignal, type RunObserver } from '#dispatch'
import type { Streams } from '#host/connections'
import type { RunHistory } from '#host/history'
import { createTracing, type TraceKeeper } from '#host/tracing'
import { incarnationOf, type StreamLostError, Watermark } from '#jetstream'
import type { KubeClient } from '#kube'
import { type Reconciler, toInvoke } from '#sdk'
import { createNatsHealth } from './nats-health.ts'

export interface RuntimeOptions {
  kube: KubeClient
  streams: Streams
  /** The parts that this process runs. */
  parts: { bridge: boolean; dispatch: boolean }
  functions: readonly Reconciler[]
  /** Serves only the Reconcilers whose label names this shard. Left out: those without the label. */
  shard?: string | undefined
  /** Default: functions are called directly. */
  invoke?: (reconciler: Reconciler) => Invoke
  apiConcurrency: number
  /** The revision of `functions`; undefined if it is unknown. */
  revision?: string | undefined
  /** Default: functions over HTTP are called without credentials. */
  access?: readonly FunctionAccess[]
  /** The size limit of the objects that one run reads, in bytes of JSON. */
  maxStateBytes?: number
  log: Logger
  /** Default: traces are not exported. */
  traces?: TraceKeeper
  bridgeObserver?: BridgeObserver
  runObserver?: RunObserver
  /** Default: runs are not recorded. */
  history?: RunHistory | undefined
  /** Called when a call of a function ignores its signal. */
  ignored?: (call: IgnoredSignal) => void
  eventDropped?: (reconciler: string) => void
  /** Called when a stream was deleted or emptied: this process cannot continue. */
  lost?: (error: StreamLostError) => void
  now?: () => Date
}

export interface Runtime extends Runnable {
  bridge: Bridge | undefined
  dispatcher: Dispatcher | undefined
  /** The reasons why the process does not work at the moment; empty if it works. */
  troubles(): string[]
}

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
  maxStateBytes,
  log,
  traces,
  ignored,
  lost,
  history,
  now = () => new Date(),
  ...observers
}: RuntimeOptions): Runtime {
  const { js, events, queue, dead } = streams
  // Only bridges write there; dispatchers do not have the permission.
  const incarnation = incarnationOf(js, [events, queue], { marks: parts.bridge })
  const natsHealth = createNatsHealth(incarnation, now, lost)
  const deadLetter = dead.put.bind(dead)
  const { keep, sample } = traces ?? { keep: undefined, sample: () => false }
  const tracing = createTracing({ keep, sample, now: Date.now })
  const dispatcher = parts.dispatch
    ? createDispatcher({
        kube,
        events,
        queue,
        functions: new Map(functions.map((one) => [one.name, invoke(one)])),
        shard,
        instance: `${hostname()}-${process.pid}`.slice(-128),
        apiConcurrency,
        revision,
        access,
        maxStateBytes,
        deadLetter,
        ignored,
        log,
        sampled: keep !== undefined,
        ended: history && ((run) => history.ended(run)),
        eventDropped: observers.eventDropped,
        observer: (step) => {
          tracing.run(step)
          history?.step(step)
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
        log,
        incarnation,
        watermark: new Watermark(js, queue),
        ownWrites: dispatcher,
        tracer: tracing,
        observer: {
          ...observers.bridgeObserver,
          published: (change) => {
            tracing.bridge(change)
            observers.bridgeObserver?.published?.(change)
          },
        },
      })
    : undefined
  const orphanedKeys =
    bridge && createOrphanedKeySweeper({ kube, queue, shard, deadLetter, orphans: bridge.orphanedKeys, log })
  const runnables: Runnable[] = [natsHealth, bridge, orphanedKeys, dispatcher, history].filter(
    (part) => part !== undefined,
  )

  return {
    bridge,
    dispatcher,
    troubles: () => [...natsHealth.troubles(), ...(bridge ? troubles(bridge.status(), now()) : [])],
    async run(signal, graceMs) {
      await Promise.all(runnables.map((part) => part.run(signal, graceMs)))
    },
  }
}
