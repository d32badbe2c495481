/** Beyond one for each entry: so the new iterator seldom has to pass what was removed. */
const MOST_SETS = 1024

/** Holds the entries that were set last, up to a total weight. An entry that is set again counts as the newest. */
export class BoundedMap<Key, Value> {
  readonly #capacity: number
  readonly #weightOf: (value: Value) => number
  readonly #entries = new Map<Key, Value>()
  /**
   * Stands behind the entry that was removed last to make room: an entry before it is gone, or was set again and stands at the
   * end. A new iterator would pass every removed entry, thousands of them, at each set().
   */
  #oldest = this.#entries.keys()
  /** Since `#oldest` has moved. An iterator that stands still keeps every table that V8 has replaced since. */
  #sets = 0
  #weight = 0

  /** Without `weightOf`, each entry has the weight 1: the capacity is a number of entries. */
  constructor(capacity: number, weightOf: (value: Value) => number = () => 1) {
    this.#capacity = capacity
    this.#weightOf = weightOf
  }

  /** Of all entries together. */
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
