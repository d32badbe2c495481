import { type RunLog, resourceName } from '#contracts'
import { type EventStore, type Finalized, keyOf, type StoredCursor, type StoredEvent } from '#events'
import { unlessAborted } from '#primitives'
import type { WorkQueue } from '#queue'
import type { KeptAsk } from './routing.ts'
import type { OrphanStatus } from './types.ts'
import type { State } from './watch-state.ts'

/** What a Reconciler finalizes, as EVENTS has it; the scope is the name of the Reconciler. */
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
  /** By key: whether the object is being deleted. */
  readonly #holders = new Map<string, boolean>()
  /** Keys of objects that were being deleted and do not have the finalizer any more. */
  readonly #released = new Set<string>()
  readonly #stop = new AbortController()
  #isCaughtUp = false
  #isBlind = false
  /** By the clock of this process. Undefined: objects are known. */
  #emptySince: number | undefined

  constructor(record: FinalizedRecord, deps: OrphanDeps) {
    this.name = record.scope
    this.record = record
    this.#deps = deps
  }

  /** What has to be watched, so that EVENTS shows what becomes of the objects. */
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

  /** What the API server does not show is not waited for. */
  noteWatch(state: State): void {
    if (state.phase === 'watching') this.#isBlind = false
    if (state.phase === 'waiting') this.#isBlind = ['absent', 'forbidden'].includes(state.failure.kind)
  }

  /** For how long no object with the finalizer has been known, in milliseconds. */
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
    // It has another place in EVENTS, which counts.
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
