import { controllerOf, type KubeObject } from '#contracts'
import type { StoredObject } from '#events'
import { mapAtMost } from '#primitives'
import type { OwnedObject } from '#reconcile'
import { isOwnedBy, type OwnedResource, type ReconcilerSpec } from '#spec'
import { REFERENCES_AT_ONCE, type Resolve } from './references.ts'

/**
 * Whether the reconciler has created or adopted the stored object. `found` is the same object with its references
 * resolved.
 */
export type IsCreated = (resource: OwnedResource, stored: StoredObject, found: KubeObject) => Promise<boolean>

/**
 * Returns the owned objects without those that are gone, and without those that other reconcilers have created for the
 * same owner.
 */
export async function ownedBy(
  owner: KubeObject,
  { owns }: ReconcilerSpec,
  found: readonly StoredObject[][],
  { resolve, resolveWhole, isCreated }: { resolve: Resolve; resolveWhole: Resolve; isCreated: IsCreated },
): Promise<OwnedObject[]> {
  const children = owns.flatMap((resource, index) =>
    (found[index] ?? [])
      .filter((child) => isOwnedBy(child.object, owner) || mayBeRetained(child))
      .map((child) => ({ resource, child })),
  )
  const created = await mapAtMost(REFERENCES_AT_ONCE, children, async ({ resource, child }) => {
    const object = await (mayBeRetained(child) ? resolveWhole : resolve)(resource, child)
    if (object === undefined || !isOwnedBy(object, owner)) return undefined
    return (await isCreated(resource, child, object)) ? { resource, object } : undefined
  })
  return created.filter((child) => child !== undefined)
}

/**
 * Whether the object may be retained. An annotation names the owner of a retained object, and a reference has no
 * annotations.
 */
const mayBeRetained = ({ referenceOnly, object }: StoredObject): boolean =>
  referenceOnly && controllerOf(object) === undefined && object.metadata.annotations === undefined
