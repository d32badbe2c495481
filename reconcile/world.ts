import { apiVersionOf, type KubeObject, kindName, namespacedName } from '#contracts'
import { type OwnedResource, type RelatedResource, relation } from '#spec'

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

/** An object before and after a write. `after` is undefined if it is gone. */
interface Change {
  before: KubeObject
  after: KubeObject | undefined
}

/** Returns the world after a write of the primary. */
export const withObject = (world: World, declared: readonly RelatedResource[], object: KubeObject): World =>
  withRelated({ ...world, object }, declared, [{ before: object, after: object }])

/** Returns the world after these writes of owned objects. */
export function withOwned(
  world: World,
  declared: readonly RelatedResource[],
  written: readonly (Change & { resource: OwnedResource })[],
): World {
  const places = new Set(written.map(({ resource, before }) => placeOf(resource, before)))
  const others = world.owned.filter(({ resource, object }) => !places.has(placeOf(resource, object)))
  const present = written.flatMap(({ resource, after }) => (after === undefined ? [] : [{ resource, object: after }]))
  return withRelated({ ...world, owned: [...others, ...present] }, declared, written)
}

/** Returns the world after a write of fields of this object. */
export function withPatched(world: World, declared: readonly RelatedResource[], after: KubeObject): World {
  const isOther = (one: KubeObject) => idOf(one) !== idOf(after)
  const patched = [...world.patched.filter(isOther), after]
  return withRelated({ ...world, patched }, declared, [{ before: after, after }])
}

/**
 * Returns the world with these written objects in `related`, as far as the primary is related to them: the function sees
 * one version of an object, in whichever lists it is.
 */
function withRelated(world: World, declared: readonly RelatedResource[], written: readonly Change[]): World {
  const kinds = declared.filter((one) => written.some(({ before }) => isOfKind(before, one)))
  if (kinds.length === 0) return world
  const relations = kinds.map((one) => ({ one, holds: relation(one)(world.object) }))
  const related = new Map(world.related.map((one) => [idOf(one), one]))
  for (const { before, after } of written) {
    const isRelated = after && relations.some(({ one, holds }) => isOfKind(after, one) && holds(after))
    if (isRelated) related.set(idOf(after), after)
    else related.delete(idOf(before))
  }
  return { ...world, related: [...related.values()] }
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

const isOfKind = ({ kind, apiVersion }: KubeObject, one: Pick<OwnedResource, 'kind' | 'group' | 'version'>): boolean =>
  kind === one.kind && apiVersion === apiVersionOf(one)

const idOf = ({ apiVersion, kind, metadata }: KubeObject): string => `${apiVersion} ${kind} ${namespacedName(metadata)}`

const placeOf = ({ group, resource }: OwnedResource, { metadata: { namespace = '', name } }: KubeObject): string =>
  `${group}/${resource}/${namespace}/${name}`

/** Returns the kind, the namespace and the name for messages: `Pod default/web-0`. */
export const called = ({ kind, metadata }: Pick<KubeObject, 'kind' | 'metadata'>): string =>
  `${kind} ${namespacedName(metadata)}`
