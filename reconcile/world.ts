import { apiVersionOf, type KubeObject, kindName } from '#contracts'
import type { OwnedResource } from '#spec'

/** An object and the resource type under which it is reached. */
export interface OwnedObject {
  resource: OwnedResource
  object: KubeObject
}

/** The object that a run is for, and what the reconciler has created for it: all that writes are planned on. */
export interface Family {
  object: KubeObject
  owned: readonly OwnedObject[]
}

/** What a run knows. */
export interface World extends Family {
  related: readonly KubeObject[]
}

export const withObject = (world: World, object: KubeObject): World => ({ ...world, object })

/** The world after these owned objects were written; `after` undefined: it is gone. */
export function withOwned(
  world: World,
  written: readonly { resource: OwnedResource; before: KubeObject; after: KubeObject | undefined }[],
): World {
  const places = new Set(written.map(({ resource, before }) => placeOf(resource, before)))
  const others = world.owned.filter(({ resource, object }) => !places.has(placeOf(resource, object)))
  const present = written.flatMap(({ resource, after }) => (after === undefined ? [] : [{ resource, object: after }]))
  return { ...world, owned: [...others, ...present] }
}

export function findOwned({ owned }: Family, resource: OwnedResource, object: KubeObject): KubeObject | undefined {
  const known = byPlace.get(owned) ?? new Map(owned.map((one) => [placeOf(one.resource, one.object), one.object]))
  byPlace.set(owned, known)
  return known.get(placeOf(resource, object))
}

/** Looked up once for each object of an outcome. A list of owned objects is never changed. */
const byPlace = new WeakMap<readonly OwnedObject[], ReadonlyMap<string, KubeObject>>()

/** Keyed as a function sees them; a declared kind without objects is an empty list. */
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

/** `Pod default/web-0`, for messages. */
export const called = ({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>): string =>
  `${kind} ${metadata.namespace === undefined ? '' : `${metadata.namespace}/`}${metadata.name}`
