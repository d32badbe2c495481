import { setTimeout as sleep } from 'node:timers/promises'
import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { Cursor, EventStore } from '#events'
import type { Checkpoint } from './checkpoint.ts'
import type { History, Life } from './history.ts'

/** A point of a watch up to which everything was stored, and enqueued for the Reconcilers named. */
export interface Position extends Life, Pick<Cursor, 'resourceVersion' | 'covers'> {}

export interface WrittenPosition extends Omit<Cursor, 'at'> {
  /** In EVENTS. */
  sequence: number
}

interface CursorDeps {
  events: EventStore
  history: History
  log: RunLog
  now: () => Date
}

const AT_MOST_EVERY_MS = 1000

/** Keeps the cursor of a watch in EVENTS, at most a second behind what is confirmed. */
export class CursorWriter {
  readonly #ref: ResourceRef
  readonly #scope: string | undefined
  readonly #checkpoint: Checkpoint<Position>
  readonly #deps: CursorDeps
  #position: Position | undefined
  #written: WrittenPosition | undefined
  #writing: Promise<void> = Promise.resolve()
  #wake = () => {}

  /** `scope`: the namespace that is watched; undefined: all of them. */
  constructor(ref: ResourceRef, scope: string | undefined, checkpoint: Checkpoint<Position>, deps: CursorDeps) {
    this.#ref = ref
    this.#scope = scope
    this.#checkpoint = checkpoint
    this.#deps = deps
  }

  /** The cursor as this process has last read or written it. */
  get written(): WrittenPosition | undefined {
    return this.#written
  }

  async read(): Promise<WrittenPosition | undefined> {
    this.#written = await this.#deps.events.cursor(this.#ref, this.#scope)
    return this.#written
  }

  /** Something was confirmed. */
  poke(): void {
    this.#wake()
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#moved(signal)
      await this.flush().catch((error: unknown) => {
        const resource = resourceName(this.#ref)
        this.#deps.log.warn({ err: error, resource }, 'the watch cursor could not be stored; a restart repeats more')
      })
      await sleep(AT_MOST_EVERY_MS, undefined, { signal }).catch(() => undefined)
    }
  }

  /** One write at a time, so that an older position never lands on a newer one. */
  flush(): Promise<void> {
    this.#writing = this.#writing.catch(() => undefined).then(() => this.#write())
    return this.#writing
  }

  async #write(): Promise<void> {
    const position = this.#checkpoint.safe
    if (position === undefined || position === this.#position) return
    const { events, history, now } = this.#deps
    const { certain, incarnation, ...reached } = position
    try {
      certain.throwIfAborted()
      const cursor = { ...reached, ...(incarnation !== undefined && { incarnation }), ...(await history.raise()) }
      certain.throwIfAborted()
      const at = now().toISOString()
      const sequence = await events.setCursor(this.#ref, this.#scope, { ...cursor, at }, certain)
      this.#written = { ...cursor, sequence }
    } catch (error) {
      // The watch begins again at the cursor as it is.
      if (!certain.aborted) throw error
    }
    this.#position = position
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
