/**
 * The number of calls of set(), beyond one for each entry, after which the iterator is replaced. With this many, a new
 * iterator rarely has to skip deleted entries.
 */
const MOST_SETS = 1024

/** Holds the entries that were set last, up to a total weight. An entry that is set again counts as the newest. */
export class BoundedMap<Key, Value> {
  readonly #capacity: number
  readonly #weightOf: (value: Value) => number
  readonly #entries = new Map<Key, Value>()
  /**
   * An iterator that stands behind the last entry that was removed to make room. Each entry before it is deleted, or
   * was set again and is now at the end. A new iterator at each set() would skip thousands of deleted entries.
   */
  #oldest = this.#entries.keys()
  /**
   * The calls of set() since `#oldest` moved. V8 keeps each table that it replaces for as long as an iterator refers to
   * it.
   */
  #sets = 0
  #weight = 0

  /** Without `weightOf`, each entry has the weight 1, and the capacity is a number of entries. */
  constructor(capacity: number, weightOf: (value: Value) => number = () => 1) {
    this.#capacity = capacity
    this.#weightOf = weightOf
  }

  /** The total weight of all entries. */
  get weight(): number {
    return this.#weight
  }

  get(key: Key): Value | undefined {
    return this.#entries.get(key)
  }

  has(key: Key): boolean {
    return this.#entries.has(key)
  }

  keys(): MapIterator<Key> {
    return this.#entries.keys()
  }

  set(key: Key, value: Value): void {
    this.delete(key)
    this.#entries.set(key, value)
    this.#weight += this.#weightOf(value)
    if (++this.#sets > this.#entries.size + MOST_SETS) {
      this.#oldest = this.#entries.keys()
      this.#sets = 0
    }
    while (this.#weight > this.#capacity) {
      this.#sets = 0
      const oldest = this.#oldest.next()
      if (oldest.done === true) return
      this.delete(oldest.value)
    }
  }

  delete(key: Key): void {
    const value = this.#entries.get(key)
    if (this.#entries.delete(key)) this.#weight -= this.#weightOf(value as Value)
  }

  clear(): void {
    this.#entries.clear()
    this.#weight = 0
  }
}
