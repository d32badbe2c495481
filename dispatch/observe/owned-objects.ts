import type { KubeObject } from '#contracts'
import type { StoredObject } from '#events'
import { mapAtMost } from '#primitives'
import { isControlledBy, type OwnedObject } from '#reconcile'
import type { OwnedResource, ReconcilerSpec } from '#spec'
import { REFERENCES_AT_ONCE, type Resolve } from './references.ts'

/** Whether the reconciler has created or adopted the stored object. `found` is the same object with its references resolved. */
export type IsCreated = (resource: OwnedResource, stored: StoredObject, found: KubeObject) => Promise<boolean>

/** Leaves out objects that are gone, and those that other reconcilers have created for the same owner. */
export async function ownedBy(
  owner: KubeObject,
  { owns }: ReconcilerSpec,
  found: readonly StoredObject[][],
  { resolve, isCreated }: { resolve: Resolve; isCreated: IsCreated },
): Promise<OwnedObject[]> {
  const children = owns.flatMap((resource, index) =>
    (found[index] ?? []).filter((child) => isControlledBy(child.object, owner)).map((child) => ({ resource, child })),
  )
  const created = await mapAtMost(REFERENCES_AT_ONCE, children, async ({ resource, child }) => {
    const object = await resolve(resource, child)
    if (object === undefined || !isControlledBy(object, owner)) return undefined
    return (await isCreated(resource, child, object)) ? { resource, object } : undefined
  })
  return created.filter((child) => child !== undefined)
}
