import { compareVersions, type Held, type View } from './guard.ts'

/** Where the objects touched last stand, by identity: lets the first compare-and-set hit without a read. */
export class Memory {
  readonly #limit: number
  readonly #views = new Map<string, View>()

  constructor(limit: number) {
    this.#limit = limit
  }

  get(identity: string): View | undefined {
    return this.#views.get(identity)
  }

  /** The truth as of now. */
  set(identity: string, holder: Held, formerOwners: readonly string[]): void {
    this.#views.delete(identity)
    this.#views.set(identity, { held: [holder], formerOwners })
    if (this.#views.size <= this.#limit) return
    const [oldest] = this.#views.keys()
    if (oldest !== undefined) this.#views.delete(oldest)
  }

  /** Seen in passing, perhaps after something later was learned. */
  learn(identity: string, held: Held): void {
    const known = this.#views.get(identity)
    if (known?.held.some((copy) => copy.sequence >= held.sequence || !isLater(held, copy))) return
    this.set(identity, held, known?.formerOwners ?? [])
  }

  clear(): void {
    this.#views.clear()
  }
}

const isLater = (held: Held, known: Held): boolean =>
  (compareVersions(held.resourceVersion, known.resourceVersion) ?? 1) >= 0
