import { BoundedMap } from '#primitives'
import { compareVersions, type StoredCopies, type StoredCopy } from './version-conflict.ts'

/**
 * The last known message of each recently used object, keyed by identity, so that the first compare-and-set succeeds
 * without a read. Each entry is one flat string, because there are tens of thousands: 0.15 KiB with its key instead of
 * 0.6 KiB.
 */
export class Memory {
  readonly #views: BoundedMap<string, string>

  constructor(limit: number) {
    this.#views = new BoundedMap(limit)
  }

  get(identity: string): StoredCopies | undefined {
    const text = this.#views.get(identity)
    return text === undefined ? undefined : unpacked(text)
  }

  /** Stores the present state of an object. */
  set(identity: string, holder: StoredCopy, formerOwners: readonly string[]): void {
    this.#views.set(identity, packed(holder, formerOwners))
  }

  /** Stores a state that was read in passing, unless a later one is known. */
  learn(identity: string, latest: StoredCopy): void {
    const known = this.get(identity)
    if (known?.copies.some((copy) => copy.sequence >= latest.sequence || !isLater(latest, copy))) return
    this.set(identity, latest, known?.formerOwners ?? [])
  }

  /** Removes the identities that begin with this text. */
  forget(beginning: string): void {
    for (const identity of this.#views.keys()) if (identity.startsWith(beginning)) this.#views.delete(identity)
  }

  clear(): void {
    this.#views.clear()
  }
}

const isLater = (latest: StoredCopy, known: StoredCopy): boolean =>
  (compareVersions(latest.resourceVersion, known.resourceVersion) ?? 1) >= 0

type Packed = [StoredCopy['owner'], number, string, StoredCopy['verb'], boolean?, (string | null)?, ...string[]]

/** Leaves out the fields that have their usual value. */
function packed(
  { owner, sequence, resourceVersion, verb, origin, partial }: StoredCopy,
  formerOwners: readonly string[],
) {
  const isUsual = !partial && origin === undefined && formerOwners.length === 0
  const rest = isUsual ? [] : ([partial, origin ?? null, ...formerOwners] as const)
  return JSON.stringify([owner, sequence, resourceVersion, verb, ...rest] satisfies Packed)
}

function unpacked(text: string): StoredCopies {
  const [owner, sequence, resourceVersion, verb, partial = false, origin, ...formerOwners] = JSON.parse(text) as Packed
  const copy = { owner, sequence, resourceVersion, verb, origin: origin ?? undefined, partial }
  return { copies: [{ ...copy, sole: formerOwners.length === 0 }], formerOwners }
}
