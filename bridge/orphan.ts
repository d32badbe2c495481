import { type RunLog, resourceName } from '#contracts'
import { type EventStore, type Finalized, keyOf, type StoredCursor, type StoredEvent } from '#events'
import { unlessAborted } from '#primitives'
import type { WorkQueue } from '#queue'
import type { KeptAsk } from './routing.ts'
import type { OrphanStatus } from './types.ts'
import type { State } from './watch-state.ts'

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
  get ask(): KeptAsk {
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
      await unlessAborted(this.#deps.queue.enqueue(this.name, key), this.#stop.signal)
    this.#holders.set(key, isWaiting)
    this.#released.delete(key)
  }
}
