import type { KubeObject, ResourceRef } from '#contracts'
import type { RelatedQuery, Selection, StoredObject } from '#events'
import { mapAtMost } from '#primitives'
import {
  namespacesNear,
  parseFieldSelector,
  parseSelector,
  type ReconcilerSpec,
  type RelatedLookup,
  type RelatedResource,
  relatedLookup,
  relation,
} from '#spec'
import { REFERENCES_AT_ONCE, type Resolve } from './references.ts'

/**
 * The server compares each filter with each other one (nats-server 2.15: 700 names take four seconds), and users who
 * may write the primary decide how many there are. Above this number of names and namespaces, more objects are read and
 * then filtered.
 */
const MOST_LOOKUPS = 64

/** Returns the queries of relations that do not depend on fields of the primary. */
export const queriesNear = (related: readonly RelatedResource[], namespace: string | undefined): RelatedQuery[] =>
  related.flatMap((one) =>
    queriesOf(one, { namespaces: namespacesNear(one, namespace), clusterScoped: true, names: undefined }),
  )

/** Returns the queries of relations that fields of the primary name. */
export function queriesNamed(named: readonly RelatedResource[], primary: KubeObject): RelatedQuery[] {
  const lookups = named.map((one) => ({ one, lookup: relatedLookup(one, primary) }))
  const widen = [(lookup: RelatedLookup) => lookup, ofAnyName].find(
    (wider) => sum(lookups.map(({ lookup }) => countOf(wider(lookup)))) <= MOST_LOOKUPS,
  )
  return lookups.flatMap(({ one, lookup }) => queriesOf(one, (widen ?? ofAnyNamespace)(lookup)))
}

const ofAnyName = (lookup: RelatedLookup): RelatedLookup => ({ ...lookup, names: undefined })

const ofAnyNamespace = (lookup: RelatedLookup): RelatedLookup =>
  lookup.clusterScoped ? ofAnyName(lookup) : { ...lookup, names: undefined, namespaces: undefined }

const countOf = ({ namespaces, names }: RelatedLookup): number => (namespaces?.length ?? 1) * (names?.length ?? 1)

const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0)

/**
 * Returns queries for namespaced and for cluster-scoped objects, because it is not known here which scope the resource
 * has.
 */
function queriesOf(related: RelatedResource, lookup: RelatedLookup): RelatedQuery[] {
  const { group, version, resource, byName } = related
  const { namespaces, clusterScoped, names } = lookup
  const ref = { group, version, resource }
  const near = namespaces?.map((namespace) => ({ ref, namespace })) ?? [{ ref }]
  const places: { ref: ResourceRef; namespace?: string; clusterScoped?: boolean }[] =
    namespaces && clusterScoped ? [...near, { ref, clusterScoped }] : near
  if (names !== undefined) return places.flatMap((place) => names.map((name) => ({ ...place, name })))
  if (byName !== undefined) return places
  const selection = selectionBy(related)
  return places.map((place) => ({ ...place, selection }))
}

const selectionBy = ({ selector = '', fieldSelector = '' }: RelatedResource): Selection => ({
  text: JSON.stringify([selector, fieldSelector]),
  byFields: fieldSelector !== '',
  matcher: () => {
    const labelsMatch = parseSelector(selector)
    const fieldsMatch = parseFieldSelector(fieldSelector)
    return (labels, object) => labelsMatch(labels) && (object === undefined || fieldsMatch(object))
  },
})

/**
 * Returns each object once, even if several declarations select it. Field selectors need the object, not a reference.
 */
export async function relatedTo(
  primary: KubeObject,
  { related }: ReconcilerSpec,
  found: readonly StoredObject[],
  resolve: Resolve,
): Promise<StoredObject[]> {
  const isNear = anyRelation(
    related.map((one) => ({ ...one, fieldSelector: undefined })),
    primary,
  )
  const isRelated = anyRelation(related, primary)
  const near = found.filter((other) => isNear(other.key.ref, other.object))
  const once = [...new Map(near.map((other) => [`${other.key.ref.resource} ${other.uid}`, other])).values()]
  const others = await mapAtMost(REFERENCES_AT_ONCE, once, async (other) => ({
    ...other,
    object: await resolve(other.key.ref, other),
  }))
  return others.flatMap(({ object, ...other }) =>
    object && isRelated(other.key.ref, object) ? [{ ...other, object }] : [],
  )
}

function anyRelation(related: ReconcilerSpec['related'], primary: KubeObject) {
  const relations = related.map((one) => ({ one, holds: relation(one)(primary) }))
  return (ref: ResourceRef, other: KubeObject): boolean =>
    relations.some(({ one, holds }) => one.group === ref.group && one.resource === ref.resource && holds(other))
}
