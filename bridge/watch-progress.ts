import { setTimeout as sleep } from 'node:timers/promises'
import { type ResourceRef, resourceName } from '#contracts'
import { Checkpoint } from './checkpoint.ts'
import type { CoveredUpTo } from './compare.ts'
import { Coverage } from './coverage.ts'
import { CursorWriter } from './cursor-writer.ts'
import type { Position, StreamState } from './position.ts'
import type { StreamContinuity } from './stream-continuity.ts'
import type { BridgeOptions } from './types.ts'
import type { Input, Relist } from './watch-state.ts'

export interface WatchProgressDeps extends Pick<BridgeOptions, 'events' | 'log'> {
  continuity: StreamContinuity
  /** The Reconcilers that the watch is for, by coverage ID, as they are now. */
  coverageIds: () => string[]
  /** Everything is listed at the start. */
  listsAtStart: boolean
  /** All that exists has become known to every Reconciler that asks for it. */
  synced: () => void
  /** See CursorWriter. */
  swept: () => void
  now: () => Date
}

/** How far a watch is done: in this process (checkpoint), for which Reconcilers (coverage), and in EVENTS (cursor). */
export class WatchProgress {
  readonly checkpoint = new Checkpoint<Position>()
  readonly coverage = new Coverage()
  readonly cursor: CursorWriter
  readonly #ref: ResourceRef
  readonly #deps: WatchProgressDeps
  /** Stands in each position of this watch. */
  #streams: StreamState = { incarnation: undefined, certain: AbortSignal.abort() }
  #wasSynced = false

  constructor(ref: ResourceRef, namespace: string | undefined, deps: WatchProgressDeps) {
    this.#ref = ref
    this.#deps = deps
    this.cursor = new CursorWriter(ref, namespace, this.checkpoint, deps)
  }

  /** Reads the cursor: where the watch goes on, and whether it lists first. */
  async resume(): Promise<Input> {
    const ids = this.#deps.coverageIds()
    const streams = await this.#deps.continuity.current()
    this.#streams = streams
    const cursor = await this.cursor.read()
    const isKept = cursor !== undefined && (await this.#deps.continuity.keeps(cursor, streams))
    // A cursor whose events or keys may be lost proves nothing.
    this.coverage.resume((isKept && cursor.covers) || [], ids)
    return { type: 'resumed', resourceVersion: cursor?.resourceVersion, relist: this.#mustList(isKept, ids) }
  }

  #mustList(isKept: boolean, ids: string[]): Relist | undefined {
    if (!isKept) return 'store-restarted'
    if (!this.coverage.covers(ids)) return 'routes'
    return this.#deps.listsAtStart ? 'initial' : undefined
  }

  /** A list is to come: synced() is called again after it. */
  unsync(): void {
    this.#wasSynced = false
  }

  position(resourceVersion: string): Position {
    const covers = [...this.coverage.ids]
    return { resourceVersion, covers, ...this.#streams }
  }

  /** Everything up to here has been read; `streams`: their state, where it is another one from here on. */
  mark(resourceVersion: string, streams = this.#streams): void {
    this.#streams = streams
    this.checkpoint.mark(this.position(resourceVersion))
    this.note()
  }

  /** More may be safe now. */
  readonly note = (): void => {
    this.cursor.poke()
    if (this.#wasSynced || !this.isSynced()) return
    this.#wasSynced = true
    // Whoever waits for this cursor need not wait for its turn. What fails here, the writer tries again.
    this.cursor.flush().catch(() => {})
    this.#deps.synced()
  }

  isSynced(): boolean {
    // A handler knows nothing from before this process.
    const isResumed = !this.#deps.listsAtStart && this.cursor.written !== undefined
    const isListed = this.checkpoint.safe !== undefined || isResumed
    const covered = new Set(this.covered())
    return isListed && this.#deps.coverageIds().every((id) => covered.has(id))
  }

  /** For whom everything is done: as far as this process has come, else as the cursor that it began from says. */
  covered(): readonly string[] {
    return this.checkpoint.safe?.covers ?? [...this.coverage.ids]
  }

  /** After a loss in NATS not even the cursor proves that a key was enqueued. */
  async coveredUpTo(streams: StreamState): Promise<CoveredUpTo | undefined> {
    const { written } = this.cursor
    return written && (await this.#deps.continuity.keeps(written, streams)) ? written : undefined
  }

  /** Before a stop: waits no longer than this for NATS. */
  async writeLast(graceMs: number): Promise<void> {
    const log = (error: unknown) =>
      this.#deps.log.warn({ err: error, resource: resourceName(this.#ref) }, 'the last cursor could not be stored')
    await Promise.race([this.cursor.flush().catch(log), sleep(graceMs, undefined, { ref: false })])
  }
}
