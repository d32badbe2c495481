import type { KubeObject, ResourceRef, RunLog, Runnable } from '#contracts'
import type { EventStore, PutResult, Verb } from '#events'
import type { KubeClient } from '#kube'
import type { Safety, WorkQueue } from '#queue'
import type { FailureKind } from './failure.ts'
import type { Relist, State } from './watch-state.ts'

/** Marks in WORK, behind what this process has enqueued. */
export interface Watermark {
  readonly certain: AbortSignal
  raise(): Promise<string>
  holds(mark: string): Promise<boolean>
  onDoubt(listener: () => void): void
}

export interface BridgeOptions {
  kube: KubeClient
  events: EventStore
  queue: Pick<WorkQueue, 'declare' | 'enqueue' | 'announce'>
  log: RunLog
  /**
   * Which life of the server that keeps the streams this is. After another answer than before, everything is listed
   * and enqueued again: a server without replicas may have lost what it had confirmed last. Left out: never.
   */
  incarnation?: (() => Promise<string>) | undefined
  /** Of WORK: a cursor is good for as long as WORK has the mark that it names. Left out: always. */
  watermark?: Watermark | undefined
  /** Left out: every change makes a run. */
  ownWrites?: OwnWrites | undefined
  /** Left out: a change has no trace, unless a run of this process makes it. */
  tracer?: ChangeTracer | undefined
  observer?: BridgeObserver | undefined
  /** When unused data is deleted from EVENTS, and how often it is looked for. Left out: after an hour, every minute. */
  sweep?: { staleMs: number; everyMs: number } | undefined
  /** See OrphanedFinalizersDeps. */
  orphans?: { everyMs: number; keepMs: number } | undefined
  /** A watch that has been silent for this time is opened again. Left out: 75. */
  silenceSeconds?: number | undefined
  now?: (() => Date) | undefined
  random?: (() => number) | undefined
}

/** What this process knows of the writes of its own runs, which the watch reports as changes. */
export interface OwnWrites {
  /** True: a run of this key has written this version, and decides again on it: no other run is necessary. */
  needsNoRun(echo: Echo): boolean
  /** The traceparent of the run that is writing the object at this moment: the watch may report the write first. */
  traceOf(ref: ResourceRef, object: KubeObject): string | undefined
  /** Resolves when EVENTS has what a run is writing to the object at this moment; undefined: no run writes to it. */
  written(ref: ResourceRef, object: KubeObject): Promise<void> | undefined
}

/** Traces the changes that no run of this process makes. */
export interface ChangeTracer {
  /** Begins the trace of a change that is about to be stored. Returns its traceparent (W3C Trace Context). */
  begin(object: KubeObject): string
}

/** A change that a run has written, for a key that it concerns. */
export interface Echo {
  reconciler: string
  key: string
  /** What EventStore.put() was given by the writer. */
  origin: string
}

/** For metrics and timelines. A resource is named as resourceName() does. */
export interface BridgeObserver {
  /** The watch gave a change. */
  seen?: ((change: SeenChange) => void) | undefined
  /** It is stored, and its keys are enqueued; `ms` since it was seen. */
  published?: ((change: SeenChange & { outcome: PutResult['outcome']; ms: number }) => void) | undefined
  enqueued?: ((key: EnqueuedKey) => void) | undefined
  /** A change is an echo: the key is not queued. */
  dropped?: ((key: { reconciler: string; key: string }) => void) | undefined
  /** Read from a watch or a streamed list. */
  received?: ((event: { resource: string; bytes: number }) => void) | undefined
  /** A watch or list ended otherwise than agreed. */
  interrupted?: ((event: { resource: string; failure: FailureKind }) => void) | undefined
  relisted?: ((event: RelistReport & { resource: string; because: Relist }) => void) | undefined
}

interface EnqueuedKey {
  reconciler: string
  key: string
  lane: 'high' | 'low'
  /** What keeps it. `run`: only the one under way here; should that not read it, this is told again of what else does. */
  by: Safety
  /** The object that has changed; left out: something else than a change of the primary or of what it owns. */
  object?: KubeObject
}

export interface SeenChange {
  ref: ResourceRef
  verb: Verb
  object: KubeObject
}

export interface RelistReport {
  /** Objects in the list. */
  objects: number
  /** Of these, how many EVENTS did not have in this version. */
  changed: number
  /** Objects that EVENTS had and the list has not. */
  deleted: number
}

/** One watched resource, as health checks and conditions want it. */
export interface ResourceStatus {
  /** As resourceName() names it. */
  resource: string
  /** Left out: all of them. */
  namespace: string | undefined
  phase: State['phase']
  /** When it entered this phase. */
  since: Date
  /** Listed completely, stored and enqueued at least once, for every Reconciler that asks for it now. */
  synced: boolean
  /** For which Reconcilers that holds, by coverageId(). */
  covers: readonly string[]
  /** Everything up to here is stored and enqueued. */
  resourceVersion: string | undefined
  /** The newest that the watch gave: a quiet one tells about each minute how far the server has come. */
  latestResourceVersion: string | undefined
  /** Since when the oldest change that is read and not confirmed waits. */
  heldBackSince: Date | undefined
  lastEventAt: Date | undefined
  /** The API server has answered the watch, which has not ended. */
  open: boolean
  /** Since when the request for the watch waits for its answer. */
  unansweredSince: Date | undefined
  /** When the API server said something last: a whole list, the answer to a watch, a change, a bookmark. */
  heardAt: Date | undefined
  /** Since when no list and no watch has succeeded any more. */
  failingSince: Date | undefined
  /** Changes read and not confirmed yet: grows to a bound while NATS does not answer. */
  unconfirmed: number
  /** Why the last list or watch failed, until one succeeds. */
  failure: { kind: FailureKind; message: string } | undefined
}

/** A Reconciler that does not exist, and what has its finalizer. */
export interface OrphanStatus {
  reconciler: string
  /** As resourceName() names it. */
  resource: string
  /** Objects that have the finalizer. */
  holders: number
  /** Of these, the objects that are being deleted. */
  waiting: number
}

export interface OrphanedKeys {
  /** Objects may have the finalizer of that Reconciler, which does not exist: its queue stays. */
  isHeld(reconciler: string): boolean
  /** The object of that key is being deleted and waits for the finalizer, or does not wait any more. */
  stateOf(reconciler: string, key: string): 'waits' | 'released' | undefined
}

export interface BridgeStatus {
  resources: ResourceStatus[]
  orphans: OrphanStatus[]
  /** Reconcilers that are not served, and why. */
  refused: { name: string; reason: string; message: string }[]
}

/**
 * After the signal it reads no more. What was read has the grace to be confirmed by NATS, 1.5 s at most, and the cursors are
 * written. What was not confirmed is read again by the next start.
 */
export interface Bridge extends Runnable {
  status(): BridgeStatus
  readonly orphanedKeys: OrphanedKeys
}
