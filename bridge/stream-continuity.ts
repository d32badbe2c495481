import type { WrittenPosition } from './cursor-writer.ts'
import type { BridgeOptions } from './types.ts'

/** Marks in WORK, behind what this process has enqueued. */
export interface Watermark {
  readonly certain: AbortSignal
  raise(): Promise<string>
  holds(mark: string): Promise<boolean>
  onDoubt(listener: () => void): void
}

/** What a position says of the streams that it rests on. */
export interface StreamState {
  incarnation: string | undefined
  /** Aborted: what was confirmed under it may be lost, so no cursor may name the position. */
  certain: AbortSignal
}

/** Whether NATS still has what it has confirmed. */
export class StreamContinuity {
  readonly #incarnation: BridgeOptions['incarnation']
  readonly #watermark: Watermark | undefined
  readonly #always = new AbortController().signal

  constructor({ incarnation, watermark }: Pick<BridgeOptions, 'incarnation' | 'watermark'>) {
    this.#incarnation = incarnation
    this.#watermark = watermark
  }

  /** For positions that are read from now on. */
  async current(): Promise<StreamState> {
    const certain = this.#watermark?.certain ?? this.#always
    return { certain, incarnation: await this.#incarnation?.() }
  }

  /** The mark behind all that was enqueued so far. */
  async raise(): Promise<{ work?: string }> {
    return this.#watermark ? { work: await this.#watermark.raise() } : {}
  }

  /** False: events that the cursor covers, or keys enqueued for them, may be lost. */
  async keeps(cursor: WrittenPosition, { incarnation }: Pick<StreamState, 'incarnation'>): Promise<boolean> {
    if (cursor.incarnation !== incarnation) return false
    if (!this.#watermark) return true
    return cursor.work !== undefined && this.#watermark.holds(cursor.work)
  }
}
