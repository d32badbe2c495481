import { BoundedMap } from '#primitives'

/** Reads take this share of the time at most. */
const SHARE = 20
const ENTRIES = 500

interface Entry {
  value: unknown
  at: number
  costMs: number
}

/** What several tabs look at is read once, and the more a read costs, the more seldom. */
export class Cache {
  readonly #entries = new BoundedMap<string, Entry>(ENTRIES)
  readonly #loading = new Map<string, Promise<unknown>>()

  async get<T>(key: string, maxAgeMs: number, load: () => Promise<T>): Promise<T> {
    const known = this.#entries.get(key)
    const age = performance.now() - (known?.at ?? 0)
    if (known && age < Math.max(maxAgeMs, known.costMs * SHARE)) return known.value as T
    const under = this.#loading.get(key) ?? this.#load(key, load)
    return under as Promise<T>
  }

  /** After a write, the next read shows it. */
  clear(): void {
    this.#entries.clear()
  }

  async #load<T>(key: string, load: () => Promise<T>): Promise<T> {
    const started = performance.now()
    const loading = load().finally(() => this.#loading.delete(key))
    this.#loading.set(key, loading)
    const value = await loading
    const at = performance.now()
    this.#entries.set(key, { value, at, costMs: at - started })
    return value
  }
}
