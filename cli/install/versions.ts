import type { KubeObject } from '#contracts'
import { ApiError, isNotFound, type KubeClient, METADATA_ONLY_LIST, resourcePath, servedResources } from '#kube'
import { NOWHERE, nameOf } from '#process/webhooks/probe'
import type { CustomResourceDefinition, Resource } from '#sdk'
import { CRDS, found, titleOf } from './installed-objects.ts'

/** A definition as it is in the cluster. */
export interface StoredDefinition extends CustomResourceDefinition {
  metadata: CustomResourceDefinition['metadata'] & Pick<KubeObject['metadata'], 'resourceVersion'>
  status?: { storedVersions?: string[] }
}

export type CrdVersion = CustomResourceDefinition['spec']['versions'][number]

export interface VersionRow {
  version: string
  served: boolean
  /** `now`: what is written is stored in it. `maybe`: an object may be stored in it (status.storedVersions). */
  stored: 'now' | 'maybe' | 'no'
  deprecated: boolean
  declared: 'stored' | 'served' | 'retired' | 'no'
  /** Objects that a client has written in this version, as their managedFields say. */
  writtenBy: number
  /** Objects of any kind that name this version in an owner reference. Looked for if no client can use it any more. */
  owned?: number
}

/** The versions of a resource in the cluster, beside what a function declares. */
export interface ResourceVersions {
  resource: Resource
  definition: StoredDefinition
  rows: VersionRow[]
  objects: number
  /** Which objects these functions cannot show in a version, or only in part. */
  unreadable: Unreadable[]
}

interface Unreadable {
  version: string
  objects: number
  /** The first of them, with the reason. */
  such: string
}

export const storageOf = ({ spec }: CustomResourceDefinition): string =>
  spec.versions.find(({ storage }) => storage)?.name ?? ''

/** Returns the versions in which an object may be stored, as the API server has recorded it. */
export const storedVersionsOf = ({ status }: StoredDefinition): string[] => status?.storedVersions ?? []

/** Versions that no client can use now, or soon, and that are still in the definition. */
export const goingOf = (resource: Resource, { spec }: CustomResourceDefinition): CrdVersion[] => {
  const declared = resource.crd(NOWHERE).spec.versions
  return spec.versions.filter(
    ({ name, storage }) => !storage && declared.find((one) => one.name === name)?.served !== true,
  )
}

/**
 * Returns undefined if the cluster has no definition of the resource. Reads all of its objects in the version in which
 * they are stored by now, and converts them in this process: to serve one that does not convert would break lists.
 */
export async function versionsIn(kube: KubeClient, resource: Resource): Promise<ResourceVersions | undefined> {
  const definition = await found<StoredDefinition>(kube, resourcePath(CRDS, undefined, nameOf(resource)))
  if (definition === undefined) return undefined
  const { versions } = definition.spec
  const { objects, writtenBy, unreadable } = await read(kube, resource, storageOf(definition))
  const going = goingOf(resource, definition).map(({ name }) => name)
  const owned = new Map<string, number>()
  for await (const { object } of going.length === 0 ? [] : ownedObjects(kube, resource, going))
    for (const { apiVersion, kind } of object.metadata.ownerReferences ?? [])
      if (kind === resource.kind) owned.set(apiVersion, (owned.get(apiVersion) ?? 0) + 1)
  const declared = resource.crd(NOWHERE).spec.versions
  const rows = versions.map((one): VersionRow => {
    const apiVersion = `${resource.group}/${one.name}`
    const here = declared.find(({ name }) => name === one.name)
    const isStored = storedVersionsOf(definition).includes(one.name)
    return {
      version: one.name,
      served: one.served,
      stored: one.storage ? 'now' : isStored ? 'maybe' : 'no',
      deprecated: one.deprecated === true,
      declared: here === undefined ? 'no' : here.storage ? 'stored' : here.served ? 'served' : 'retired',
      writtenBy: writtenBy.get(apiVersion) ?? 0,
      ...(going.includes(one.name) && { owned: owned.get(apiVersion) ?? 0 }),
    }
  })
  return { resource, definition, rows, objects, unreadable }
}

export interface ManagedField {
  manager?: string
  operation?: string
  subresource?: string
  apiVersion?: string
  fieldsV1?: object
}

export const managedFieldsOf = ({ metadata }: KubeObject): ManagedField[] =>
  (metadata as { managedFields?: ManagedField[] }).managedFields ?? []

const PARTIAL = 'fairlead.dev/partial'

async function read(
  kube: KubeClient,
  resource: Resource,
  storage: string,
): Promise<Pick<ResourceVersions, 'objects' | 'unreadable'> & { writtenBy: Map<string, number> }> {
  const declared = resource.crd(NOWHERE).spec.versions
  const targets = declared.some(({ name }) => name === storage) ? declared.filter(({ served }) => served) : []
  const writtenBy = new Map<string, number>()
  const unreadable = new Map<string, Unreadable>()
  let objects = 0
  for await (const { items } of kube.list(resourcePath({ ...resource, version: storage }), { mayMix: true }))
    for (const object of items) {
      objects++
      for (const name of new Set(managedFieldsOf(object).map(({ apiVersion = '' }) => apiVersion)))
        writtenBy.set(name, (writtenBy.get(name) ?? 0) + 1)
      for (const { name: version } of targets) {
        const why = whyUnreadable(resource, object, version)
        if (why === undefined) continue
        const before = unreadable.get(version) ?? { version, objects: 0, such: `${titleOf(object)}: ${why}` }
        unreadable.set(version, { ...before, objects: before.objects + 1 })
      }
    }
  return { objects, writtenBy, unreadable: [...unreadable.values()] }
}

function whyUnreadable(resource: Resource, object: KubeObject, version: string): string | undefined {
  try {
    return resource.convert(object, version).metadata.annotations?.[PARTIAL]
  } catch (error) {
    return (error as Error).message
  }
}

/**
 * Yields the metadata of each object in the cluster that names one of these versions of the resource in an owner
 * reference, with its path. The garbage collector never deletes it once the version is not served.
 */
export async function* ownedObjects(
  kube: KubeClient,
  { group, kind }: Pick<Resource, 'group' | 'kind'>,
  versions: readonly string[],
): AsyncGenerator<{ path: string; object: KubeObject }, void, undefined> {
  const names = versions.map((one) => `${group}/${one}`)
  const seen = new Set<string>()
  for (const ref of await servedResources(kube)) {
    const id = `${ref.resource}.${ref.group}`
    if (seen.has(id) || isComputed(ref)) continue
    seen.add(id)
    try {
      for await (const { items } of kube.list(resourcePath(ref), { accept: METADATA_ONLY_LIST, mayMix: true }))
        for (const object of items)
          if (object.metadata.ownerReferences?.some((one) => one.kind === kind && names.includes(one.apiVersion)))
            yield { path: resourcePath(ref, object.metadata.namespace, object.metadata.name), object }
    } catch (error) {
      // It cannot be listed, as a TokenReview, or it is gone.
      if (!isNotFound(error) && !(error instanceof ApiError && error.code === 405)) throw error
    }
  }
}

/** What the API server computes for each request: nothing is stored, and nothing has an owner. */
const isComputed = ({ group, resource }: Pick<Resource, 'group' | 'resource'>): boolean =>
  group.endsWith('metrics.k8s.io') || (group === '' && resource === 'componentstatuses')
