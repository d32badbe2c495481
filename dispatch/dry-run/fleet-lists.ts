import type { KubeObject, ResourceRef } from '#contracts'
import { type KubeClient, METADATA_ONLY_LIST, resourcePath } from '#kube'
import { mapAtMost } from '#primitives'
import { ownerOf, type ReconcilerSpec } from '#spec'
import { undefinedIfGone } from '../errors.ts'
import type { Lists } from './api-view.ts'

/** Lists of related objects that are kept for further objects, and the objects that such a list may have. */
const KEPT_LISTS = 16
const LONGEST_KEPT = 2000
/** Reads of the children of one object at a time. */
const CHILDREN_AT_ONCE = 4

/**
 * Lists for dry runs of many objects. The metadata of all owned objects are listed once, by pages, and only their names are
 * kept. A dry run then reads the children of its object by name. Short lists of related objects are read once.
 */
export async function fleetLists(
  kube: KubeClient,
  spec: ReconcilerSpec,
  namespace: string | undefined,
  signal: AbortSignal,
): Promise<Lists> {
  const children = new Map<string, string[]>()
  for (const kind of spec.owns) {
    for await (const { metadata, uid } of ownedObjects(kube, kind, { spec, namespace, signal })) {
      const id = `${kind.group}/${kind.resource} ${uid}`
      children.set(id, [...(children.get(id) ?? []), resourcePath(kind, metadata.namespace, metadata.name)])
    }
  }
  const kept = new Map<string, KubeObject[]>()
  return {
    async owned({ group, resource }, { metadata }) {
      const paths = children.get(`${group}/${resource} ${metadata.uid}`) ?? []
      const found = await mapAtMost(CHILDREN_AT_ONCE, paths, (path) =>
        kube.get(path, { signal }).catch(undefinedIfGone),
      )
      return found.filter((one) => one !== undefined)
    },
    async related(id, read) {
      const known = kept.get(id)
      if (known !== undefined) return known
      const objects = await read()
      if (kept.size < KEPT_LISTS && objects.length <= LONGEST_KEPT) kept.set(id, objects)
      return objects
    },
  }
}

async function* ownedObjects(
  kube: KubeClient,
  kind: ResourceRef,
  { spec, namespace, signal }: { spec: ReconcilerSpec; namespace: string | undefined; signal: AbortSignal },
): AsyncGenerator<{ metadata: KubeObject['metadata']; uid: string }> {
  try {
    for await (const { items } of kube.list(resourcePath(kind, namespace), { accept: METADATA_ONLY_LIST, signal }))
      for (const object of items) {
        const owner = ownerOf(object)
        if (owner?.kind === spec.for.kind && owner.group === spec.for.group)
          yield { metadata: object.metadata, uid: owner.uid }
      }
  } catch (error) {
    undefinedIfGone(error)
  }
}
