import { BoundedMap } from '#primitives'

interface Entry<Value> {
  /** The time of the question: the answer may be as old as that. */
  askedAt: number
  answer: Promise<Value>
}

export interface TimedCacheOptions {
  entries: number
  /** How long an answer counts, from the time it was asked for. */
  ms: number
  /** Milliseconds of a clock that only goes forward. */
  now: () => number
}

/** Answers of a server, for a bounded time. Equal questions at one time are asked once. A failure is not kept. */
export class TimedCache<Value> {
  readonly #options: TimedCacheOptions
  readonly #entries: BoundedMap<string, Entry<Value>>

  constructor(options: TimedCacheOptions) {
    this.#options = options
    this.#entries = new BoundedMap(options.entries)
  }

  /** Undefined: not known, or known for too long. */
  known(key: string): Promise<Value> | undefined {
    const { now, ms } = this.#options
    const entry = this.#entries.get(key)
    return entry !== undefined && now() - entry.askedAt < ms ? entry.answer : undefined
  }

  get(key: string, ask: () => Promise<Value>): Promise<Value> {
    const known = this.known(key)
    if (known !== undefined) return known
    const entry: Entry<Value> = { askedAt: this.#options.now(), answer: ask() }
    this.#entries.set(key, entry)
    entry.answer.catch(() => {
      if (this.#entries.get(key) === entry) this.#entries.delete(key)
    })
    return entry.answer
  }
}
