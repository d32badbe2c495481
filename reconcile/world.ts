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

/** The world after one owned object was written; undefined: it is gone. */
export function withOwned(world: World, resource: OwnedResource, before: KubeObject, after?: KubeObject): World {
  const others = world.owned.filter((other) => !isSame(other, resource, before))
  return { ...world, owned: after === undefined ? others : [...others, { resource, object: after }] }
}

export const findOwned = (world: Family, resource: OwnedResource, object: KubeObject): KubeObject | undefined =>
  world.owned.find((other) => isSame(other, resource, object))?.object

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

const isSame = (owned: OwnedObject, resource: OwnedResource, { metadata }: KubeObject): boolean =>
  owned.resource.group === resource.group &&
  owned.resource.resource === resource.resource &&
  owned.object.metadata.name === metadata.name &&
  owned.object.metadata.namespace === metadata.namespace

/** `Pod default/web-0`, for messages. */
export const called = ({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>): string =>
  `${kind} ${metadata.namespace === undefined ? '' : `${metadata.namespace}/`}${metadata.name}`
