import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { Cursor, EventStore } from '#events'
import { repeat } from '#primitives'
import type { Checkpoint } from './checkpoint.ts'
import type { Position, WrittenPosition } from './position.ts'
import type { StreamContinuity } from './stream-continuity.ts'

interface CursorDeps {
  events: EventStore
  continuity: StreamContinuity
  log: RunLog
  now: () => Date
  /**
   * Called when the cursor was marked or deleted, so that the objects may be gone from EVENTS. A first list is
   * necessary.
   */
  swept: () => void
}

const AT_MOST_EVERY_MS = 1000

/** Keeps the cursor of a watch in EVENTS. It is a second behind the safe position at most. */
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
  #writing: Promise<void> = Promise.resolve()
  #wake = () => {}

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
   * Begins a first list. Resolves with the sequence of the mark, below which a sweep may delete objects at any time.
   * Resolves with 0 if another bridge has completed a list.
   */
  async begin(): Promise<number> {
    const { events, now } = this.#deps
    await this.#writing.catch(() => undefined)
    this.#isSwept = false
    this.#checkpoint.void()
    for (;;) {
      this.#written = await this.#readListed()
      if (this.#written !== undefined) return 0
      if (this.#sequence > 0) return this.#sequence
      const mark = { resourceVersion: '0', covers: [], unlisted: true, at: now().toISOString() }
      await events.moveCursor(this.#ref, this.#scope, mark, 0)
    }
  }

  /** Notes that the safe position may have moved. */
  poke(): void {
    this.#wake()
  }

  run(signal: AbortSignal): Promise<void> {
    const flushMoved = async () => {
      await this.#moved(signal)
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
    this.#writing = this.#writing.catch(() => undefined).then(() => this.#write())
    return this.#writing
  }

  async #write(): Promise<void> {
    const position = this.#checkpoint.safe
    if (position === undefined || position === this.#position || this.#isSwept) return
    const { continuity, now } = this.#deps
    const { certain, incarnation, ...reached } = position
    try {
      certain.throwIfAborted()
      const cursor = { ...reached, ...(incarnation !== undefined && { incarnation }), ...(await continuity.raise()) }
      certain.throwIfAborted()
      const sequence = await this.#move({ ...cursor, at: now().toISOString() }, certain)
      if (sequence === undefined) {
        this.#isSwept = true
        this.#written = undefined
        return this.#deps.swept()
      }
      this.#written = { ...cursor, sequence }
    } catch (error) {
      // The watch begins again at the stored cursor.
      if (!certain.aborted) throw error
    }
    this.#position = position
  }

  /** Replaces the cursor, also one that another bridge wrote. Returns undefined if the cursor was marked or deleted. */
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

  #moved(signal: AbortSignal): Promise<void> {
    const { safe } = this.#checkpoint
    if (safe !== undefined && safe !== this.#position) return Promise.resolve()
    return new Promise((resolve) => {
      this.#wake = () => {
        if (this.#checkpoint.safe === undefined || this.#checkpoint.safe === this.#position) return
        done()
      }
      const done = () => {
        this.#wake = () => {}
        signal.removeEventListener('abort', done)
        resolve()
      }
      signal.addEventListener('abort', done, { once: true })
    })
  }
}
