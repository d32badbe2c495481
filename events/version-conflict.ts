import { NO_OWNER } from './subjects.ts'
import type { StoredEvent } from './types.ts'

/** What EVENTS holds of one object on one subject, as far as a writer has to know. */
export interface StoredCopy {
  /** The owner part of the subject. */
  owner: string
  sequence: number
  resourceVersion: string
  verb: StoredEvent['verb']
  origin: string | undefined
  /** Metadata only. */
  partial: boolean
  /** Whoever stored it knew of no other copy, and of no owner that the object had left. */
  sole: boolean
}

/** All stored copies of one object, and the other owners that it is known to have left. */
export interface StoredCopies {
  copies: readonly StoredCopy[]
  formerOwners: readonly string[]
}

/** What a writer has seen. */
export interface WantedVersion {
  owner: string
  resourceVersion: string
  verb: 'added' | 'modified' | 'deleted'
  /** See PutOptions. */
  disproves?: number | undefined
}

export type VersionDecision = {
  /** Copies under other owners that are out of use by this very version, or by the newer one that is there. */
  retire: StoredCopy[]
} & (
  | { act: 'store' /** Last sequence of the wanted owner's subject. */; expected: number }
  | { act: 'keep'; outcome: 'present' | 'newer'; holder: StoredCopy }
)

/**
 * Whether a version may be stored, given all stored copies of that object. An older version never replaces a newer one,
 * and a deletion the version that it was last seen with, unless who has that version disproves what is stored; a version
 * moves to an owner, never back to none.
 */
export function decideVersion(copies: readonly StoredCopy[], wanted: WantedVersion): VersionDecision {
  const holder = holderOf(copies)
  const keep = holder && reasonToKeep(holder, wanted)
  if (holder && keep)
    return {
      act: 'keep',
      outcome: keep,
      holder,
      retire: liveElsewhere(copies, holder.owner, holder.resourceVersion).filter(
        (copy) => keep === 'present' || isOlder(copy, holder),
      ),
    }
  return {
    act: 'store',
    expected: copies.find(({ owner }) => owner === wanted.owner)?.sequence ?? 0,
    retire: [
      ...liveElsewhere(copies, wanted.owner, wanted.resourceVersion),
      ...copies.filter((copy) => copy.owner !== wanted.owner && isDisproved(copy, wanted)),
    ],
  }
}

/** What of a copy says whether it counts. */
export type RankedCopy = Pick<StoredCopy, 'sequence' | 'resourceVersion' | 'verb'>

/** The copy that counts. */
export const holderOf = <Copy extends RankedCopy>(copies: readonly Copy[]): Copy | undefined =>
  copies.reduce<Copy | undefined>((best, next) => (best && !outranks(next, best) ? best : next), undefined)

/** There is an object in it. */
export const isPresent = ({ verb }: Pick<StoredCopy, 'verb'>): boolean => verb === 'added' || verb === 'modified'

export const storedCopiesOf = (copies: readonly StoredCopy[]): StoredCopies => ({
  copies,
  formerOwners: copies.filter(({ verb }) => verb === 'moved').map(({ owner }) => owner),
})

/** Nothing of the object is known but copies under this owner. */
export const isSole = ({ copies, formerOwners }: StoredCopies, owner: string): boolean =>
  formerOwners.length === 0 && copies.every((copy) => copy.owner === owner)

/** Owners that the object has left, or leaves now: they have to look at what they own again. */
export const leftOwners = (stored: StoredCopies, retired: readonly StoredCopy[], owner: string): string[] =>
  [...new Set([...stored.formerOwners, ...retired.map((copy) => copy.owner)])].filter(
    (former) => former !== owner && former !== NO_OWNER,
  )

/**
 * Kubernetes documents since 1.35 that the resourceVersions of one resource compare as integers. Those of an API
 * server that does otherwise do not compare: undefined unless they are equal.
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
  // What does not compare is stored: a watch delivers in order, so the last one written is the latest in the end.
  if (order === undefined || order > 0 || isDisproved(holder, wanted)) return undefined
  if (order < 0) return 'newer'
  const deletion = wanted.verb === 'deleted'
  if (holder.verb === 'deleted') return deletion ? 'present' : 'newer'
  if (holder.verb === 'moved' || deletion) return undefined
  return wanted.owner === holder.owner || wanted.owner === NO_OWNER ? 'present' : undefined
}

/** Of copies of one version, only who brings that version knows which is to stay. */
const isOlder = (copy: StoredCopy, holder: StoredCopy): boolean =>
  (compareVersions(copy.resourceVersion, holder.resourceVersion) ?? 0) < 0

const isDisproved = ({ sequence }: StoredCopy, { disproves }: WantedVersion): boolean => sequence === disproves

/** The later version counts; of one version the deletion before the object, and both before the note that it moved. */
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
