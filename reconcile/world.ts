import { apiVersionOf, type KubeObject, kindName, namespacedName } from '#contracts'
import type { OwnedResource } from '#spec'

/** An object, and the resource type by which requests name it. */
export interface OwnedObject {
  resource: OwnedResource
  object: KubeObject
}

/** The primary object and its owned objects: all objects that writes are planned for. */
export interface Family {
  object: KubeObject
  owned: readonly OwnedObject[]
}

/** The objects that a run has observed. */
export interface World extends Family {
  related: readonly KubeObject[]
  /** The objects of others whose fields the reconciler has set for this primary, as its record names them. */
  patched: readonly KubeObject[]
}

export const withObject = (world: World, object: KubeObject): World => ({ ...world, object })

/** Returns the world after these writes of owned objects. `after` is undefined if the object is gone. */
export function withOwned(
  world: World,
  written: readonly { resource: OwnedResource; before: KubeObject; after: KubeObject | undefined }[],
): World {
  const places = new Set(written.map(({ resource, before }) => placeOf(resource, before)))
  const others = world.owned.filter(({ resource, object }) => !places.has(placeOf(resource, object)))
  const present = written.flatMap(({ resource, after }) => (after === undefined ? [] : [{ resource, object: after }]))
  return { ...world, owned: [...others, ...present] }
}

/** Returns the world after a write of fields of this object. */
export function withPatched(world: World, after: KubeObject): World {
  const { apiVersion, kind, metadata } = after
  const isOther = (one: KubeObject) =>
    one.apiVersion !== apiVersion || one.kind !== kind || namespacedName(one.metadata) !== namespacedName(metadata)
  return { ...world, patched: [...world.patched.filter(isOther), after] }
}

export function findOwned({ owned }: Family, resource: OwnedResource, object: KubeObject): KubeObject | undefined {
  const known = byPlace.get(owned) ?? new Map(owned.map((one) => [placeOf(one.resource, one.object), one.object]))
  byPlace.set(owned, known)
  return known.get(placeOf(resource, object))
}

/**
 * The lookup runs once for each object of an outcome. The cache is valid because a list of owned objects is never
 * changed.
 */
const byPlace = new WeakMap<readonly OwnedObject[], ReadonlyMap<string, KubeObject>>()

/** Returns objects by kind, in the form of the function's input. A declared kind without objects is an empty list. */
export function byKind(
  declared: readonly Pick<OwnedResource, 'kind' | 'group' | 'version'>[],
  objects: readonly KubeObject[],
): Record<string, KubeObject[]> {
  const kinds: Record<string, KubeObject[]> = {}
  for (const resource of declared) kinds[kindName(resource.kind, apiVersionOf(resource))] = []
  for (const object of objects) (kinds[kindName(object.kind, object.apiVersion)] ??= []).push(object)
  return kinds
}

const placeOf = ({ group, resource }: OwnedResource, { metadata: { namespace = '', name } }: KubeObject): string =>
  `${group}/${resource}/${namespace}/${name}`

/** Returns the kind, the namespace and the name for messages: `Pod default/web-0`. */
export const called = ({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>): string =>
  `${kind} ${namespacedName(metadata)}`
