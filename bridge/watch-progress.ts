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
  /** Returns the present Reconcilers of the watch, by coverage ID. */
  coverageIds: () => string[]
  /** Whether everything is listed at the start. */
  listsAtStart: boolean
  /** Called when every Reconciler that asks for the resource has all existing objects. */
  synced: () => void
  /** See CursorWriter. */
  swept: () => void
  now: () => Date
}

/** The progress of a watch: in this process (checkpoint), for which Reconcilers (coverage), and in EVENTS (cursor). */
export class WatchProgress {
  readonly checkpoint = new Checkpoint<Position>()
  readonly coverage = new Coverage()
  readonly cursor: CursorWriter
  readonly #ref: ResourceRef
  readonly #deps: WatchProgressDeps
  /** The part of each position of this watch that concerns the streams. */
  #streams: StreamState = { incarnation: undefined, certain: AbortSignal.abort() }
  #wasSynced = false
  #isHeld = false

  constructor(ref: ResourceRef, namespace: string | undefined, deps: WatchProgressDeps) {
    this.#ref = ref
    this.#deps = deps
    this.cursor = new CursorWriter(ref, namespace, this.checkpoint, deps)
  }

  /** Reads the cursor. Returns the position from which the watch continues, and whether a list comes first. */
  async resume(): Promise<Input> {
    this.#isHeld = false
    const ids = this.#deps.coverageIds()
    const streams = await this.#deps.continuity.current()
    this.#streams = streams
    const cursor = await this.cursor.read()
    const isKept = cursor !== undefined && (await this.#deps.continuity.keeps(cursor, streams))
    // A cursor whose events or keys may be lost proves nothing.
    this.coverage.resume((isKept && cursor.covers) || [], ids)
    const relist = this.#mustList(isKept, ids)
    return { type: 'resumed', resourceVersion: cursor?.resourceVersion, relist, mayWatch: !this.#deps.listsAtStart }
  }

  #mustList(isKept: boolean, ids: string[]): Relist | undefined {
    if (!isKept) return 'store-restarted'
    if (!this.coverage.covers(ids)) return 'routes'
    return this.#deps.listsAtStart ? 'initial' : undefined
  }

  /** Makes synced() be called again after the next list. */
  unsync(): void {
    this.#wasSynced = false
  }

  /** Keeps the cursor where it is until the list that runs beside the watch has ended. */
  hold(): void {
    this.#isHeld = true
  }

  /** Undefined while a list runs beside the watch. */
  position(resourceVersion: string): Position | undefined {
    if (this.#isHeld) return undefined
    const covers = [...this.coverage.ids]
    return { resourceVersion, covers, ...this.#streams }
  }

  /** Notes that the watch has read everything up to here. */
  mark(resourceVersion: string): void {
    const position = this.position(resourceVersion)
    if (position === undefined) return
    this.checkpoint.mark(position)
    this.note()
  }

  /** Notes that a list has ended here. `streams`: their state when the list began. */
  listed(resourceVersion: string, streams: StreamState): void {
    this.#isHeld = false
    this.#streams = streams
    this.mark(resourceVersion)
  }

  /** Notes that the safe position may have moved. */
  readonly note = (): void => {
    this.cursor.poke()
    if (this.#wasSynced || !this.isSynced()) return
    this.#wasSynced = true
    // The first complete cursor is written at once, before the writer's next turn. The writer retries a failure.
    this.cursor.flush().catch(() => {})
    this.#deps.synced()
  }

  isSynced(): boolean {
    // A handler has not received objects from before this process.
    const isResumed = !this.#deps.listsAtStart && this.cursor.written !== undefined
    const isListed = this.checkpoint.safe !== undefined || isResumed
    const covered = new Set(this.covered())
    return isListed && this.#deps.coverageIds().every((id) => covered.has(id))
  }

  /**
   * Returns the Reconcilers for which everything is done, by the safe position of this process, or by the cursor at its
   * start.
   */
  covered(): readonly string[] {
    return this.checkpoint.safe?.covers ?? [...this.coverage.ids]
  }

  /**
   * Returns the cursor's position. Undefined after a loss in NATS, because then not even the cursor proves that a key
   * was enqueued.
   */
  async coveredUpTo(streams: StreamState): Promise<CoveredUpTo | undefined> {
    const { written } = this.cursor
    return written && (await this.#deps.continuity.keeps(written, streams)) ? written : undefined
  }

  /** Writes the cursor before a stop. Waits for NATS no longer than the grace. */
  async writeLast(graceMs: number): Promise<void> {
    const log = (error: unknown) =>
      this.#deps.log.warn({ err: error, resource: resourceName(this.#ref) }, 'the last cursor could not be stored')
    await Promise.race([this.cursor.flush().catch(log), sleep(graceMs, undefined, { ref: false })])
  }
}
