export interface Rate {
  perSecond: number
  /** Calls at once after a time without calls. */
  burst: number
}

/** The longest time until a call that is turned away is to come back. */
const LONGEST_AWAY_MS = 300_000

/**
 * Limits calls to a rate. Calls that wait are served in the order in which they came. A call that would wait too long is
 * turned away with a time to come back; these times are spread at the rate, so that not all come back together.
 */
export class TokenBucket {
  readonly #perMs: number
  readonly #burst: number
  readonly #now: () => number
  #tokens: number
  #filledAt: number
  /** When the last call that was turned away is to come back. */
  #lastReturn = 0

  /** `now`: milliseconds of a clock that only goes forward. */
  constructor({ perSecond, burst }: Rate, now: () => number) {
    this.#perMs = perSecond / 1000
    this.#burst = burst
    this.#tokens = burst
    this.#now = now
    this.#filledAt = now()
  }

  /** Takes a token. Returns the time to wait for it in milliseconds; 0: none. Later calls wait longer. */
  take(): number {
    this.#fill()
    this.#tokens -= 1
    return this.#debtMs
  }

  /** Takes a token if the wait for it is not longer than that; otherwise tells when to come back. */
  takeWithin(maxWaitMs: number): { waitMs: number } | { returnMs: number } {
    const waitMs = this.take()
    if (waitMs <= maxWaitMs) return { waitMs }
    this.#tokens += 1
    const now = this.#now()
    this.#lastReturn = Math.min(Math.max(now + waitMs, this.#lastReturn + 1 / this.#perMs), now + LONGEST_AWAY_MS)
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
