import { controllerOf, type KubeObject } from '#contracts'
import { RETAINED_FOR, retainerOf } from '#spec'
import { ownershipMark, RECONCILER_ANNOTATION } from './ownership.ts'
import { called, type Family, findOwned, type OwnedObject } from './world.ts'

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
