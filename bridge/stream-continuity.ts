import type { StreamState, WrittenPosition } from './position.ts'
import type { BridgeOptions, Watermark } from './types.ts'

/** Whether NATS still has all messages that it has confirmed. */
export class StreamContinuity {
  readonly #incarnation: BridgeOptions['incarnation']
  readonly #watermark: Watermark | undefined
  readonly #always = new AbortController().signal

  constructor({ incarnation, watermark }: Pick<BridgeOptions, 'incarnation' | 'watermark'>) {
    this.#incarnation = incarnation
    this.#watermark = watermark
  }

  /** Returns the state of the streams for positions that are read from now on. */
  async current(): Promise<StreamState> {
    const certain = this.#watermark?.certain ?? this.#always
    return { certain, incarnation: await this.#incarnation?.() }
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
