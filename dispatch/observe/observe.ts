import { type KubeObject, type ResourceRef } from '#contracts'
import { type EventStore, type ObjectFilter, type ObjectKey, type OwnerKey, type StoredObject } from '#events'
import { isControlledBy, type OwnedObject, TooMuchStateError, type World } from '#reconcile'
import { type OwnedResource, type ReconcilerSpec, relatedLookup, relation } from '#spec'
import type { Adoptions } from './adoptions.ts'
import { mapAtMost } from './map-at-most.ts'
import type { ReconcilerVersion } from './reconciler-version.ts'
import type { References } from './references.ts'
import type { Holdings, RunState } from './state-budget.ts'

export interface Observation extends World {
  /** The primary's own controller, where that is the primary of some Reconciler. */
  owner: OwnerKey | undefined
  /** Of the newest change of the primary, of what it controls or of what is related to it. */
  traceparent: string | undefined
  /** The owned and related objects exceed the limit of a run: both lists are empty, and the function cannot decide. */
  excess?: TooMuchStateError
}

interface Dependencies {
  events: Pick<EventStore, 'observe' | 'isReferenceOnly'>
  references: References
  adoptions: Adoptions
}

interface Observing {
  name: string
  identity: string
  spec: ReconcilerSpec
  reconcilerVersion: ReconcilerVersion | undefined
}

type Primary = Pick<ObjectKey, 'namespace' | 'name'>

/** Objects that one run reads from the API server at once, for owned and for related ones each. */
const REFERENCES_AT_ONCE = 8

/** The object as the API server has it, where EVENTS has only a reference; undefined when it is gone. */
type Whole = (resource: ResourceRef, stored: StoredObject) => Promise<KubeObject | undefined>

/**
/**
 * The primary, what the reconciler has created for it and what is related to it; the primary alone if these are too large
 * together. Undefined when the primary is gone. Throws SupersededError when the Reconciler has changed.
 */
export async function observePrimary(
  deps: Dependencies,
  observing: Observing,
  primary: Primary,
  { state, signal }: { state: RunState; signal: AbortSignal },
): Promise<Observation | undefined> {
  try {
    return await state.read((holdings) => observeAll(deps, observing, primary, { holdings, signal }))
  } catch (error) {
    if (!(error instanceof TooMuchStateError)) throw error
    const { spec } = observing
    const alone = { ...observing, spec: { ...spec, owns: [], related: [] } }
    const found = await state.read((holdings) => observeAll(deps, alone, primary, { holdings, signal }))
    return found && { ...found, excess: error }
  }
}

/**
 * Reads EVENTS once, and a second time if a field of the primary names related objects. Objects that travel as references are
 * read from the API server.
 */
async function observeAll(
  { events, references, adoptions }: Dependencies,
  { name: reconciler, identity, spec, reconcilerVersion }: Observing,
  { namespace, name }: Primary,
  { holdings, signal }: { holdings: Holdings; signal: AbortSignal },
): Promise<Observation | undefined> {
  const key = { ref: spec.for, namespace, name }
  const anyName = spec.related.filter(({ byName }) => byName === undefined)
  const named = spec.related.filter(({ byName }) => byName !== undefined)
  const terms = { allowance: holdings, signal }
  const first = await events.observe({
    primary: key,
    owned: spec.owns,
    related: filtersOf(anyName, namespace),
    news: reconcilerVersion?.news,
    ...terms,
  })
  reconcilerVersion?.check(first.news)
  const { primary } = first
  const object = primary && (await references.whole(spec.for, primary, { holdings, reconciler, signal }))
  if (primary === undefined || object === undefined) return undefined
  const whole: Whole = async (resource, stored) =>
    isMetadataEnough(spec, resource)
      ? stored.object
      : references.whole(resource, stored, { holdings, reconciler, signal })
  const names = lookupsOf(named, object)
  const second =
    names.length === 0
      ? []
      : (await events.observe({ primary: key, related: filtersOf(names, namespace), ...terms })).related
  const isCreated: IsCreated = (resource, stored, found) => {
    const candidate = {
      resource,
      object: found,
      isAnnotated: !stored.referenceOnly || found !== stored.object,
      isFingerprinted: resource.strategy !== 'CreateOnly' && !events.isReferenceOnly(resource),
    }
    return adoptions.isCreatedBy(identity, object, candidate, { reconciler, signal })
  }
  const [owned, related] = await Promise.all([
    ownedBy(object, spec, first.owned, { whole, isCreated }),
    relatedTo(object, spec, [...first.related, ...second].flat(), whole),
  ])
  const mine = first.owned.flat().filter((child) => isControlledBy(child.object, object))
  const newest = [...mine, ...related].reduce(
    (latest, other) => (other.sequence > latest.sequence ? other : latest),
    primary,
  )
  return {
    object,
    owned,
    related: related.map((other) => other.object),
    owner: primary.owner,
    traceparent: newest.traceparent,
  }
}

/** Whether the reconciler has created, or adopted, what is stored: `found` is the same object, whole where it can be. */
type IsCreated = (resource: OwnedResource, stored: StoredObject, found: KubeObject) => Promise<boolean>

const isMetadataEnough = ({ owns, related }: ReconcilerSpec, { group, resource }: ResourceRef): boolean =>
  [...owns, ...related].every((one) => one.group !== group || one.resource !== resource || one.metadataOnly === true)

/** Objects that are gone by now, or that others have created for the same owner, are left out. */
async function ownedBy(
  owner: KubeObject,
  { owns }: ReconcilerSpec,
  found: readonly StoredObject[][],
  { whole, isCreated }: { whole: Whole; isCreated: IsCreated },
): Promise<OwnedObject[]> {
  const children = owns.flatMap((resource, index) =>
    (found[index] ?? []).filter((child) => isControlledBy(child.object, owner)).map((child) => ({ resource, child })),
  )
  const created = await mapAtMost(REFERENCES_AT_ONCE, children, async ({ resource, child }) => {
    const object = await whole(resource, child)
    if (object === undefined || !isControlledBy(object, owner)) return undefined
    return (await isCreated(resource, child, object)) ? { resource, object } : undefined
  })
  return created.filter((child) => child !== undefined)
}

type Lookup = ReconcilerSpec['related'][number] & { name?: string }

/**
 * The server compares each name with each (nats-server 2.15: 700 take it four seconds), and whoever may write a primary says
 * how many there are: of more than these everything is read that is near enough to have one of them.
 */
const MOST_NAMES = 64

function lookupsOf(named: ReconcilerSpec['related'], primary: KubeObject): Lookup[] {
  const each = named.flatMap((one) => relatedLookup(one, primary).names?.map((name) => ({ ...one, name })) ?? [])
  return each.length <= MOST_NAMES ? each : named
}

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

/** Each object once, however many declarations it is found by. Fields can be selected by only when it is whole. */
async function relatedTo(
  primary: KubeObject,
  { related }: ReconcilerSpec,
  found: readonly StoredObject[],
  whole: Whole,
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
    object: await whole(other.key.ref, other),
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
