import type { KubeObject, ResourceRef } from '#contracts'
import { type EventStore, type ObjectFilter, referenceRule, type StoredObject } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { undefinedIfGone } from '../errors.ts'

/** Shared lists of a view. Left out: the view reads each list again. */
export interface Lists {
  owned?: (kind: ResourceRef, owner: KubeObject) => Promise<KubeObject[]>
  related?: (id: string, read: () => Promise<KubeObject[]>) => Promise<KubeObject[]>
}

/** Returns a view of the API server in the form of EVENTS with all changes up to now. */
export function apiView(
  kube: KubeClient,
  signal: AbortSignal,
  lists: Lists = {},
  isReferenceOnly: EventStore['isReferenceOnly'] = referenceRule([]),
): Pick<EventStore, 'observe' | 'isReferenceOnly'> {
  const {
    owned: ownedBy = (kind, { metadata }) => read(kind, { namespace: metadata.namespace }),
    related: shared = (_, list) => list(),
  } = lists
  return {
    isReferenceOnly,
    async observe({ primary, owned = [], related = [] }) {
      const { ref, namespace, name } = primary
      const object = await one(ref, namespace, name)
      const all = (found: Promise<KubeObject[]>[], refs: readonly (ResourceRef | undefined)[]) =>
        Promise.all(found.map(async (objects, index) => stored(refs[index] ?? ref, await objects)))
      return {
        primary: object && stored(ref, [object])[0],
        owned: await all(object === undefined ? [] : owned.map((kind) => ownedBy(kind, object)), owned),
        related: await all(
          related.map(async (filter) => {
            const { ref: of } = filter
            return of === undefined ? [] : shared(JSON.stringify(filter), () => read(of, filter))
          }),
          related.map((filter) => filter.ref),
        ),
        news: undefined,
      }
    },
  }

  async function read(
    ref: ResourceRef,
    { namespace, clusterScoped, name }: Omit<ObjectFilter, 'namespace'> & { namespace?: string },
  ): Promise<KubeObject[]> {
    if (clusterScoped === true && (await isNamespaced(ref))) return []
    if (name !== undefined && (clusterScoped === true || namespace !== undefined)) {
      const found = await one(ref, namespace, name)
      return found === undefined ? [] : [found]
    }
    const objects: KubeObject[] = []
    const fieldSelector = name && `metadata.name=${name.replaceAll(/[\\,=]/g, '\\$&')}`
    try {
      for await (const { items } of kube.list(resourcePath(ref, namespace), { fieldSelector, signal }))
        objects.push(...items)
    } catch (error) {
      undefinedIfGone(error)
    }
    return objects
  }

  async function one(ref: ResourceRef, namespace: string | undefined, name: string): Promise<KubeObject | undefined> {
    return kube.get(resourcePath(ref, namespace, name), { signal }).catch(undefinedIfGone)
  }

  async function isNamespaced({ group, version, resource }: ResourceRef): Promise<boolean> {
    const path = group === '' ? `/api/${version}` : `/apis/${group}/${version}`
    const { resources } = await kube.request<{ resources: { name: string; namespaced: boolean }[] }>({
      method: 'GET',
      path,
      signal,
    })
    return resources.find(({ name }) => name === resource)?.namespaced === true
  }
}

const stored = (ref: ResourceRef, objects: readonly KubeObject[]): StoredObject[] =>
  objects.map((object) => {
    const { namespace, name, uid = '', resourceVersion = '' } = object.metadata
    return {
      key: { ref, namespace, name },
      owner: undefined,
      sequence: 0,
      resourceVersion,
      uid,
      origin: undefined,
      traceparent: undefined,
      storedAt: Date.now(),
      referenceOnly: false,
      object,
    }
  })
