import { BoundedMap } from '#primitives'
import { NO_OWNER } from './subjects.ts'
import type { StoredEvent } from './types.ts'

/** The copy of one object on one subject in EVENTS, with the fields that a writer needs. */
export interface StoredCopy {
  /** The owner part of the subject. */
  owner: string
  sequence: number
  resourceVersion: string
  verb: StoredEvent['verb']
  origin: string | undefined
  /** True: only metadata. */
  partial: boolean
  /** True: when the copy was stored, its writer knew of no other copy, and of no owner that the object had left. */
  sole: boolean
}

/** All stored copies of one object, and the other owners that the object is known to have left. */
export interface StoredCopies {
  copies: readonly StoredCopy[]
  formerOwners: readonly string[]
}

/** The version that a writer has seen. */
export interface WantedVersion {
  owner: string
  resourceVersion: string
  verb: 'added' | 'modified' | 'deleted'
  /** See PutOptions. */
  overrides?: number
}

export type VersionDecision = {
  /** Copies under other owners that this version, or the stored newer version, makes obsolete. */
  obsolete: StoredCopy[]
} & (
  | { act: 'store' /** Last sequence of the wanted owner's subject. */; expected: number }
  | { act: 'keep'; outcome: 'present' | 'newer'; holder: StoredCopy }
)

/**
 * Decides whether a version may be stored, given all stored copies of that object. An older version never replaces a
 * newer one, and a deletion never replaces a version that was seen later, unless the caller overrides the stored
 * message. A version moves to an owner, never back to none.
 */
export function decideVersion(copies: readonly StoredCopy[], wanted: WantedVersion): VersionDecision {
  const holder = holderOf(copies)
  const keep = holder && reasonToKeep(holder, wanted)
  if (holder && keep)
    return {
      act: 'keep',
      outcome: keep,
      holder,
      obsolete: liveElsewhere(copies, holder.owner, holder.resourceVersion).filter(
        (copy) => keep === 'present' || isOlder(copy, holder),
      ),
    }
  return {
    act: 'store',
    expected: copies.find(({ owner }) => owner === wanted.owner)?.sequence ?? 0,
    obsolete: [
      ...liveElsewhere(copies, wanted.owner, wanted.resourceVersion),
      ...copies.filter((copy) => copy.owner !== wanted.owner && isOverridden(copy, wanted)),
    ],
  }
}

/** The fields of a copy that decide whether it counts. */
export type RankedCopy = Pick<StoredCopy, 'sequence' | 'resourceVersion' | 'verb'>

/** Returns the copy that counts. */
export const holderOf = <Copy extends RankedCopy>(copies: readonly Copy[]): Copy | undefined =>
  copies.reduce<Copy | undefined>((best, next) => (best && !outranks(next, best) ? best : next), undefined)

/** Whether the copy holds an object. */
export const isPresent = ({ verb }: Pick<StoredCopy, 'verb'>): boolean => verb === 'added' || verb === 'modified'

export const storedCopiesOf = (copies: readonly StoredCopy[]): StoredCopies => ({
  copies,
  formerOwners: copies.filter(({ verb }) => verb === 'moved').map(({ owner }) => owner),
})

/**
 * Whether a copy that is stored now is the only one: all known copies are under this owner, and the object has left no
 * other owner. If the object has no copy, or a deletion only, the object must be new: the writer of an earlier version may
 * not have stored it yet, under another owner. For the same reason, a dispatcher, which has an origin and may be ahead of
 * the bridge, needs a copy that is the only one already, or that a bridge has stored.
 */
export const isSole = (
  { copies, formerOwners }: StoredCopies,
  { owner, verb, origin }: Pick<WantedVersion, 'owner' | 'verb'> & Pick<StoredCopy, 'origin'>,
): boolean =>
  formerOwners.length === 0 &&
  (copies.some(isPresent) || verb === 'added') &&
  copies.every((copy) => copy.owner === owner && (origin === undefined || copy.sole || copy.origin === undefined))

/** Returns the owners that the object has left, or leaves now. Their keys must be enqueued. */
export const leftOwners = (stored: StoredCopies, moved: readonly StoredCopy[], owner: string): string[] =>
  [...new Set([...stored.formerOwners, ...moved.map((copy) => copy.owner)])].filter(
    (former) => former !== owner && former !== NO_OWNER,
  )

/**
 * Compares two resourceVersions. Kubernetes documents since 1.35 that the resourceVersions of one resource compare as
 * integers. Returns undefined for versions that differ and are not integers.
 */
export function compareVersions(a: string, b: string): number | undefined {
  if (a === b) return 0
  if (!VERSION.test(a) || !VERSION.test(b)) return undefined
  if (a.length !== b.length) return a.length - b.length
  return a < b ? -1 : 1
}

const VERSION = /^[1-9]\d*$/

function reasonToKeep(holder: StoredCopy, wanted: WantedVersion): 'present' | 'newer' | undefined {
  const order = compareVersions(wanted.resourceVersion, holder.resourceVersion)
  // A version that does not compare is stored: a watch delivers in order, so the last write is the latest in the end.
  if (order === undefined || order > 0 || isOverridden(holder, wanted)) return undefined
  if (order < 0) return 'newer'
  const deletion = wanted.verb === 'deleted'
  if (holder.verb === 'deleted') return deletion ? 'present' : 'newer'
  if (holder.verb === 'moved' || deletion) return undefined
  return wanted.owner === holder.owner || wanted.owner === NO_OWNER ? 'present' : undefined
}

/**
 * Whether a copy is older than the holder. Among copies of one version, only the writer of that version can decide
 * which one stays.
 */
const isOlder = (copy: StoredCopy, holder: StoredCopy): boolean =>
  (compareVersions(copy.resourceVersion, holder.resourceVersion) ?? 0) < 0

const isOverridden = ({ sequence }: StoredCopy, { overrides }: WantedVersion): boolean => sequence === overrides

/**
 * Whether a copy counts before another: the later version does. In one version, a deletion counts before the object,
 * and both count before the note that the object moved.
 */
function outranks(next: RankedCopy, best: RankedCopy): boolean {
  const order = compareVersions(next.resourceVersion, best.resourceVersion)
  if (order === undefined) return next.sequence > best.sequence
  return order === 0 ? rank(next) > rank(best) : order > 0
}

const rank = ({ verb }: RankedCopy): number => (verb === 'deleted' ? 2 : verb === 'moved' ? 0 : 1)

const liveElsewhere = (copies: readonly StoredCopy[], owner: string, version: string): StoredCopy[] =>
  copies.filter(
    (copy) => copy.owner !== owner && isPresent(copy) && (compareVersions(copy.resourceVersion, version) ?? 1) <= 0,
  )

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
  observe(identity: string, latest: StoredCopy): void {
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

type Packed = [string, number, string, StoredCopy['verb'], boolean?, boolean?, (string | null)?, ...string[]]

/** Leaves out the fields that have their usual value. */
function packed(
  { owner, sequence, resourceVersion, verb, sole, partial, origin }: StoredCopy,
  formerOwners: readonly string[],
) {
  const isUsual = sole && !partial && origin === undefined && formerOwners.length === 0
  const rest = isUsual ? [] : ([sole, partial, origin ?? null, ...formerOwners] as const)
  return JSON.stringify([owner, sequence, resourceVersion, verb, ...rest] satisfies Packed)
}

function unpacked(text: string): StoredCopies {
  const fields: Packed = JSON.parse(text)
  const [owner, sequence, resourceVersion, verb, sole = true, partial = false, origin, ...formerOwners] = fields
  const copy = { owner, sequence, resourceVersion, verb, origin: origin ?? undefined, partial, sole }
  return { copies: [copy], formerOwners }
}
