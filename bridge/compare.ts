import type { KubeObject } from '#contracts'
import { compareVersions, type Identity, type OwnerKey, ownerPart } from '#events'

/** The state of one object in EVENTS. */
export interface Known {
  uid: string
  resourceVersion: string
  deleted: boolean
  owner: OwnerKey | undefined
  /** A cursor says that its keys were enqueued for this version. */
  covered: boolean
  /** Only its metadata are there. */
  partial: boolean
  /** In EVENTS. */
  sequence: number
}

/** What a listed object is, given what EVENTS has; `replaced`: another one of that name, whose end nobody has told. */
export type Difference = 'added' | 'modified' | 'replaced' | 'same'

/** A cursor, as a place in the API server's history and in EVENTS. */
export interface CoveredUpTo {
  resourceVersion: string
  sequence: number
}

export function known(identity: Identity, coveredUpTo: CoveredUpTo | undefined): Known {
  const { uid, resourceVersion, deleted, owner, referenceOnly: partial, sequence } = identity
  return { uid, resourceVersion, deleted, owner, partial, sequence, covered: isCovered(identity, coveredUpTo) }
}

/** Of two copies in EVENTS, as its writers see it: of one version the deletion counts. */
export function isLater(one: Pick<Known, 'resourceVersion' | 'deleted'>, other: Known): boolean {
  const order = compareVersions(one.resourceVersion, other.resourceVersion) ?? 1
  return order > 0 || (order === 0 && one.deleted)
}

/**
 * The sequence of what EVENTS has of a listed object and cannot be so: its end, where it is listed as it was then and had
 * only left a selection; a later version, where the API server was restored from a backup.
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

/** Both places, since a deletion that a list has found carries a resourceVersion from long before. */
const isCovered = ({ resourceVersion, sequence }: Identity, cursor: CoveredUpTo | undefined): boolean =>
  cursor !== undefined &&
  sequence < cursor.sequence &&
  (compareVersions(resourceVersion, cursor.resourceVersion) ?? 1) <= 0
