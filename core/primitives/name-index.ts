/**
 * The names that each key refers to, in both directions. If a key refers to other names, the earlier ones are found
 * too.
 */
export class NameIndex {
  readonly #names = new Map<string, readonly string[]>()
  readonly #keys = new Map<string, string | Set<string>>()
  #size = 0

  /** The number of pairs of a key and a name. */
  get size(): number {
    return this.#size
  }

  /** Sets the names that a key refers to. Returns whether they have changed. */
  set(key: string, names: readonly string[]): boolean {
    const before = this.#names.get(key) ?? []
    const kept = new Set(names)
    for (const name of before) if (!kept.has(name)) this.#remove(name, key)
    for (const name of names) this.#add(name, key)
    if (names.length === 0) this.#names.delete(key)
    else this.#names.set(key, names)
    this.#size += names.length - before.length
    return before.length !== names.length || before.some((name, index) => name !== names[index])
  }

  keysOf(name: string): string[] {
    const keys = this.#keys.get(name)
    if (keys === undefined) return []
    return typeof keys === 'string' ? [keys] : [...keys]
  }

  /** Whether a key refers to the name. */
  isNamed(name: string): boolean {
    return this.#keys.has(name)
  }

  has(name: string, key: string): boolean {
    const keys = this.#keys.get(name)
    return keys === key || (typeof keys === 'object' && keys.has(key))
  }

  #add(name: string, key: string): void {
    const keys = this.#keys.get(name)
    if (keys === undefined || keys === key) this.#keys.set(name, key)
    else if (typeof keys === 'string') this.#keys.set(name, new Set([keys, key]))
    else keys.add(key)
  }

  #remove(name: string, key: string): void {
    const keys = this.#keys.get(name)
    if (typeof keys === 'object') keys.delete(key)
    if (keys === key || (typeof keys === 'object' && keys.size === 0)) this.#keys.delete(name)
  }
}
