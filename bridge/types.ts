import type { KubeObject, ResourceRef, RunLog, Runnable } from '#contracts'
import type { EventStore, PutResult, TakeTrigger, Verb } from '#events'
import type { KubeClient } from '#kube'
import type { Safety, WorkQueue } from '#queue'
import type { ReconcilerSpec } from '#spec'
import type { FailureKind, Relist, State } from './watch-state.ts'

/** Marks in WORK, each behind the keys that this process enqueued before it. */
export interface Watermark {
  readonly lostSignal: AbortSignal
  raise(): Promise<string>
  holds(mark: string): Promise<boolean>
  onLoss(listener: () => void): void
}

export interface BridgeDeps {
  kube: KubeClient
  events: EventStore
  queue: Pick<WorkQueue, 'declare' | 'enqueue' | 'announce' | 'find' | 'isServed'>
  /** Serves only the Reconcilers whose label names this shard. Left out: those without the label. */
  shard?: string
  log: RunLog
  /**
   * Returns the incarnation of the server that keeps the streams. After a change of it, everything is listed and
   * enqueued again, because a server without replicas may have lost the last messages that it confirmed. Left out:
   * never.
   */
  incarnation?: () => Promise<string>
  /**
   * Rejects if another cluster answers now. It is asked before each list and each watch, because nothing of another
   * cluster may be compared with EVENTS. Left out: it is not asked.
   */
  requireCluster?: (signal: AbortSignal) => Promise<void>
  /** The marks of WORK. A cursor is valid as long as WORK has the mark that the cursor names. Left out: always. */
  watermark?: Watermark
  /** Left out: every change causes a run. */
  ownWrites?: OwnWrites
  /** Left out: a change has no trace, unless a run of this process causes it. */
  tracer?: ChangeTracer
  observer?: BridgeObserver
  /** Receives triggers until the signal. Left out: none are received. */
  triggers?: (take: TakeTrigger, signal: AbortSignal) => Promise<void>
  /**
   * The time after which unused data is deleted from EVENTS, and the interval of the search. Left out: an hour, every
   * minute.
   */
  sweep?: { staleMs: number; everyMs: number }
  /** See NamedKinds. */
  staysMs?: number
  /** See OrphanedFinalizersDeps. */
  orphans?: { everyMs: number; keepMs: number }
  /** A watch is opened again after this time without data, in seconds. Left out: 75. */
  silenceSeconds?: number
  /** The number of concurrent lists. Left out: 8. */
  listsAtOnce?: number | undefined
  now?: () => Date
  random?: () => number
}

/** The writes of this process's own runs, which the watch reports as changes. */
export interface OwnWrites {
  /** Whether a run of this key has written this version and decides again on it, so that no other run is necessary. */
  needsNoRun(echo: Echo): boolean
  /**
   * Returns the traceparent of the run that is writing the object at this moment. The watch may report the write before
   * its answer.
   */
  traceOf(ref: ResourceRef, object: KubeObject): string | undefined
  /** Resolves when EVENTS has the write of a run to the object at this moment. Undefined: no run writes to it. */
  written(ref: ResourceRef, object: KubeObject): Promise<void> | undefined
}

/** Traces the changes that no run of this process makes. */
export interface ChangeTracer {
  /** Begins the trace of a change before it is stored. Returns its traceparent (W3C Trace Context). */
  begin(object: KubeObject): string
}

/** A change that a run has written, for a key that it concerns. */
export interface Echo {
  reconciler: string
  key: string
  /** The origin that the writer gave to EventStore.put(). */
  origin: string
}

/** Receives facts for metrics and timelines. A resource is named as in resourceName(). */
export interface BridgeObserver {
  /** The watch has reported a change. */
  seen?: (change: SeenChange) => void
  /** The change is stored, and its keys are enqueued. `ms`: the time since it was observed. */
  published?: (change: SeenChange & { outcome: PutResult['outcome']; ms: number }) => void
  enqueued?: (key: EnqueuedKey) => void
  /** A change is an echo, so the key is not queued. */
  dropped?: (key: { reconciler: string; key: string }) => void
  /** Data of a watch or of a streamed list has been received. */
  received?: (event: { resource: string; bytes: number }) => void
  /** A watch or list was interrupted. */
  interrupted?: (event: { resource: string; failure: FailureKind }) => void
  relisted?: (event: RelistReport & { resource: string; because: Relist }) => void
}

interface EnqueuedKey {
  reconciler: string
  key: string
  lane: 'high' | 'low'
  /**
   * Where the key is kept. `run`: only an active run in this process has it. If that run ends without reading it, the
   * key is reported again with its new place.
   */
  by: Safety
  /** The changed object. Left out if it is neither the primary nor owned by it. */
  object?: KubeObject
}

export interface SeenChange {
  ref: ResourceRef
  verb: Verb
  object: KubeObject
}

export interface RelistReport {
  /** The number of objects in the list. */
  objects: number
  /** The number of listed objects that EVENTS did not have in this version. */
  changed: number
  /** The number of objects that EVENTS had and the list does not have. */
  deleted: number
}

/** The state of one watched resource, for health checks and conditions. */
export interface ResourceStatus {
  /** The name as in resourceName(). */
  resource: string
  /** Left out: all namespaces. */
  namespace: string | undefined
  phase: State['phase']
  /** The time at which it entered this phase. */
  since: Date
  /**
   * Whether the resource was listed completely, stored and enqueued at least once, for every Reconciler that asks for
   * it now.
   */
  synced: boolean
  /** The Reconcilers, by coverageId(), for which all objects are stored and enqueued. */
  covers: readonly string[]
  /** The position up to which everything is stored and enqueued. */
  resourceVersion: string | undefined
  /** The newest position of the watch. A quiet watch receives a bookmark about every minute. */
  latestResourceVersion: string | undefined
  /** The time since which the oldest unconfirmed change waits. */
  heldBackSince: Date | undefined
  lastEventAt: Date | undefined
  /** Whether the API server has answered the watch, and the watch has not ended. */
  open: boolean
  /** The time since which the request for the watch waits for its answer. */
  unansweredSince: Date | undefined
  /** The time of the last data from the API server: a complete list, the answer to a watch, a change, a bookmark. */
  heardAt: Date | undefined
  /** The time since which no list and no watch has succeeded. */
  failingSince: Date | undefined
  /** The number of changes that are read and not confirmed. It grows to a limit while NATS does not answer. */
  unconfirmed: number
  /** The failure of the last list or watch, until one succeeds. */
  failure: { kind: FailureKind; message: string } | undefined
}

/** A Reconciler that does not exist, and the objects that have its finalizer. */
export interface OrphanStatus {
  reconciler: string
  /** The name as in resourceName(). */
  resource: string
  /** The number of objects that have the finalizer. */
  holders: number
  /** The number of these objects that are being deleted. */
  waiting: number
}

export interface OrphanedKeys {
  /** Whether objects may have the finalizer of this Reconciler, which does not exist. Then its queue stays. */
  isHeld(reconciler: string): boolean
  /** Returns whether the object of the key is being deleted and waits for the finalizer, or no longer waits. */
  stateOf(reconciler: string, key: string): 'waits' | 'released' | undefined
}

export interface BridgeStatus {
  resources: ResourceStatus[]
  orphans: OrphanStatus[]
  /** The names of the Reconcilers with `spec.paused`. */
  paused: string[]
  /** The Reconcilers that are not served, and the reasons. */
  refused: { name: string; reason: string; message: string }[]
}

/** `spec` is the same value until the Reconciler says something else. */
export interface DeclaredReconciler {
  name: string
  spec: ReconcilerSpec
}

/**
 * Reads no more after the signal. Changes that were read have the grace to be confirmed by NATS, 1.5 s at most. Then
 * the cursors are written. The next start reads unconfirmed changes again.
 */
export interface Bridge extends Runnable {
  status(): BridgeStatus
  /** The Reconcilers of this shard that are valid. Undefined until they have been listed. */
  reconcilers(): readonly DeclaredReconciler[] | undefined
  /** Makes all bridges list everything again, because EVENTS may have objects of another cluster. */
  unlist(): Promise<void>
  readonly orphanedKeys: OrphanedKeys
}
