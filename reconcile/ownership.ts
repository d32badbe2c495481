import { hash } from 'node:crypto'
import { controllerOf, groupOf, isRecord, type KubeObject } from '#contracts'
import { RETAINED_FOR, retainerOf } from '#spec'
import { called, type Family, findOwned, type OwnedObject } from './world.ts'

/**
 * The annotation that names the reconciler that created or adopted the object. The request that creates the object sets
 * it.
 */
export const RECONCILER_ANNOTATION = 'fairlead.dev/reconciler'

type Child = Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'>

/** An owner, of which only the uid matters. */
type OwnerUid = { metadata: { uid?: string } }

/**
 * Returns the value of the annotation. Controllers and users copy annotations to other objects. The digest matches one
 * owner, kind, namespace and name only, so a copy does not count.
 */
export function ownershipMark(identity: string, owner: OwnerUid, { apiVersion, kind, metadata }: Child): string {
  const bound = [identity, owner.metadata.uid, groupOf(apiVersion), kind, metadata.namespace ?? '', metadata.name]
  return `${identity}/${hash('sha256', JSON.stringify(bound), 'base64url').slice(0, 16)}`
}

/**
 * Returns the identity of the reconciler that has marked the object. Undefined if it has no mark, or a copy of another
 * object's.
 */
export function markedBy(owner: OwnerUid, child: Child): string | undefined {
  const [identity = '', ...others] = (child.metadata.annotations?.[RECONCILER_ANNOTATION] ?? '').split('/')
  const isValid = others.length === 1 && isMarkedBy(identity, owner, child)
  return isValid ? identity : undefined
}

export const isMarkedBy = (identity: string, owner: OwnerUid, child: Child): boolean =>
  child.metadata.annotations?.[RECONCILER_ANNOTATION] === ownershipMark(identity, owner, child)

/** Returns the field manager, whose name the API server limits to 128 characters. */
export const fieldManagerOf = (identity: string): string => `fairlead-${identity}`.slice(0, 128)

/**
 * Whether the reconciler has created or adopted the object. `live` is the object as the API server has it, with its
 * managedFields. An object without a mark counts as the reconciler's if the reconciler wrote the reference to its
 * owner: it was created before marks existed, or the mark was removed.
 */
export function isCreatedBy(identity: string, owner: KubeObject, live: KubeObject): boolean {
  const marked = markedBy(owner, live)
  return marked === undefined ? hasWrittenOwner(fieldManagerOf(identity), owner, live) : marked === identity
}

/** Writes of finalizers and status have the same field manager, but do not have this field. */
function hasWrittenOwner(fieldManager: string, owner: KubeObject, live: KubeObject): boolean {
  const { managedFields } = live.metadata
  const reference = `k:${JSON.stringify({ uid: owner.metadata.uid })}`
  return (
    Array.isArray(managedFields) &&
    managedFields.some(({ manager, fieldsV1 }: { manager?: unknown; fieldsV1?: unknown }) => {
      const metadata = fieldIn(fieldsV1, 'f:metadata')
      return manager === fieldManager && fieldIn(fieldIn(metadata, 'f:ownerReferences'), reference) !== undefined
    })
  )
}

const fieldIn = (fields: unknown, name: string): unknown => (isRecord(fields) ? fields[name] : undefined)

export const isRetained = (object: KubeObject): boolean => retainerOf(object) !== undefined

/**
 * Returns the merge patch that makes an object retained, or ends its retention, bound to the observed version.
 * Undefined if no patch is necessary. Server-side apply would not remove an owner reference that another manager or a
 * POST has written.
 */
export function retentionPatch(
  identity: string,
  owner: KubeObject,
  observed: KubeObject,
  wanted: KubeObject,
): object | undefined {
  if (isRetained(observed) === isRetained(wanted)) return undefined
  const { resourceVersion, ownerReferences = [] } = observed.metadata
  const controller = controllerOf(wanted)
  const others = ownerReferences.filter(({ uid }) => uid !== owner.metadata.uid)
  const annotations = {
    [RETAINED_FOR]: wanted.metadata.annotations?.[RETAINED_FOR] ?? null,
    [RECONCILER_ANNOTATION]: ownershipMark(identity, owner, wanted),
  }
  return { metadata: { resourceVersion, annotations, ownerReferences: controller ? [...others, controller] : others } }
}

/**
 * Returns the faults of an outcome that would delete a retained object with its owner. `isGoing`: the owner is being
 * deleted.
 */
export function retentionFaults(world: Family, desired: readonly OwnedObject[], isGoing: boolean): string[] {
  return desired.flatMap(({ resource, object }) => {
    const observed = findOwned(world, resource, object)
    const { strategy, kind } = resource
    const isWanted = isRetained(object)
    if (isWanted && strategy === 'Recreate')
      return [
        `${called(object)} is to be retained, but strategy Recreate deletes an object to change it: own ${kind} with another strategy`,
      ]
    if (isWanted && strategy === 'CreateOnly' && observed !== undefined && !isRetained(observed))
      return [
        `${called(object)} is to be retained, but it has an owner reference, and strategy CreateOnly does not change it: own ${kind} with strategy Apply`,
      ]
    if (isGoing && !isWanted && strategy !== 'CreateOnly' && observed !== undefined && isRetained(observed))
      return [
        `${called(object)} is retained, but the function returns it without "retain" while its owner is being deleted: return it with "retain", or not at all`,
      ]
    return []
  })
}
