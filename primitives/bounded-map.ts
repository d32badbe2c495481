/** Holds the entries that were set last, up to a total weight. An entry that is set again counts as the newest. */
export class BoundedMap<Key, Value> {
  readonly #capacity: number
  readonly #weightOf: (value: Value) => number
  readonly #entries = new Map<Key, Value>()
  /**
   * Stands behind the entry that was removed last to make room: an entry before it is gone, or was set again and stands at the
   * end. A new iterator would pass every removed entry, thousands of them, at each set().
   */
  readonly #oldest = this.#entries.keys()
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
    while (this.#weight > this.#capacity) {
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
