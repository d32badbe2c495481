import { LRUCache } from 'lru-cache'
import { pause, TokenBucket } from '#primitives'

/** A read is not repeated for so many times as long as it took. */
export const SHARE = 5
const ENTRIES = 500
/** Reads of all persons together, and of one. Beyond that they wait, so that the servers stay free for runs. */
export const READS = { perSecond: 50, burst: 100 }
export const READS_OF_PERSON = { perSecond: 25, burst: 50 }
const PEOPLE = 1000
/** A read that would wait for longer is refused. */
export const MOST_WAIT_MS = 3000

/** The person, or all persons together, read more than the console reads for them. */
export class BusyError extends Error {
  override readonly name = 'BusyError'
  /** The time after which to ask again. */
  readonly returnMs: number

  constructor(returnMs: number) {
    super('too many pages are read at once: close some tabs, or try again in a few seconds')
    this.returnMs = returnMs
  }
}

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
  readonly #entries = new LRUCache<string, Entry>({ max: ENTRIES })
  readonly #loading = new Map<string, Promise<unknown>>()
  readonly #now: () => number
  readonly #wait: (ms: number) => Promise<void>
  readonly #rate: TokenBucket
  /** Of the persons who read last. */
  readonly #rates: LRUCache<string, TokenBucket>

  constructor({ now = () => performance.now(), wait = pause }: CacheOptions = {}) {
    this.#now = now
    this.#wait = wait
    this.#rate = new TokenBucket(READS, now)
    this.#rates = new LRUCache({ max: PEOPLE, memoMethod: () => new TokenBucket(READS_OF_PERSON, now) })
  }

  /** `weight`: a read of several requests counts as so many reads. `person`: the name of the reader. */
  async get<T>(
    key: string,
    maxAgeMs: number,
    load: () => Promise<T>,
    { weight = 1, person = '' }: { weight?: number; person?: string } = {},
  ): Promise<T> {
    const known = this.#knownOrLoading(key, maxAgeMs)
    if (known !== undefined) return known as Promise<T>
    // Another person who wants the same does not wait for the turn of this person.
    await this.#turn(this.#rates.memo(person), weight)
    const meanwhile = this.#knownOrLoading(key, maxAgeMs) ?? this.#loadOnce(key, load, weight)
    return meanwhile as Promise<T>
  }

  /** After a write, the next read shows it. */
  clear(): void {
    this.#entries.clear()
  }

  #knownOrLoading(key: string, maxAgeMs: number): Promise<unknown> | undefined {
    const known = this.#entries.get(key)
    const age = this.#now() - (known?.at ?? 0)
    if (known && age < Math.max(maxAgeMs, known.costMs * SHARE)) return Promise.resolve(known.value)
    return this.#loading.get(key)
  }

  #loadOnce<T>(key: string, load: () => Promise<T>, weight: number): Promise<T> {
    const loading = this.#load(key, load, weight).finally(() => this.#loading.delete(key))
    this.#loading.set(key, loading)
    return loading
  }

  async #load<T>(key: string, load: () => Promise<T>, weight: number): Promise<T> {
    await this.#turn(this.#rate, weight)
    const started = this.#now()
    const value = await load()
    const at = this.#now()
    this.#entries.set(key, { value, at, costMs: at - started })
    return value
  }

  async #turn(rate: TokenBucket, weight: number): Promise<void> {
    const turn = rate.takeWithin(MOST_WAIT_MS, weight)
    if ('returnMs' in turn) throw new BusyError(turn.returnMs)
    if (turn.waitMs > 0) await this.#wait(turn.waitMs)
  }
}
