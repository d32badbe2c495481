import { BoundedMap, pause, TokenBucket } from '#primitives'

/** A read is not repeated for so many times as long as it took. */
export const SHARE = 5
const ENTRIES = 500
/** Reads of all tabs together. Beyond that they wait, so that the servers stay free for runs. */
export const READS = { perSecond: 50, burst: 100 }

interface Entry {
  value: unknown
  at: number
  costMs: number
}

interface CacheOptions {
  /** Milliseconds of a clock that only goes forward. */
  now?: () => number
  wait?: (ms: number) => Promise<void>
}

/** What several tabs look at is read once, and the more a read costs, the more seldom. */
export class Cache {
  readonly #entries = new BoundedMap<string, Entry>(ENTRIES)
  readonly #loading = new Map<string, Promise<unknown>>()
  readonly #now: () => number
  readonly #wait: (ms: number) => Promise<void>
  readonly #rate: TokenBucket

  constructor({ now = () => performance.now(), wait = pause }: CacheOptions = {}) {
    this.#now = now
    this.#wait = wait
    this.#rate = new TokenBucket(READS, now)
  }

  /** `weight`: a read of several requests counts as so many reads. */
  async get<T>(key: string, maxAgeMs: number, load: () => Promise<T>, weight = 1): Promise<T> {
    const known = this.#entries.get(key)
    const age = this.#now() - (known?.at ?? 0)
    if (known && age < Math.max(maxAgeMs, known.costMs * SHARE)) return known.value as T
    const under = this.#loading.get(key) ?? this.#loadOnce(key, load, weight)
    return under as Promise<T>
  }

  /** After a write, the next read shows it. */
  clear(): void {
    this.#entries.clear()
  }

  #loadOnce<T>(key: string, load: () => Promise<T>, weight: number): Promise<T> {
    const loading = this.#load(key, load, weight).finally(() => this.#loading.delete(key))
    this.#loading.set(key, loading)
    return loading
  }

  async #load<T>(key: string, load: () => Promise<T>, weight: number): Promise<T> {
    let waitMs = 0
    for (let token = 0; token < weight; token++) waitMs = this.#rate.take()
    if (waitMs > 0) await this.#wait(waitMs)
    const started = this.#now()
    const value = await load()
    const at = this.#now()
    this.#entries.set(key, { value, at, costMs: at - started })
    return value
  }
}
