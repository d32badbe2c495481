import { type KubeObject, type ReconcilerSpec, relatedLookup, relation } from '#contracts'
import type { EventStore, ObjectFilter, ObjectKey, OwnerKey, StoredObject } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { undefinedIfGone } from './errors.ts'
import { DROPPED, type Gate, PRIORITY } from './gate.ts'
import { isControlledBy, type World } from './world.ts'

export interface Observation extends World {
  /** The primary's own controller, where that is the primary of some Reconciler. */
  owner: OwnerKey | undefined
}

interface Sources {
  kube: KubeClient
  events: EventStore
  gate: Gate
}

/**
 * The primary, what it controls and what is related to it, in one read of EVENTS; a second one where a field of the
 * primary names what is related. Undefined when the primary is gone.
 */
export async function observePrimary(
  sources: Sources,
  spec: ReconcilerSpec,
  { namespace, name }: Pick<ObjectKey, 'namespace' | 'name'>,
  signal: AbortSignal,
): Promise<Observation | undefined> {
  const key = { ref: spec.for, namespace, name }
  const anyName = spec.related.filter(({ byName }) => byName === undefined)
  const named = spec.related.filter(({ byName }) => byName !== undefined)
  const { events } = sources
  const first = await events.observe({ primary: key, owned: spec.owns, related: filtersOf(anyName, namespace) })
  const { primary, owned } = first
  if (primary === undefined) return undefined
  const object = primary.referenceOnly ? await whole(sources, spec, primary.object, signal) : primary.object
  if (object === undefined) return undefined
  const names = named.flatMap((one) => relatedLookup(one, object).names?.map((name) => ({ ...one, name })) ?? [])
  const second =
    names.length === 0 ? [] : (await events.observe({ primary: key, related: filtersOf(names, namespace) })).related
  return {
    object,
    owned: spec.owns.flatMap((resource, index) =>
      (owned[index] ?? [])
        .filter((child) => isControlledBy(child.object, object))
        .map((child) => ({ resource, object: child.object })),
    ),
    related: relatedTo(object, spec, [...first.related, ...second].flat()),
    owner: primary.owner,
  }
}

type Lookup = ReconcilerSpec['related'][number] & { name?: string }

/** What is cluster-scoped is found beside what is in the namespace, whichever of the two the resource is. */
const filtersOf = (related: readonly Lookup[], namespace: string | undefined): ObjectFilter[] =>
  related.flatMap(({ group, version, resource, within, name }) => {
    const filter = { ref: { group, version, resource }, ...(name !== undefined && { name }) }
    return within === 'Cluster' || namespace === undefined
      ? [filter]
      : [
          { ...filter, namespace },
          { ...filter, clusterScoped: true },
        ]
  })

/** Each object once, however many declarations it is found by. */
function relatedTo(object: KubeObject, { related }: ReconcilerSpec, found: readonly StoredObject[]): KubeObject[] {
  const relations = related.map((one) => ({ one, holds: relation(one) }))
  const matching = found.filter(({ key, object: other }) =>
    relations.some(
      ({ one, holds }) => one.group === key.ref.group && one.resource === key.ref.resource && holds(object, other),
    ),
  )
  return [...new Map(matching.map((other) => [`${other.key.ref.resource} ${other.uid}`, other.object])).values()]
}

/** EVENTS holds only a reference to Secrets and to objects over the size limit. */
async function whole(
  { kube, gate }: Sources,
  spec: ReconcilerSpec,
  { metadata }: KubeObject,
  signal: AbortSignal,
): Promise<KubeObject | undefined> {
  const path = resourcePath(spec.for, metadata.namespace, metadata.name)
  const read = () => kube.get(path, { signal }).catch(undefinedIfGone)
  const found = await gate.run(PRIORITY.create, read, { signal })
  return found === DROPPED ? undefined : found
}
