import { randomBytes } from 'node:crypto'
import { type Invoke, type KubeObject, type ResourceRef, type RunLog, type Runnable, resourceName } from '#contracts'
import type { DeadMessage, EventStore, StoredCursor, StoredEvent } from '#events'
import type { KubeClient } from '#kube'
import { repeat } from '#primitives'
import type { WorkQueue } from '#queue'
import { SettledWrites, sameJson } from '#reconcile'
import { RECONCILERS } from '#spec'
import { EventRecorder } from './apply/event-recorder.ts'
import { InFlight } from './apply/in-flight.ts'
import { ownerIn } from './apply/write-origin.ts'
import { Gate } from './gate.ts'
import type { FunctionAccess } from './http/function-access.ts'
import { Adoptions } from './observe/adoptions.ts'
import { createObjectCache } from './observe/object-cache.ts'
import { References } from './observe/references.ts'
import { MAX_STATE_BYTES, StateBudget } from './observe/state-budget.ts'
import type { ReconciliationDependencies } from './run/dependencies.ts'
import { type FunctionCall, FunctionCalls, type IgnoredSignal } from './run/function-calls.ts'
import { seedsFrom } from './run/seed.ts'
import type { EndedRun } from './run/trail.ts'
import type { RunObserver } from './run-steps.ts'
import { Identities } from './serve/identities.ts'
import { ReconcilerLifecycle } from './serve/reconciler-lifecycle.ts'

const RETRY_MS = 1000

export interface DispatcherOptions {
  kube: KubeClient
  events: EventStore
  queue: WorkQueue
  /** By the name of their Reconciler. */
  functions: ReadonlyMap<string, Invoke>
  /** Names this process in Events, at most 128 characters. */
  instance: string
  /** API requests in flight, of all reconcilers together. Default 10. */
  apiConcurrency?: number
  /** What one run may read, as JSON; all runs together hold six times as much at most. Default 16 MiB. */
  maxStateBytes?: number | undefined
  observer?: RunObserver
  /** Told of each run that has ended: must be quick and must not throw. Left out: nobody keeps the history. */
  ended?: ((run: EndedRun) => void) | undefined
  /** An Event of this reconciler is not written, because 1,000 of its Events wait. */
  eventDropped?: ((reconciler: string) => void) | undefined
  /** Somebody keeps traces: API requests carry their place in one. Default false. */
  sampled?: boolean
  /** Keeps what nobody can run; resolves when it is kept. Left out: such keys are parked. */
  deadLetter?: (dead: DeadMessage) => Promise<void>
  /** Of `functions`, e.g. the digest of this process's image: by another one every object runs again. */
  revision?: string | undefined
  /** How the servers of functions over HTTP are reached. Left out: without credentials. */
  access?: readonly FunctionAccess[]
  /** A call goes on long after its signal was aborted. Its key runs nowhere until it ends, or this process. */
  ignored?: ((call: IgnoredSignal) => void) | undefined
  log: RunLog
  now?: () => Date
  random?: () => number
  /** Must be cryptographically secure: functions draw secrets from it. */
  randomBytes?: (size: number) => Buffer
}

/**
 * Serves what Reconciler objects ask for. After the signal it takes no more keys; runs that do not end within the grace are
 * aborted, and their keys handed back to the queue.
 */
export interface Dispatcher extends Runnable {
  /**
   * The version, or a later one, was written through by a run of this process that holds its lease, or held it to its end: the
   * run decides again on it, or is repeated by the queue. So the watch's echo of it is no reason for another run. Of a run
   * that has lost its lease, and of other processes' runs, this says nothing: a newer run may have begun before the write
   * arrived, and the process may die before it queues the key again.
   */
  needsNoRun(write: { reconciler: string; key: string; origin: string }): boolean
  /** The traceparent of the run that is writing the object at this moment: the watch may report the write before EVENTS has it. */
  traceOf(ref: ResourceRef, object: KubeObject): string | undefined
  /** Resolves when EVENTS has what a run is writing to the object at this moment; undefined: no run writes to it. */
  written(ref: ResourceRef, object: KubeObject): Promise<void> | undefined
  /** Calls of functions that have not ended; after run(): that have ignored their signal. */
  calls(): FunctionCall[]
  /** Reconcilers that are served now. */
  serving(): string[]
}

export function createDispatcher(options: DispatcherOptions): Dispatcher {
  return new LiveDispatcher(options)
}

class LiveDispatcher implements Dispatcher {
  readonly #options: DispatcherOptions
  readonly #deps: ReconciliationDependencies & { recorder: EventRecorder }
  readonly #lifecycles = new Map<string, ReconcilerLifecycle>()
  readonly #cursors = new Map<string, StoredCursor>()
  readonly #identities = new Identities()

  constructor(options: DispatcherOptions) {
    const { kube, events, instance, log, now = () => new Date(), random = Math.random } = options
    const gate = new Gate(options.apiConcurrency ?? 10)
    const { eventDropped = () => undefined } = options
    this.#options = options
    this.#deps = {
      kube,
      events,
      gate,
      references: new References({ kube, events, gate, cache: createObjectCache(), account: '' }),
      adoptions: new Adoptions({ kube, gate }),
      state: new StateBudget(options.maxStateBytes ?? MAX_STATE_BYTES),
      settled: new SettledWrites(),
      calls: new FunctionCalls(options.ignored),
      recorder: new EventRecorder({ gate, instance, now, dropped: eventDropped, log }),
      now,
      random,
      seed: seedsFrom(options.randomBytes ?? randomBytes),
      inFlight: new InFlight(),
      sampled: options.sampled ?? false,
      observe: options.observer ?? (() => undefined),
      ended: options.ended,
      deadLetter: options.deadLetter,
    }
  }

  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    await Promise.all([
      this.#keepFollowing(signal, () => this.#followReconcilers(signal)),
      this.#keepFollowing(signal, () => this.#followCursors(signal)),
    ])
    await Promise.all([...this.#lifecycles.values()].map((lifecycle) => lifecycle.stop(graceMs)))
    await this.#deps.recorder.flush()
  }

  needsNoRun({ reconciler, key, origin }: { reconciler: string; key: string; origin: string }): boolean {
    const owner = ownerIn(origin, reconciler, key)
    return owner !== undefined && this.#lifecycles.get(reconciler)?.worker?.needsNoRun(owner) === true
  }

  traceOf(ref: ResourceRef, object: KubeObject): string | undefined {
    return this.#deps.inFlight.traceOf(ref, object)
  }

  written(ref: ResourceRef, object: KubeObject): Promise<void> | undefined {
    return this.#deps.inFlight.ended(ref, object)
  }

  calls(): FunctionCall[] {
    return this.#deps.calls.underWay
  }

  serving(): string[] {
    return [...this.#lifecycles].filter(([, { worker }]) => worker !== undefined).map(([name]) => name)
  }

  #lifecycleOf(name: string): ReconcilerLifecycle {
    const { events, queue, log, functions, revision, access = [] } = this.#options
    // A resource is watched at once, or in each of the Reconciler's namespaces.
    const isSynced = (ref: ResourceRef, id: string, namespaces: readonly string[] = []) => {
      const isCoveredIn = (scope?: string) => isCovered(this.#cursors.get(scopeName(ref, scope)), id)
      return isCoveredIn() || (namespaces.length > 0 && namespaces.every(isCoveredIn))
    }
    const lifecycle =
      this.#lifecycles.get(name) ??
      new ReconcilerLifecycle(name, {
        ...this.#deps,
        cluster: events.cluster,
        queue,
        invoke: functions.get(name),
        revision,
        access,
        log,
        isSynced,
        identityHolder: () => this.#identities.holderOf(name),
        absent: (object) => this.#noteIdentity({ verb: 'deleted', object }),
      })
    this.#lifecycles.set(name, lifecycle)
    return lifecycle
  }

  async #followReconcilers(signal: AbortSignal): Promise<void> {
    const reconciler = { ref: RECONCILERS }
    for await (const event of this.#options.events.follow(reconciler, signal, () => this.#allKnown())) {
      if (event.verb === 'moved') continue
      this.#noteIdentity(event)
      this.#lifecycleOf(event.object.metadata.name).reconcilerChanged(event)
    }
  }

  /** Others that share its identity may have to be served now, or not any more. */
  #noteIdentity(event: Pick<StoredEvent, 'verb' | 'object'>): void {
    for (const name of this.#identities.update(event)) this.#lifecycleOf(name).reconsider()
  }

  /** A Reconciler must not be served before it is known whether an older one has its identity. */
  #allKnown(): void {
    this.#identities.complete()
    for (const lifecycle of this.#lifecycles.values()) lifecycle.reconsider()
  }

  async #followCursors(signal: AbortSignal): Promise<void> {
    for await (const cursor of this.#options.events.followCursors(signal)) {
      const name = scopeName(cursor.ref, cursor.scope)
      const before = this.#cursors.get(name)
      this.#cursors.set(name, cursor)
      if (!sameJson(cursor.covers, before?.covers) || before === undefined)
        for (const lifecycle of this.#lifecycles.values()) lifecycle.reconsider()
    }
  }

  #keepFollowing(signal: AbortSignal, follow: () => Promise<void>): Promise<void> {
    const failed = (error: unknown) => this.#options.log.warn({ err: error }, 'following EVENTS failed, trying again')
    return repeat(follow, { signal, everyMs: RETRY_MS, failed })
  }
}

const scopeName = (ref: ResourceRef, scope = ''): string => `${resourceName(ref)} ${scope}`

/** A cursor that does not say for whom it holds, holds for everybody. */
const isCovered = (cursor: StoredCursor | undefined, id: string): boolean =>
  cursor !== undefined && (cursor.covers === undefined || cursor.covers.includes(id))
