/**
 * Acts on each item, with at most this many actions under way. Resolves with the number of items. Rejects with the first
 * failure; after that no action begins.
 */
export async function forEachAtMost<Item>(
  most: number,
  items: Iterable<Item> | AsyncIterable<Item>,
  act: (item: Item, index: number) => Promise<void>,
): Promise<number> {
  // A generator answers concurrent calls of next() one by one, in order.
  const iterator = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]()
  let count = 0
  let isFailed = false
  const worker = async () => {
    for (let next = await iterator.next(); !isFailed && next.done !== true; next = await iterator.next()) {
      try {
        await act(next.value, count++)
      } catch (error) {
        isFailed = true
        throw error
      }
    }
  }
  try {
    await Promise.all(Array.from({ length: most }, worker))
  } catch (error) {
    void closed(iterator)
    throw error
  }
  return count
}

/** The results of all items, in their order. */
export async function mapAtMost<Item, Result>(
  most: number,
  items: readonly Item[],
  act: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  await forEachAtMost(Math.min(most, items.length), items, async (item, index) => {
    results[index] = await act(item)
  })
  return results
}

async function closed(iterator: Iterator<unknown> | AsyncIterator<unknown>): Promise<void> {
  await Promise.resolve(iterator.return?.()).catch(() => undefined)
}

/** A part of a budget that is in use. Disposing it gives back all of its bytes. */
export interface Grant extends Disposable {
  readonly bytes: number
  /**
   * Returns false if too few bytes are free, or if another reader waits. It does not wait, because waiting while it
   * holds a grant could deadlock.
   */
  grow(bytes: number): boolean
  /** Gives back everything above this size. */
  shrink(bytes: number): void
}

interface Waiting {
  bytes: number
  start: (grant: Grant) => void
}

/**
 * Bytes that several readers share. They are granted in the order of the requests. A reader that holds no grant while it
 * waits cannot be part of a deadlock.
 */
export class Budget {
  readonly capacity: number
  #free: number
  readonly #line: Waiting[] = []

  constructor(capacity: number) {
    this.capacity = capacity
    this.#free = capacity
  }

  get free(): number {
    return this.#free
  }

  get waiting(): number {
    return this.#line.length
  }

  /**
   * Rejects with the signal's reason if the signal is aborted first. A request for more than the capacity gets the
   * capacity.
   */
  acquire(bytes: number, signal?: AbortSignal): Promise<Grant> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason as Error)
      const refuse = () => {
        this.#line.splice(this.#line.indexOf(waiting), 1)
        reject(signal?.reason as Error)
        this.#admit()
      }
      const start = (grant: Grant) => {
        signal?.removeEventListener('abort', refuse)
        resolve(grant)
      }
      const waiting: Waiting = { bytes: Math.min(bytes, this.capacity), start }
      signal?.addEventListener('abort', refuse, { once: true })
      this.#line.push(waiting)
      this.#admit()
    })
  }

  #admit(): void {
    for (let next = this.#line[0]; next !== undefined && next.bytes <= this.#free; next = this.#line[0]) {
      this.#line.shift()
      this.#free -= next.bytes
      next.start(this.#grant(next.bytes))
    }
  }

  #grant(granted: number): Grant {
    let held = granted
    const shrink = (bytes: number) => {
      if (bytes >= held) return
      this.#free += held - bytes
      held = bytes
      this.#admit()
    }
    return {
      get bytes() {
        return held
      },
      grow: (bytes) => {
        const more = bytes - held
        if (more <= 0) return true
        if (more > this.#free || this.#line.length > 0) return false
        this.#free -= more
        held = bytes
        return true
      },
      shrink,
      [Symbol.dispose]: () => shrink(0),
    }
  }
}

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
