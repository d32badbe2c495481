/** Whether the main thread hangs: a decision on what another thread sees of it at regular looks. */
export class StallDetector {
  readonly #lookMs: number
  #last: LoopSample | undefined
  #stillMs = 0

  constructor(lookMs: number) {
    this.#lookMs = lookMs
  }

  /**
   * For how long it could have turned its event loop and has not, in milliseconds. What it waited for a core does not
   * count: on a busy machine, or with a small share of one, nothing hangs. Nor does a look that comes late count for
   * more than one look: a machine that sleeps or a stopped process does not hang either.
   */
  look(now: LoopSample): number {
    const { turns, atMs, waitedMs } = this.#last ?? now
    const ranMs = now.atMs - atMs - (now.waitedMs - waitedMs)
    this.#stillMs = now.turns === turns ? this.#stillMs + Math.min(Math.max(0, ranMs), this.#lookMs) : 0
    this.#last = now
    return this.#stillMs
  }
}

export interface LoopSample {
  /** Of the event loop, so far. */
  turns: number
  /** By a clock that is never set. */
  atMs: number
  /** For a core, so far. */
  waitedMs: number
}
