import { compareVersions, type Held, type View } from './guard.ts'

/**
 * Where the objects touched last stand, by identity: lets the first compare-and-set hit without a read. Each as one flat
 * string, since there are tens of thousands: with its key 0.15 KiB instead of 0.6.
 */
export class Memory {
  readonly #limit: number
  readonly #views = new Map<string, string>()

  constructor(limit: number) {
    this.#limit = limit
  }

  get(identity: string): View | undefined {
    const text = this.#views.get(identity)
    return text === undefined ? undefined : unpacked(text)
  }

  /** The truth as of now. */
  set(identity: string, holder: Held, formerOwners: readonly string[]): void {
    this.#views.delete(identity)
    this.#views.set(identity, packed(holder, formerOwners))
    if (this.#views.size <= this.#limit) return
    const [oldest] = this.#views.keys()
    if (oldest !== undefined) this.#views.delete(oldest)
  }

  /** Seen in passing, perhaps after something later was learned. */
  learn(identity: string, held: Held): void {
    const known = this.get(identity)
    if (known?.held.some((copy) => copy.sequence >= held.sequence || !isLater(held, copy))) return
    this.set(identity, held, known?.formerOwners ?? [])
  }

  /** Removes the identities with this beginning. */
  forget(beginning: string): void {
    for (const identity of this.#views.keys()) if (identity.startsWith(beginning)) this.#views.delete(identity)
  }

  clear(): void {
    this.#views.clear()
  }
}

const isLater = (held: Held, known: Held): boolean =>
  (compareVersions(held.resourceVersion, known.resourceVersion) ?? 1) >= 0

type Packed = [Held['owner'], number, string, Held['verb'], boolean?, (string | null)?, ...string[]]

/** What is seldom anything else is left out. */
function packed({ owner, sequence, resourceVersion, verb, origin, partial }: Held, formerOwners: readonly string[]) {
  const isUsual = !partial && origin === undefined && formerOwners.length === 0
  const rest = isUsual ? [] : ([partial, origin ?? null, ...formerOwners] as const)
  return JSON.stringify([owner, sequence, resourceVersion, verb, ...rest] satisfies Packed)
}

function unpacked(text: string): View {
  const [owner, sequence, resourceVersion, verb, partial = false, origin, ...formerOwners] = JSON.parse(text) as Packed
  return { held: [{ owner, sequence, resourceVersion, verb, origin: origin ?? undefined, partial }], formerOwners }
}
