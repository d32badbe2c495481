export interface Rate {
  perSecond: number
  /** The number of calls that may pass at once after a time without calls. */
  burst: number
}

/** The longest time until a rejected call is to come back. */
const LONGEST_AWAY_MS = 300_000

/**
 * Limits calls to a rate. Waiting calls are served in the order in which they came. A call that would have to wait too
 * long is rejected with a time to come back. These times are spread at the rate, so that not all calls come back
 * together.
 */
export class TokenBucket {
  readonly #perMs: number
  readonly #burst: number
  readonly #now: () => number
  #tokens: number
  #filledAt: number
  /** When the last rejected call is to come back. */
  #lastReturn = 0

  /** `now` returns milliseconds of a monotonic clock. */
  constructor({ perSecond, burst }: Rate, now: () => number) {
    this.#perMs = perSecond / 1000
    this.#burst = burst
    this.#tokens = burst
    this.#now = now
    this.#filledAt = now()
  }

  /** Takes a token. Returns the time to wait for it in milliseconds; 0: no wait. Later calls wait longer. */
  take(): number {
    this.#fill()
    this.#tokens -= 1
    return this.#debtMs
  }

  /**
   * Takes tokens and returns the wait for them, if that is `maxWaitMs` at most. Otherwise takes none, and returns the
   * time after which to come back. Both are in milliseconds.
   */
  takeWithin(maxWaitMs: number, tokens = 1): { waitMs: number } | { returnMs: number } {
    this.#fill()
    this.#tokens -= tokens
    const waitMs = this.#debtMs
    if (waitMs <= maxWaitMs) return { waitMs }
    this.#tokens += tokens
    const now = this.#now()
    this.#lastReturn = Math.min(Math.max(now + waitMs, this.#lastReturn + tokens / this.#perMs), now + LONGEST_AWAY_MS)
    return { returnMs: this.#lastReturn - now }
  }

  get #debtMs(): number {
    return Math.max(0, -this.#tokens / this.#perMs)
  }

  #fill(): void {
    const now = this.#now()
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#filledAt) * this.#perMs)
    this.#filledAt = now
  }
}
