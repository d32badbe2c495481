import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import { type EventStore, type Finalized, keyOf, type StoredCursor, type StoredEvent } from '#events'
import { pause, unlessAborted, Wake } from '#primitives'
import type { WorkQueue } from '#queue'
import { finalizerOf, identityOf, keepsFinalizer } from '#spec'
import type { Reconciler } from './reconcilers.ts'
import type { CoveredAsk } from './routing.ts'
import type { OrphanedKeys, OrphanStatus } from './types.ts'
import type { State } from './watch-state.ts'

/**
 * The name of the records of finalized resources, which are stored as cursors. It is not a resource of the API server.
 */
export const FINALIZED: ResourceRef = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'finalized' }

export interface ExistingReconcilers {
  served: readonly Reconciler[]
  /** The names, including those of refused Reconcilers. */
  names: ReadonlySet<string>
  /** The names of those that other shards serve. */
  elsewhere: ReadonlySet<string>
  finalizers: ReadonlySet<string>
}

export interface OrphanedFinalizersDeps extends OrphanDeps {
  events: Pick<EventStore, 'cursors' | 'setCursor' | 'removeCursor' | 'follow'>
  log: RunLog
  now?: () => Date
  /** Returns undefined until the Reconcilers are known. */
  existing: () => ExistingReconcilers | undefined
  /** Called when the result of asks() has changed. */
  changed: () => void
  /**
   * `everyMs`: the interval of the search. `keepMs`: how long a Reconciler is remembered after the last object with its
   * finalizer. Left out: every minute, 10 min.
   */
  orphans?: { everyMs: number; keepMs: number }
}

const EVERY_MS = 60_000
const AT_MOST_EVERY_MS = 500
const KEEP_MS = 600_000

/**
 * Finds the objects that cannot be deleted because they wait for the finalizer of a Reconciler that does not exist. The
 * primaries that each Reconciler finalizes are recorded in EVENTS. When the Reconciler is gone, its primaries are
 * watched until none of them has the finalizer, and the key of each one that is being deleted is queued: `queue ls`
 * shows it, and it runs when the Reconciler is created again (docs/decisions/0024-objects-that-leave-a-selection.md).
 */
export class OrphanedFinalizers implements OrphanedKeys {
  readonly #deps: OrphanedFinalizersDeps
  readonly #orphans = new Map<string, Orphan>()
  readonly #wake = new Wake()

  constructor(deps: OrphanedFinalizersDeps) {
    this.#deps = deps
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log, orphans: { everyMs } = { everyMs: EVERY_MS } } = this.#deps
    while (!signal.aborted) {
      await this.#look(signal).catch((error: unknown) => {
        if (!signal.aborted) log.warn({ err: error }, 'finalizers of Reconcilers that are gone could not be looked for')
      })
      await pause(Math.min(AT_MOST_EVERY_MS, everyMs), signal)
      await this.#wake.next(everyMs, signal)
    }
    for (const orphan of this.#orphans.values()) orphan.stop()
  }

  /** Notes that the Reconcilers have changed. */
  poke(): void {
    this.#wake.poke()
  }

  asks(): CoveredAsk[] {
    return [...this.#orphans.values()].map(({ ask }) => ask)
  }

  status(): OrphanStatus[] {
    return [...this.#orphans.values()].map(({ status }) => status)
  }

  isHeld(reconciler: string): boolean {
    return this.#orphans.has(reconciler)
  }

  stateOf(reconciler: string, key: string): 'waits' | 'released' | undefined {
    return this.#orphans.get(reconciler)?.stateOf(key)
  }

  /** Notes that the state of a watch of the resource has changed. */
  noteWatch(ref: ResourceRef, state: State): void {
    for (const orphan of this.#orphans.values())
      if (resourceName(orphan.ask.ref) === resourceName(ref)) orphan.noteWatch(state)
  }

  async #look(signal: AbortSignal): Promise<void> {
    const existing = this.#deps.existing()
    if (existing === undefined) return
    const { events } = this.#deps
    const records = new Map<string, FinalizedRecord>()
    for await (const cursor of events.cursors()) if (isRecord(cursor)) records.set(cursor.scope, cursor)
    for (const { name, spec } of existing.served)
      if (keepsFinalizer(spec)) await this.#record(name, finalizedBy(name, spec), records.get(name), signal)
    for (const name of this.#orphans.keys()) if (existing.names.has(name) || !records.has(name)) this.#end(name)
    for (const record of records.values())
      if (existing.elsewhere.has(record.scope)) await events.removeCursor(record.sequence)
      else if (!existing.names.has(record.scope)) await this.#judge(record, existing.finalizers)
  }

  async #record(
    name: string,
    finalizes: Finalized,
    before: FinalizedRecord | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const { events, now = () => new Date() } = this.#deps
    if (JSON.stringify(before?.finalizes) === JSON.stringify(finalizes)) return
    await events.setCursor(FINALIZED, name, { resourceVersion: '0', at: now().toISOString(), finalizes }, signal)
  }

  /** Handles the record of a Reconciler that does not exist. */
  async #judge(record: FinalizedRecord, finalizers: ReadonlySet<string>): Promise<void> {
    const { events, log, changed, orphans: { keepMs } = { keepMs: KEEP_MS } } = this.#deps
    const known = this.#orphans.get(record.scope)
    // A Reconciler of another name has the identity now, and its own record.
    const isTakenOver = finalizers.has(record.finalizes.finalizer)
    if (isTakenOver || (known?.emptyMs() ?? 0) > keepMs) {
      await events.removeCursor(record.sequence)
      this.#end(record.scope)
    } else if (known === undefined) {
      const orphan = new Orphan(record, this.#deps)
      this.#orphans.set(record.scope, orphan)
      orphan.run().catch((error: unknown) => {
        log.warn(
          { err: error, reconciler: orphan.name },
          'objects of a Reconciler that is gone are not followed any more',
        )
        this.#end(orphan.name)
      })
      changed()
    }
  }

  #end(name: string): void {
    const orphan = this.#orphans.get(name)
    if (orphan === undefined) return
    orphan.stop()
    this.#orphans.delete(name)
    this.#deps.changed()
  }
}

const isRecord = (cursor: StoredCursor): cursor is FinalizedRecord =>
  resourceName(cursor.ref) === resourceName(FINALIZED) && cursor.scope !== undefined && cursor.finalizes !== undefined

function finalizedBy(name: string, spec: Reconciler['spec']): Finalized {
  const { group, version, resource, kind, namespaces } = spec.for
  const ref = { group, version, resource, kind }
  return { finalizer: finalizerOf(identityOf(name, spec)), ref, ...(namespaces && { namespaces }) }
}

/** The record in EVENTS of the objects that a Reconciler finalizes. The scope is the name of the Reconciler. */
export type FinalizedRecord = StoredCursor & { scope: string; finalizes: Finalized }

export interface OrphanDeps {
  events: Pick<EventStore, 'follow'>
  queue: Pick<WorkQueue, 'declare' | 'enqueue'>
  log: RunLog
}

/** A Reconciler that does not exist, and the objects that have its finalizer. */
export class Orphan {
  readonly name: string
  readonly record: FinalizedRecord
  readonly #deps: OrphanDeps
  /** Whether the object is being deleted, by key. */
  readonly #holders = new Map<string, boolean>()
  /** Keys of objects that were being deleted and no longer have the finalizer. */
  readonly #released = new Set<string>()
  readonly #stop = new AbortController()
  #isCaughtUp = false
  #isBlind = false
  /** The time since which no objects are known, by the clock of this process. Undefined: objects are known. */
  #emptySince: number | undefined

  constructor(record: FinalizedRecord, deps: OrphanDeps) {
    this.name = record.scope
    this.record = record
    this.#deps = deps
  }

  /** The resource to watch, so that EVENTS shows the changes of the objects. */
  get ask(): CoveredAsk {
    const { ref, namespaces } = this.record.finalizes
    return { ref, namespaces, metadataOnly: true, coverageId: `~${this.name}` }
  }

  get status(): OrphanStatus {
    return {
      reconciler: this.name,
      resource: resourceName(this.record.finalizes.ref),
      holders: this.#holders.size,
      waiting: [...this.#holders.values()].filter(Boolean).length,
    }
  }

  stateOf(key: string): 'waits' | 'released' | undefined {
    if (this.#holders.get(key)) return 'waits'
    return this.#released.has(key) ? 'released' : undefined
  }

  /** Notes the state of the watch. Objects that the API server does not show are not waited for. */
  noteWatch(state: State): void {
    if (state.phase === 'watching') this.#isBlind = false
    if (state.phase === 'waiting') this.#isBlind = ['absent', 'forbidden'].includes(state.failure.kind)
  }

  /** Returns the time for which no object with the finalizer has been known, in milliseconds. */
  emptyMs(): number {
    const isEmpty = this.#isBlind || (this.#isCaughtUp && this.#holders.size === 0)
    this.#emptySince = isEmpty ? (this.#emptySince ?? performance.now()) : undefined
    return this.#emptySince === undefined ? 0 : performance.now() - this.#emptySince
  }

  stop(): void {
    this.#stop.abort()
  }

  /** Follows the objects in EVENTS until it is stopped. */
  async run(): Promise<void> {
    const { events, queue } = this.#deps
    const { signal } = this.#stop
    const { ref } = this.record.finalizes
    try {
      await unlessAborted(queue.declare(this.name), signal)
      for await (const event of events.follow({ ref }, signal, () => (this.#isCaughtUp = true))) await this.#take(event)
    } catch (error) {
      if (!signal.aborted) throw error
    }
  }

  async #take({ verb, key: { namespace, name }, object }: StoredEvent): Promise<void> {
    // The object has another place in EVENTS, where it is found.
    if (verb === 'moved') return
    const key = keyOf(namespace, name)
    const { finalizers = [], deletionTimestamp } = object.metadata
    if (verb === 'deleted' || !finalizers.includes(this.record.finalizes.finalizer)) {
      if (this.#holders.get(key)) this.#released.add(key)
      this.#holders.delete(key)
      return
    }
    const isWaiting = deletionTimestamp !== undefined
    if (isWaiting && !this.#holders.get(key))
      await unlessAborted(
        this.#deps.queue.enqueue(this.name, key, { cause: 'a finalizer without its Reconciler' }),
        this.#stop.signal,
      )
    this.#holders.set(key, isWaiting)
    this.#released.delete(key)
  }
}
