import { controllerOf, groupOf, type KubeObject } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { ownershipMark, RECONCILER_ANNOTATION } from '#reconcile'
import type { Reconciler } from '#sdk'

/**
 * Marks what the framework of an adapter has made for the objects of the functions that its controllers declare, so that these
 * may write it. Nothing else of an object changes, so that the framework may run on until it is stopped. Returns the number of
 * objects that are marked now.
 */
export async function handOver(kube: KubeClient, functions: readonly Reconciler[]): Promise<number> {
  let marked = 0
  for (const one of functions) {
    const { declaredBy } = one
    const adapts = functions.find(({ name }) => name === declaredBy?.function)?.adapts
    if (declaredBy === undefined || adapts === undefined) continue
    const owners = new Set<string>()
    for await (const { items } of kube.list(resourcePath(one.for), { labelSelector: one.selector }))
      for (const { metadata } of items) owners.add(metadata.uid ?? '')
    for (const owned of one.owns)
      for await (const { items } of kube.list<KubeObject>(resourcePath(owned)))
        for (const object of items) {
          const owner = controllerOf(object)
          const isOwned =
            owner?.kind === one.for.kind && groupOf(owner.apiVersion) === one.for.group && owners.has(owner.uid)
          if (!isOwned || isMarked(object) || !adapts.made(object, declaredBy.with.object)) continue
          const mark = ownershipMark(one.name, { metadata: { uid: owner.uid } }, object)
          if (await isPatched(kube, resourcePath(owned, object.metadata.namespace, object.metadata.name), object, mark))
            marked++
        }
  }
  return marked
}

const isMarked = ({ metadata: { annotations = {} } }: KubeObject): boolean =>
  annotations[RECONCILER_ANNOTATION] !== undefined

/** An object that has changed or is gone is left to the next installation. */
const isPatched = (kube: KubeClient, path: string, { metadata }: KubeObject, mark: string): Promise<boolean> =>
  kube
    .patch(
      path,
      { metadata: { resourceVersion: metadata.resourceVersion, annotations: { [RECONCILER_ANNOTATION]: mark } } },
      'merge',
      { fieldManager: 'fairlead-install' },
    )
    .then(
      () => true,
      (error: unknown) => {
        if (isConflict(error) || isNotFound(error)) return false
        throw error
      },
    )
