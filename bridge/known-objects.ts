import { ownerPart, parseOwner } from '#events'
import { CompactMap } from '#primitives'
import { isLater, type Known } from './compare.ts'

const DELETED = 1
const COVERED = 2
const PARTIAL = 4

/**
 * The objects of a resource that EVENTS has, for the duration of a list. A cluster may have a million of them. An
 * object takes about 120 bytes, and each distinct owner about 60.
 */
export class KnownObjects {
  readonly #objects = new CompactMap()
  readonly #owners = new CompactMap()

  /** Adds an object. Keeps the latest of several copies. */
  add(key: string, known: Known): void {
    const before = this.#objects.get(key)
    if (before === undefined || isLater(known, this.#unpacked(before))) this.#objects.set(key, this.#packed(known))
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

  #packed({ uid, resourceVersion, deleted, owner, covered, partial, sequence }: Known): string {
    const position = owner === undefined ? '' : this.#owners.set(ownerPart(owner), '')
    const flags = (deleted ? DELETED : 0) | (covered ? COVERED : 0) | (partial ? PARTIAL : 0)
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
      sequence: Number(sequence),
      owner: owner === '' ? undefined : parseOwner(this.#owners.keyAt(Number(owner))),
    }
  }
}
