import { ownerPart, parseOwner } from '#events'
import { CompactMap } from '#primitives'
import { isLater, type Known } from './compare.ts'

const DELETED = 1
const COVERED = 2
const PARTIAL = 4
const STALE_COPY = 8

/**
 * The objects of a resource that EVENTS has, for the duration of a list. A cluster may have a million of them. An
 * object takes about 120 bytes, and each distinct owner about 60.
 */
export class KnownObjects {
  readonly #objects = new CompactMap()
  readonly #owners = new CompactMap()

  /** Adds an object. Keeps the latest of several copies, and notes that there are others. */
  add(key: string, known: Known): void {
    const text = this.#objects.get(key)
    if (text === undefined) return void this.#objects.set(key, this.#packed(known))
    const before = this.#unpacked(text)
    const [kept, other] = isLater(known, before) ? [known, before] : [before, known]
    const isElsewhere = ownerPart(other.owner) !== ownerPart(kept.owner)
    const hasStaleCopy = before.hasStaleCopy || (isElsewhere && !other.deleted)
    this.#objects.set(key, this.#packed({ ...kept, hasStaleCopy }))
  }

  /** Returns the object and removes it. */
  take(key: string): Known | undefined {
    const text = this.#objects.get(key)
    if (text === undefined) return undefined
    this.#objects.delete(key)
    return this.#unpacked(text)
  }

  *remaining(): Generator<[key: string, known: Known]> {
    for (const [key, text] of this.#objects.entries()) yield [key, this.#unpacked(text)]
  }

  #packed({ uid, resourceVersion, deleted, owner, covered, partial, sequence, hasStaleCopy }: Known): string {
    const position = owner === undefined ? '' : this.#owners.set(ownerPart(owner), '')
    const flags =
      (deleted ? DELETED : 0) | (covered ? COVERED : 0) | (partial ? PARTIAL : 0) | (hasStaleCopy ? STALE_COPY : 0)
    return [flags, sequence, uid, resourceVersion, position].join(' ')
  }

  #unpacked(text: string): Known {
    const [flags, sequence, uid = '', resourceVersion = '', owner = ''] = text.split(' ')
    const has = (flag: number): boolean => (Number(flags) & flag) !== 0
    return {
      uid,
      resourceVersion,
      deleted: has(DELETED),
      covered: has(COVERED),
      partial: has(PARTIAL),
      hasStaleCopy: has(STALE_COPY),
      sequence: Number(sequence),
      owner: owner === '' ? undefined : parseOwner(this.#owners.keyAt(Number(owner))),
    }
  }
}
