/** The keys of many owners, found by key. One set of keys per owner would make each lookup ask every set. */
export class MemberIndex<Owner> {
  readonly #byKey = new Map<string, readonly Owner[]>()
  /**
   * One list per owner, shared by all keys that only this owner has. Such a key takes no more than an entry of the map.
   */
  readonly #alone = new Map<Owner, readonly Owner[]>()

  of(key: string): readonly Owner[] {
    return this.#byKey.get(key) ?? []
  }

  setOf(owner: Owner): MemberSet {
    return {
      has: (key) => this.of(key).includes(owner),
      add: (key) => this.#add(key, owner),
      delete: (key) => this.#delete(key, owner),
    }
  }

  drop(owner: Owner): void {
    for (const key of this.#byKey.keys()) this.#delete(key, owner)
    this.#alone.delete(owner)
  }

  #add(key: string, owner: Owner): void {
    const before = this.of(key)
    if (before.includes(owner)) return
    this.#byKey.set(key, before.length === 0 ? this.#only(owner) : [...before, owner])
  }

  #delete(key: string, owner: Owner): void {
    const before = this.of(key)
    if (!before.includes(owner)) return
    const left = before.filter((one) => one !== owner)
    const [only] = left
    if (only === undefined) this.#byKey.delete(key)
    else this.#byKey.set(key, left.length === 1 ? this.#only(only) : left)
  }

  #only(owner: Owner): readonly Owner[] {
    const alone = this.#alone.get(owner) ?? [owner]
    this.#alone.set(owner, alone)
    return alone
  }
}

export interface MemberSet {
  has(key: string): boolean
  add(key: string): void
  delete(key: string): void
}
