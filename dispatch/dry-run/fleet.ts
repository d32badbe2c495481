import type { KubeObject, ResourceRef } from '#contracts'
import { type KubeClient, METADATA_ONLY_LIST, resourcePath } from '#kube'
import { forEachAtMost, mapAtMost } from '#primitives'
import { ownerOf, type ReconcilerSpec } from '#spec'
import { undefinedIfGone } from '../errors.ts'
import { apiView, type Lists } from './api-view.ts'
import { type DryRunOptions, type DryRunResult, dryRun } from './dry-run.ts'

export interface FleetOptions
  extends Pick<DryRunOptions, 'kube' | 'name' | 'spec' | 'invoke' | 'isReferenceOnly' | 'log' | 'signal'> {
  /** The objects to compare, by pages. Their metadata is enough. */
  pages: Iterable<{ items: KubeObject[] }> | AsyncIterable<{ items: KubeObject[] }>
  /** The namespace of all objects; undefined: any. */
  namespace: string | undefined
  /** Dry runs at a time. */
  concurrency: number
  now: () => Date
  /** Called before the dry run of an object. False: it is left out. */
  begins: (object: KubeObject) => boolean
  /** Called after the dry run of an object. */
  ends: (object: KubeObject, result: DryRunResult) => void
}

/**
 * Makes a dry run of every object. The names are listed first: the API server forgets the position in a list after some
 * minutes, and dry runs may take longer. Holds these names, those of all owned objects, and what the dry runs under way
 * read. Returns the number of objects.
 */
export async function dryRunAll(options: FleetOptions): Promise<number> {
  const { kube, spec, namespace, pages, concurrency, signal, begins, ends } = options
  const paths: string[] = []
  for await (const { items } of pages)
    paths.push(...items.map(({ metadata }) => resourcePath(spec.for, metadata.namespace, metadata.name)))
  const view = apiView(kube, signal, await fleetLists(kube, spec, namespace, signal), options.isReferenceOnly)
  return forEachAtMost(concurrency, paths, async (path) => {
    const found = await kube.get(path, { signal }).catch(undefinedIfGone)
    if (found === undefined || !begins(found)) return
    const { name, namespace: where } = found.metadata
    ends(found, await dryRun({ ...options, view, object: { namespace: where, name }, now: options.now() }))
  })
}

/** Lists of related objects that are kept for further objects, and the objects that such a list may have. */
const CACHED_LISTS = 16
const LONGEST_CACHED = 2000
/** Reads of the children of one object at a time. */
const CHILDREN_AT_ONCE = 4

/**
 * Lists for dry runs of many objects. The metadata of all owned objects are listed once, by pages, and only their names are
 * cached. A dry run then reads the children of its object by name. Short lists of related objects are read once.
 */
async function fleetLists(
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
  const cached = new Map<string, KubeObject[]>()
  return {
    async owned({ group, resource }, { metadata }) {
      const paths = children.get(`${group}/${resource} ${metadata.uid}`) ?? []
      const found = await mapAtMost(CHILDREN_AT_ONCE, paths, (path) =>
        kube.get(path, { signal }).catch(undefinedIfGone),
      )
      return found.filter((one) => one !== undefined)
    },
    async related(id, read) {
      const known = cached.get(id)
      if (known !== undefined) return known
      const objects = await read()
      if (cached.size < CACHED_LISTS && objects.length <= LONGEST_CACHED) cached.set(id, objects)
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
