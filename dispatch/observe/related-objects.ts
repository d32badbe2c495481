import type { KubeObject, ResourceRef } from '#contracts'
import type { ObjectFilter, StoredObject } from '#events'
import { mapAtMost } from '#primitives'
import { type ReconcilerSpec, relatedLookup, relation } from '#spec'
import { REFERENCES_AT_ONCE, type Resolve } from './references.ts'

type Lookup = ReconcilerSpec['related'][number] & { name?: string }

/**
 * The server compares each name with each other name (nats-server 2.15: 700 names take four seconds), and users who may
 * write the primary decide how many there are. With more names than this, all objects that could have one are read.
 */
const MOST_NAMES = 64

export function lookupsOf(named: ReconcilerSpec['related'], primary: KubeObject): Lookup[] {
  const each = named.flatMap((one) => relatedLookup(one, primary).names?.map((name) => ({ ...one, name })) ?? [])
  return each.length <= MOST_NAMES ? each : named
}

/** Whether a resource is cluster-scoped is not known here: one filter finds objects of the namespace, the other cluster-scoped ones. */
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

/** Returns each object once, even if several declarations select it. Field selectors need the object, not a reference. */
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
