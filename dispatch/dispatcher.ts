import { randomBytes } from 'node:crypto'
import {
  type Invoke,
  type KubeObject,
  type ResourceRef,
  type RunInput,
  type RunLog,
  type Runnable,
  resourceName,
} from '#contracts'
import type { DeadMessage, EventStore, StoredCursor, StoredEvent } from '#events'
import type { KubeClient } from '#kube'
import { repeat } from '#primitives'
import type { RunRate, WorkQueue } from '#queue'
import { MAX_STATE_BYTES, type MetricChange, NoOpWrites, sameJson } from '#reconcile'
import { identityOf, RECONCILERS } from '#spec'
import { EventRecorder } from './apply/event-recorder.ts'
import { InFlight, ownerIn } from './apply/write-through.ts'
import { Gate, Outage } from './gate.ts'
import type { FunctionAccess } from './http/http-function.ts'
import { isCovered } from './observe/reconciler-version.ts'
import { Adoptions, createObjectCache, References } from './observe/references.ts'
import { StateBudget } from './observe/state-budget.ts'
import { type ReconciliationDeps, seedsFrom } from './run/dependencies.ts'
import { type FunctionCall, FunctionCalls, type IgnoredSignal } from './run/function-calls.ts'
import type { EndedRun, RunObserver } from './run/trail.ts'
import { ReconcilerLifecycle } from './serve/reconciler-lifecycle.ts'

const RETRY_MS = 1000

export interface DispatcherDeps {
  kube: KubeClient
  events: EventStore
  queue: WorkQueue
  /** The functions, by the name of their Reconciler. */
  functions: ReadonlyMap<string, Invoke>
  /**
   * Returns how a process like this one gets the function of a Reconciler that is not in `functions`. Undefined: it does
   * not have such a function.
   */
  fixForMissing?: (reconciler: string) => string | undefined
  /** Serves only the Reconcilers whose label names this shard. Left out: those without the label. */
  shard?: string
  /** The name of this process in Events, at most 128 characters. */
  instance: string
  /** The number of concurrent API requests of all reconcilers together. Default 10. */
  apiConcurrency?: number
  /**
   * The limit of the objects that one run may read, as JSON. All runs together hold six times as much at most. Default
   * 16 MiB.
   */
  maxStateBytes?: number
  /** The part of six times that limit which the runs of this dispatcher may hold, from 0.5 to 1. Default 1. */
  stateShare?: number
  observer?: RunObserver
  /** Receives each run that has ended. It must be quick and must not throw. Left out: no history is kept. */
  ended?: (run: EndedRun) => void
  /** What functions read about the cluster. Left out: the process serves only one. */
  cluster?: RunInput['cluster'] | undefined
  /** Called when an Event of this reconciler is not written, because 1,000 of its Events wait. */
  eventDropped?: (reconciler: string) => void
  /** Called when the serving of a Reconciler may have changed here. `has`: its declaration has the metric with these labels. */
  declared?: (reconciler: string, has: (metric: Pick<MetricChange, 'name' | 'labels'>) => boolean) => void
  /** Called after each request to the API server that is for a Reconciler. Its namespace is that of the primary. */
  requested?: (by: { reconciler: string; namespace?: string | undefined }) => void
  /** Traces are collected, so API requests carry their trace context. Default false. */
  sampled?: boolean
  /** Stores a key that no function can run. Resolves when it is stored. Left out: such keys are parked. */
  deadLetter?: (dead: DeadMessage) => Promise<void>
  /**
   * The revision of `functions`, e.g. the digest of this process's image. After a change of it every object runs again.
   */
  revision?: string
  /** The access to the servers of functions over HTTP. Left out: without credentials. */
  access?: readonly FunctionAccess[]
  /** Rates that several Reconcilers share, such as those of a team. Left out: none. */
  runRates?: readonly RunRate[]
  /**
   * Called when a call continues long after its signal was aborted. Its key does not run until the call or this process
   * ends.
   */
  ignored?: (call: IgnoredSignal) => void
  log: RunLog
  now?: () => Date
  random?: () => number
}

/**
 * Serves the Reconcilers. After the signal it takes no more keys. Runs that do not end within the grace are aborted,
 * and their keys are handed back to the queue.
 */
export interface Dispatcher extends Runnable {
  /**
   * Whether the watch's echo of a write needs no other run. True if a run of this process stored this version or a
   * later one, and holds its lease or held it to its end: the run decides again on the version, or the queue repeats
   * the run. False for a run that has lost its lease, because a newer run may have begun before the write arrived, and
   * for a run of another process, which may die before it queues the key again.
   */
  needsNoRun(write: { reconciler: string; key: string; origin: string }): boolean
  /**
   * Returns the traceparent of the run that is writing the object at this moment. The watch may report the write before
   * EVENTS has it.
   */
  traceOf(ref: ResourceRef, object: KubeObject): string | undefined
  /** Resolves when EVENTS has the write of a run to the object at this moment. Undefined: no run writes to it. */
  written(ref: ResourceRef, object: KubeObject): Promise<void> | undefined
  /** Reports the run of the key as lost, because its function has blocked this process, which ends now. */
  lost(run: { reconciler: string; key: string; why: string }): void
  /** Returns the calls of functions that have not ended. After run(), these are the calls that ignored their signal. */
  calls(): FunctionCall[]
  /** Returns the names of the Reconcilers that are served now. */
  serving(): string[]
  /** Returns why requests to the API server wait, or that they take long. Undefined: neither. */
  trouble(): string | undefined
}

export function createDispatcher(deps: DispatcherDeps): Dispatcher {
  return new LiveDispatcher(deps)
}

const TROUBLE_EVERY_MS = 5000

class LiveDispatcher implements Dispatcher {
  readonly #deps: DispatcherDeps
  readonly #runDeps: ReconciliationDeps & { recorder: EventRecorder }
  readonly #lifecycles = new Map<string, ReconcilerLifecycle>()
  readonly #cursors = new Map<string, StoredCursor>()
  readonly #identities = new Identities()
  readonly #outage: Outage

  constructor(deps: DispatcherDeps) {
    const { kube, events, instance, log, now = () => new Date(), random = Math.random } = deps
    this.#outage = new Outage(kube, random)
    const gate = new Gate(deps.apiConcurrency ?? 10, this.#outage, deps.requested)
    const { eventDropped = () => undefined } = deps
    this.#deps = deps
    this.#runDeps = {
      kube,
      events,
      gate,
      references: new References({ kube, events, gate, cache: createObjectCache(), account: '' }),
      adoptions: new Adoptions({ kube, gate }),
      state: new StateBudget(deps.maxStateBytes ?? MAX_STATE_BYTES, deps.stateShare),
      noOps: new NoOpWrites(),
      calls: new FunctionCalls(deps.ignored),
      recorder: new EventRecorder({ gate, instance, now, dropped: eventDropped, log }),
      now,
      random,
      seed: seedsFrom(randomBytes),
      clusterInfo: deps.cluster,
      inFlight: new InFlight(),
      sampled: deps.sampled ?? false,
      observe: deps.observer ?? (() => undefined),
      ended: deps.ended,
      deadLetter: deps.deadLetter,
    }
  }

  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    const forget = this.#deps.events.onDisconnect(() => this.#doubt())
    await Promise.all([
      this.#keepFollowing(signal, () => this.#followReconcilers(signal)),
      this.#keepFollowing(signal, () => this.#followCursors(signal)),
      repeat(this.#tellTrouble(), { signal, everyMs: TROUBLE_EVERY_MS, failed: () => undefined }),
    ])
    await Promise.all([...this.#lifecycles.values()].map((lifecycle) => lifecycle.stop(graceMs)))
    forget()
    await this.#runDeps.recorder.flush()
    this.#outage.end()
  }

  needsNoRun({ reconciler, key, origin }: { reconciler: string; key: string; origin: string }): boolean {
    const owner = ownerIn(origin, reconciler, key)
    return owner !== undefined && this.#lifecycles.get(reconciler)?.worker?.needsNoRun(owner) === true
  }

  traceOf(ref: ResourceRef, object: KubeObject): string | undefined {
    return this.#runDeps.inFlight.traceOf(ref, object)
  }

  written(ref: ResourceRef, object: KubeObject): Promise<void> | undefined {
    return this.#runDeps.inFlight.ended(ref, object)
  }

  lost({ reconciler, key, why }: { reconciler: string; key: string; why: string }): void {
    this.#lifecycles.get(reconciler)?.worker?.lost(key, why)
  }

  calls(): FunctionCall[] {
    return this.#runDeps.calls.underWay
  }

  serving(): string[] {
    return [...this.#lifecycles].filter(([, { worker }]) => worker !== undefined).map(([name]) => name)
  }

  trouble(): string | undefined {
    return this.#runDeps.gate.trouble
  }

  /** Returns a look that logs the beginning and the end of a trouble. */
  #tellTrouble(): () => Promise<void> {
    let told = false
    return async () => {
      const trouble = this.trouble()
      if (told === (trouble !== undefined)) return
      told = !told
      if (told) this.#deps.log.warn({ because: trouble }, 'runs wait for the API server')
      else this.#deps.log.info({}, 'runs no longer wait for the API server')
    }
  }

  #lifecycleOf(name: string): ReconcilerLifecycle {
    const {
      events,
      queue,
      log,
      functions,
      fixForMissing,
      shard = '',
      revision,
      access = [],
      runRates = [],
      declared = () => undefined,
    } = this.#deps
    // A resource has one watch, or a watch in each of the Reconciler's namespaces.
    const isSynced = (ref: ResourceRef, id: string, namespaces: readonly string[] = []) => {
      const isCoveredIn = (scope?: string) => isCovered(this.#cursors.get(scopeName(ref, scope)), id)
      return isCoveredIn() || (namespaces.length > 0 && namespaces.every(isCoveredIn))
    }
    const lifecycle =
      this.#lifecycles.get(name) ??
      new ReconcilerLifecycle(name, {
        ...this.#runDeps,
        cluster: events.cluster,
        shard,
        queue,
        functionOf: (called) => functions.get(called),
        fixForMissing,
        revision,
        access,
        runRates,
        declared,
        log,
        isSynced,
        identityHolder: () => this.#identities.holderOf(name),
        isAlone: () => this.#identities.isAlone(name),
        absent: (object) => this.#noteIdentity({ verb: 'deleted', object }),
      })
    this.#lifecycles.set(name, lifecycle)
    return lifecycle
  }

  async #followReconcilers(signal: AbortSignal): Promise<void> {
    const reconciler = { ref: RECONCILERS }
    for await (const event of this.#deps.events.follow(reconciler, signal, () => this.#allKnown())) {
      if (event.verb === 'moved') continue
      this.#noteIdentity(event)
      this.#lifecycleOf(event.object.metadata.name).reconcilerChanged(event)
    }
  }

  /** Reconsiders the other Reconcilers that share the identity: one of them may have to be served now, or no longer. */
  #noteIdentity(event: Pick<StoredEvent, 'verb' | 'object'>): void {
    for (const name of this.#identities.update(event)) this.#lifecycleOf(name).reconsider()
  }

  /** Begins serving when all Reconcilers are known. Before that, an older Reconciler might have the same identity. */
  #allKnown(): void {
    this.#identities.complete()
    for (const lifecycle of this.#lifecycles.values()) lifecycle.reconsider()
  }

  async #followCursors(signal: AbortSignal): Promise<void> {
    for await (const cursor of this.#deps.events.followCursors(signal)) {
      const name = scopeName(cursor.ref, cursor.scope)
      const before = this.#cursors.get(name)
      this.#cursors.set(name, cursor)
      if (cursor.unlisted) this.#doubt()
      if (!sameJson(cursor.covers, before?.covers) || before === undefined)
        for (const lifecycle of this.#lifecycles.values()) lifecycle.reconsider()
    }
  }

  #doubt(): void {
    for (const lifecycle of this.#lifecycles.values()) lifecycle.doubt()
  }

  #keepFollowing(signal: AbortSignal, follow: () => Promise<void>): Promise<void> {
    const failed = (error: unknown) => this.#deps.log.warn({ err: error }, 'following EVENTS failed, trying again')
    return repeat(follow, { signal, everyMs: RETRY_MS, failed })
  }
}

const scopeName = (ref: ResourceRef, scope = ''): string => `${resourceName(ref)} ${scope}`

interface IdentifiedReconciler {
  name: string
  identity: string
  /** The creation time, RFC 3339. */
  since: string
  /** What it is for. Undefined: it writes no status. */
  shows: { resource: string; namespaces: readonly unknown[] | undefined } | undefined
}

/**
 * The Reconciler that may act under an identity: the oldest one that has it. Two Reconcilers with the same marks would
 * prune each other's objects.
 */
export class Identities {
  readonly #byName = new Map<string, IdentifiedReconciler>()
  readonly #byIdentity = new Map<string, Set<IdentifiedReconciler>>()
  #isComplete = false

  /** Notes that all existing Reconcilers are known. */
  complete(): void {
    this.#isComplete = true
  }

  /** Updates a Reconciler. If its identity has changed, returns the others that share the old or the new one. */
  update({ verb, object }: Pick<StoredEvent, 'verb' | 'object'>): string[] {
    const { name } = object.metadata
    const before = this.#byName.get(name)
    const after = verb === 'deleted' ? undefined : identifiedIn(object)
    if (before !== undefined) this.#remove(before)
    if (after !== undefined) this.#add(after)
    if (before?.identity === after?.identity && before?.since === after?.since) return []
    const shared = [before, after].flatMap((one) => [...(this.#byIdentity.get(one?.identity ?? '') ?? [])])
    return [...new Set(shared.map((one) => one.name))].filter((other) => other !== name)
  }

  /** Returns the Reconciler that may act under the identity of this one. Undefined: not known yet. */
  holderOf(name: string): string | undefined {
    const one = this.#byName.get(name)
    if (one === undefined || !this.#isComplete) return undefined
    const [first] = [...(this.#byIdentity.get(one.identity) ?? [])].sort(byAge)
    return first?.name
  }

  /** Whether no Reconciler of another identity may write the status of its objects. Their selectors are not compared. */
  isAlone(name: string): boolean {
    const one = this.#byName.get(name)
    return [...this.#byName.values()].every((other) => other.identity === one?.identity || !meets(one, other))
  }

  #add(one: IdentifiedReconciler): void {
    this.#byName.set(one.name, one)
    const sharing = this.#byIdentity.get(one.identity) ?? new Set()
    this.#byIdentity.set(one.identity, sharing.add(one))
  }

  #remove(one: IdentifiedReconciler): void {
    this.#byName.delete(one.name)
    const sharing = this.#byIdentity.get(one.identity)
    sharing?.delete(one)
    if (sharing?.size === 0) this.#byIdentity.delete(one.identity)
  }
}

/** The Reconciler may be one that is refused: nothing in it is certain. */
function identifiedIn({ metadata, spec }: KubeObject): IdentifiedReconciler {
  const { name, creationTimestamp: since = '' } = metadata
  const { group, resource, namespaces, status } = ((spec ?? {}) as { for?: Record<string, unknown> }).for ?? {}
  const near = Array.isArray(namespaces) ? namespaces : undefined
  const shows = status === 'Untouched' ? undefined : { resource: `${group}/${resource}`, namespaces: near }
  return { name, identity: identityOf(name, spec ?? {}), since, shows }
}

const meets = ({ shows: one }: Partial<IdentifiedReconciler> = {}, { shows: other }: IdentifiedReconciler): boolean =>
  one !== undefined &&
  one.resource === other?.resource &&
  (one.namespaces?.some((namespace) => other.namespaces?.includes(namespace) !== false) ?? true)

const byAge = (a: IdentifiedReconciler, b: IdentifiedReconciler): number =>
  a.since.localeCompare(b.since) || a.name.localeCompare(b.name)
