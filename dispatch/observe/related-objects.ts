import { type KubeObject, type ResourceRef } from '#contracts'
import { type ObjectFilter, type StoredObject } from '#events'
import { type ReconcilerSpec, relatedLookup, relation } from '#spec'
import { mapAtMost } from './map-at-most.ts'
import { REFERENCES_AT_ONCE, type Resolve } from './references.ts'

type Lookup = ReconcilerSpec['related'][number] & { name?: string }

/**
 * The server compares each name with each (nats-server 2.15: 700 take it four seconds), and whoever may write a primary says
 * how many there are: of more than these everything is read that is near enough to have one of them.
 */
const MOST_NAMES = 64

export function lookupsOf(named: ReconcilerSpec['related'], primary: KubeObject): Lookup[] {
  const each = named.flatMap((one) => relatedLookup(one, primary).names?.map((name) => ({ ...one, name })) ?? [])
  return each.length <= MOST_NAMES ? each : named
}

/** What is cluster-scoped is found beside what is in the namespace, whichever of the two the resource is. */
export const filtersOf = (related: readonly Lookup[], namespace: string | undefined): ObjectFilter[] =>
  related.flatMap(({ group, version, resource, within, name }) => {
    const filter = { ref: { group, version, resource }, ...(name !== undefined && { name }) }
    return within === 'Cluster' || namespace === undefined
      ? [filter]
      : [
          { ...filter, namespace },
          { ...filter, clusterScoped: true },
        ]
  })

/** Each object once, however many declarations it is found by. Fields can be selected by only when it is whole. */
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
