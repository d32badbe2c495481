import type { KubeObject } from '#contracts'
import { compareVersions, type Identity, type OwnerKey, ownerPart } from '#events'

/** The state of one object in EVENTS. */
export interface Known {
  uid: string
  resourceVersion: string
  deleted: boolean
  owner: OwnerKey | undefined
  /** According to a cursor, the keys of this version were enqueued. */
  covered: boolean
  /** EVENTS has only the metadata of the object. */
  partial: boolean
  /** The sequence in EVENTS. */
  sequence: number
  /** EVENTS has another copy of the object, under an owner that it has left: a writer has died during a move. */
  hasStaleCopy: boolean
}

/**
 * The difference between a listed object and its state in EVENTS. `replaced`: EVENTS has an earlier object of this
 * name, whose deletion was not reported.
 */
export type Difference = 'added' | 'modified' | 'replaced' | 'same'

/** The position of a cursor in the API server's history and in EVENTS. */
export interface CoveredUpTo {
  resourceVersion: string
  sequence: number
}

export function known(identity: Identity, coveredUpTo: CoveredUpTo | undefined): Known {
  const { uid, resourceVersion, deleted, owner, referenceOnly: partial, sequence } = identity
  const covered = isCovered(identity, coveredUpTo)
  return { uid, resourceVersion, deleted, owner, partial, sequence, covered, hasStaleCopy: false }
}

/**
 * Whether the first of two copies in EVENTS is the later one, by the rule of its writers. At the same version, the
 * deletion is the later copy.
 */
export function isLater(one: Pick<Known, 'resourceVersion' | 'deleted'>, other: Known): boolean {
  const order = compareVersions(one.resourceVersion, other.resourceVersion) ?? 1
  return order > 0 || (order === 0 && one.deleted)
}

/**
 * Returns the sequence of a state in EVENTS that the listed object disproves. That is a deletion of the same version,
 * after which the object is back in a selection; or a later version, if the API server was restored from a backup.
 */
export function disproved(before: Known | undefined, { metadata }: KubeObject): number | undefined {
  if (before === undefined) return undefined
  const order = compareVersions(metadata.resourceVersion ?? '', before.resourceVersion) ?? 1
  const isBack = before.deleted && before.uid === metadata.uid && order === 0
  return isBack || order < 0 ? before.sequence : undefined
}

export function difference(before: Known | undefined, object: KubeObject, owner: OwnerKey | undefined): Difference {
  if (before === undefined || before.deleted) return 'added'
  const { uid, resourceVersion } = object.metadata
  if (before.uid !== uid) return disproved(before, object) === undefined ? 'replaced' : 'added'
  const sameOwner = owner === undefined || ownerPart(before.owner) === ownerPart(owner)
  return before.resourceVersion === resourceVersion && sameOwner ? 'same' : 'modified'
}

/** Compares both positions, because a deletion that a list has found has a resourceVersion from long before. */
const isCovered = ({ resourceVersion, sequence }: Identity, cursor: CoveredUpTo | undefined): boolean =>
  cursor !== undefined &&
  sequence < cursor.sequence &&
  (compareVersions(resourceVersion, cursor.resourceVersion) ?? 1) <= 0
