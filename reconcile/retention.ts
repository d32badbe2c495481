import { controllerOf, type KubeObject } from '#contracts'
import { RETAINED_FOR, retainerOf } from '#spec'
import { ownershipMark, RECONCILER_ANNOTATION } from './ownership.ts'
import { called, type Family, findOwned, type OwnedObject } from './world.ts'

export const isRetained = (object: KubeObject): boolean => retainerOf(object) !== undefined

/**
 * The merge patch by which an object begins or ceases to be retained, bound to the version that was observed; undefined: it
 * is as wanted. Server-side apply would leave an owner reference that another manager, or a POST, has written.
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

/** What an outcome asks for that would delete a retained object with its owner. `isGoing`: the owner is being deleted. */
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
