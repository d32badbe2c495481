import { setTimeout as sleep } from 'node:timers/promises'
import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { Cursor, EventStore } from '#events'
import { repeat, Serial, Wake } from '#primitives'
import type { CoveredUpTo } from './relist.ts'
import type { BridgeDeps, Watermark } from './types.ts'
import type { Input, Relist } from './watch-state.ts'

export interface WatchProgressDeps extends Pick<BridgeDeps, 'events' | 'log'> {
  continuity: StreamContinuity
  /** Returns the present Reconcilers of the watch, by coverage ID. */
  coverageIds: () => string[]
  /** Whether everything is listed at the start. */
  listsAtStart: boolean
  /** Called when every Reconciler that asks for the resource has all existing objects. */
  synced: () => void
  /** Called with the Reconcilers, by coverage ID, that a list was the first to cover, when the cursor is stored. */
  covered: (coverageIds: readonly string[]) => void
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
  #streams: StreamState = { incarnation: undefined, lostSignal: AbortSignal.abort() }
  #wasSynced = false
  /** The Reconcilers that the last list was the first to cover. */
  #fresh: readonly string[] = []
  /** How far the watch has read during the list that runs beside it. Undefined: there is no such list. */
  #beside: string | undefined

  constructor(ref: ResourceRef, namespace: string | undefined, deps: WatchProgressDeps) {
    this.#ref = ref
    this.#deps = deps
    this.cursor = new CursorWriter(ref, namespace, this.checkpoint, deps)
  }

  /** Reads the cursor. Returns the position from which the watch continues, and whether a list comes first. */
  async resume(): Promise<Input> {
    this.release()
    const ids = this.#deps.coverageIds()
    const streams = await this.#deps.continuity.current()
    this.#streams = streams
    const cursor = await this.cursor.read()
    const isKept = cursor !== undefined && (await this.#deps.continuity.keeps(cursor, streams))
    // A cursor whose events or keys may be lost proves nothing.
    this.coverage.resume(cursor?.covers ?? [], ids)
    if (!isKept) this.coverage.forget()
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

  /** Keeps the cursor where it is until the list that runs beside the watch has ended. `from`: where the watch begins. */
  hold(from: string): void {
    this.#beside ??= from
  }

  /** Notes that no list runs beside the watch. */
  release(): void {
    this.#beside = undefined
  }

  /** The position of a change that the watch has read. Undefined while a list runs beside the watch. */
  position(resourceVersion: string): Position | undefined {
    if (this.#beside !== undefined) {
      this.#beside = resourceVersion
      return undefined
    }
    const covers = [...this.coverage.ids]
    return { resourceVersion, covers, ...this.#streams }
  }

  /** Notes that the watch has read everything up to here. */
  reach(resourceVersion: string): void {
    const position = this.position(resourceVersion)
    if (position === undefined) return
    this.checkpoint.reach(position)
    this.note()
  }

  /**
   * Notes that a list has ended here. `streams`: their state when the list began. `fresh`: the Reconcilers that were not
   * covered before it. After a list beside the watch, the position is that of the watch: the watch may not have read yet that an object is gone which it has stored during the
   * list, and the list did not know that object.
   */
  listed(resourceVersion: string, streams: StreamState, fresh: readonly string[]): void {
    this.#fresh = fresh
    const reached = this.#beside ?? resourceVersion
    this.release()
    this.#streams = streams
    this.reach(reached)
  }

  /** Notes that the safe position may have moved. */
  readonly note = (): void => {
    this.cursor.poke()
    if (this.#wasSynced || !this.isSynced()) return
    this.#wasSynced = true
    // The first complete cursor is written at once, before the writer's next turn. The writer retries a failure.
    const fresh = this.#fresh
    this.#fresh = []
    this.cursor.flush().then(
      () => this.#deps.covered(fresh),
      () => {},
    )
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

interface CursorDeps {
  events: EventStore
  continuity: StreamContinuity
  log: RunLog
  now: () => Date
  /**
   * Called when the cursor was set to unlisted or deleted, so that the objects may be gone from EVENTS. A first list is
   * necessary.
   */
  swept: () => void
}

/** Each bridge writes the cursor of each watch, to all replicas, and a restart of all bridges repeats the changes since then. */
const AT_MOST_EVERY_MS = 5000

/** Keeps the cursor of a watch in EVENTS. It is 5 seconds behind the safe position at most. */
export class CursorWriter {
  readonly #ref: ResourceRef
  readonly #scope: string | undefined
  readonly #checkpoint: Checkpoint<Position>
  readonly #deps: CursorDeps
  #position: Position | undefined
  #written: WrittenPosition | undefined
  /** The sequence of the cursor, from whichever bridge wrote it. 0: there is no cursor. */
  #sequence = 0
  #isSwept = false
  readonly #writes = new Serial()
  readonly #wake = new Wake()

  /** `scope`: the namespace that is watched. Undefined: all namespaces. */
  constructor(ref: ResourceRef, scope: string | undefined, checkpoint: Checkpoint<Position>, deps: CursorDeps) {
    this.#ref = ref
    this.#scope = scope
    this.#checkpoint = checkpoint
    this.#deps = deps
  }

  /** The cursor as this process last read or wrote it. */
  get written(): WrittenPosition | undefined {
    return this.#written
  }

  async read(): Promise<WrittenPosition | undefined> {
    this.#written = await this.#readListed()
    return this.#written
  }

  /**
   * Begins a first list. Resolves with the sequence of the unlisted cursor, below which a sweep may delete objects at any
   * time. Resolves with 0 if another bridge has completed a list.
   */
  async begin(): Promise<number> {
    const { events, now } = this.#deps
    await this.#writes.idle()
    this.#isSwept = false
    this.#checkpoint.void()
    for (;;) {
      this.#written = await this.#readListed()
      if (this.#written !== undefined) return 0
      if (this.#sequence > 0) return this.#sequence
      const unlisted = { resourceVersion: '0', covers: [], unlisted: true, at: now().toISOString() }
      await events.moveCursor(this.#ref, this.#scope, unlisted, 0)
    }
  }

  /** Notes that the safe position may have moved. */
  poke(): void {
    if (this.#hasMoved) this.#wake.poke()
  }

  run(signal: AbortSignal): Promise<void> {
    const flushMoved = async () => {
      if (!this.#hasMoved) await this.#wake.next(Number.POSITIVE_INFINITY, signal)
      await this.flush()
    }
    const failed = (error: unknown) => {
      const resource = resourceName(this.#ref)
      this.#deps.log.warn({ err: error, resource }, 'the watch cursor could not be stored; a restart repeats more')
    }
    return repeat(flushMoved, { signal, everyMs: AT_MOST_EVERY_MS, failed })
  }

  /** Writes the cursor, one write at a time, so that an older position never replaces a newer one. */
  flush(): Promise<void> {
    return this.#writes.run(() => this.#write())
  }

  async #write(): Promise<void> {
    const position = this.#checkpoint.safe
    if (position === undefined || position === this.#position || this.#isSwept) return
    const { continuity, now } = this.#deps
    const { lostSignal, incarnation, ...reached } = position
    try {
      lostSignal.throwIfAborted()
      const cursor = { ...reached, ...(incarnation !== undefined && { incarnation }), ...(await continuity.raise()) }
      lostSignal.throwIfAborted()
      const sequence = await this.#move({ ...cursor, at: now().toISOString() }, lostSignal)
      if (sequence === undefined) {
        this.#isSwept = true
        this.#written = undefined
        return this.#deps.swept()
      }
      this.#written = { ...cursor, sequence }
    } catch (error) {
      // The watch begins again at the stored cursor.
      if (!lostSignal.aborted) throw error
    }
    this.#position = position
  }

  /** Replaces the cursor, also one that another bridge wrote. Returns undefined if it is unlisted or deleted. */
  async #move(cursor: Cursor, signal?: AbortSignal): Promise<number | undefined> {
    for (;;) {
      const sequence = await this.#deps.events.moveCursor(this.#ref, this.#scope, cursor, this.#sequence, signal)
      if (sequence !== undefined) {
        this.#sequence = sequence
        return sequence
      }
      if ((await this.#readListed()) === undefined) return undefined
    }
  }

  async #readListed(): Promise<WrittenPosition | undefined> {
    const found = await this.#deps.events.lastCursor(this.#ref, this.#scope)
    this.#sequence = found?.sequence ?? 0
    return found?.unlisted ? undefined : found
  }

  get #hasMoved(): boolean {
    const { safe } = this.#checkpoint
    return safe !== undefined && safe !== this.#position
  }
}

/**
 * The last position of a stream before which every change is safe. Changes may become safe in any order. A change
 * without a position, such as an object of a list, only holds the position back.
 */
export class Checkpoint<Position> {
  readonly #pending: { position: Position | undefined; isSafe: boolean }[] = []
  #safe: Position | undefined

  /** The last safe position. Undefined until the first one is reached. */
  get safe(): Position | undefined {
    return this.#safe
  }

  /** The last position that has begun. */
  get latest(): Position | undefined {
    return this.#pending.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }

  /** Begins one change, in the order of the stream. Returns a function to call when the change is safe. */
  begin(position?: Position): () => void {
    const entry = { position, isSafe: false }
    this.#pending.push(entry)
    return () => {
      entry.isSafe = true
      this.#advance()
    }
  }

  /** Notes a position that is not a change: a bookmark, or the end of a list. */
  reach(position: Position): void {
    this.begin(position)()
  }

  /** Forgets the positions that were reached or begun. Changes in progress still hold back later positions. */
  void(): void {
    for (const entry of this.#pending) entry.position = undefined
    this.#safe = undefined
  }

  #advance(): void {
    const unsafe = this.#pending.findIndex(({ isSafe }) => !isSafe)
    const safe = this.#pending.splice(0, unsafe === -1 ? this.#pending.length : unsafe)
    this.#safe = safe.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }
}

/** The Reconcilers, by coverage ID, for which all objects that a watch has read are stored and enqueued. */
class Coverage {
  #covers: ReadonlySet<string> = new Set()
  /** The Reconcilers that the list in progress will cover. */
  #listing: ReadonlySet<string> = new Set()
  /** The names of all Reconcilers that were covered once, perhaps in another version. */
  readonly #former = new Set<string>()

  get ids(): ReadonlySet<string> {
    return this.#covers
  }

  /** Begins with the coverage of a cursor. */
  resume(said: readonly string[], wanted: readonly string[]): void {
    for (const id of said) this.#former.add(reconcilerIn(id))
    this.#covers = new Set(wanted.filter((id) => said.includes(id)))
  }

  /** Restricts the coverage to the Reconcilers that are wanted from now on. */
  restrictTo(wanted: readonly string[]): void {
    for (const id of this.#covers) this.#former.add(reconcilerIn(id))
    this.#covers = new Set(wanted.filter((id) => this.#covers.has(id)))
  }

  /** Forgets the coverage, because NATS may have lost keys that were enqueued. */
  forget(): void {
    for (const id of this.#covers) this.#former.add(reconcilerIn(id))
    this.#covers = new Set()
  }

  /** Whether the Reconciler was covered once, perhaps in another version. */
  knows(coverageId: string): boolean {
    return this.#former.has(reconcilerIn(coverageId))
  }

  covers(wanted: readonly string[]): boolean {
    return wanted.every((id) => this.#covers.has(id))
  }

  /** Whether all of them are covered at the end of the list in progress. */
  willCover(wanted: readonly string[]): boolean {
    return wanted.every((id) => this.#covers.has(id) || this.#listing.has(id))
  }

  /** Begins a list for these Reconcilers. Returns whether the list must enqueue every key of a Reconciler. */
  beginList(wanted: readonly string[]): (coverageId: string) => boolean {
    const covers = this.#covers
    this.#listing = new Set(wanted)
    return (id) => !covers.has(id)
  }

  /** Ends the list. `wanted`: the Reconcilers that are wanted now. Left out: the list was interrupted. */
  endList(wanted?: readonly string[]): void {
    if (wanted) this.#covers = new Set(wanted.filter((id) => this.#listing.has(id)))
    this.#listing = new Set()
  }
}

const reconcilerIn = (coverageId: string): string => coverageId.slice(0, coverageId.lastIndexOf('@'))

/** Whether NATS still has all messages that it has confirmed. */
export class StreamContinuity {
  readonly #incarnation: BridgeDeps['incarnation']
  readonly #watermark: Watermark | undefined
  readonly #always = new AbortController().signal

  constructor({ incarnation, watermark }: Pick<BridgeDeps, 'incarnation' | 'watermark'>) {
    this.#incarnation = incarnation
    this.#watermark = watermark
  }

  /** Returns the state of the streams for positions that are read from now on. */
  async current(): Promise<StreamState> {
    const lostSignal = this.#watermark?.lostSignal ?? this.#always
    return { lostSignal, incarnation: await this.#incarnation?.() }
  }

  /** Returns the mark behind all keys that were enqueued so far. */
  async raise(): Promise<{ work?: string }> {
    return this.#watermark ? { work: await this.#watermark.raise() } : {}
  }

  /** Returns false if events that the cursor covers, or keys enqueued for them, may be lost. */
  async keeps(cursor: WrittenPosition, { incarnation }: Pick<StreamState, 'incarnation'>): Promise<boolean> {
    if (cursor.incarnation !== incarnation) return false
    if (!this.#watermark) return true
    return cursor.work !== undefined && this.#watermark.holds(cursor.work)
  }
}

/** The state of the streams that a position depends on. */
export interface StreamState {
  incarnation: string | undefined
  /** Aborted when confirmed messages may be lost. Then no cursor may name the position. */
  lostSignal: AbortSignal
}

/** A point of a watch. All changes before it are stored, and enqueued for the Reconcilers in `covers`. */
export interface Position extends StreamState, Pick<Cursor, 'resourceVersion' | 'covers'> {}

export interface WrittenPosition extends Omit<Cursor, 'at'> {
  /** The sequence in EVENTS. */
  sequence: number
}
