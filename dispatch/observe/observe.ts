import { apiVersionOf, type KubeObject, kindName, type ResourceRef } from '#contracts'
import {
  type EventStore,
  type ObjectKey,
  type Observed,
  type ObserveQuery,
  type OwnerKey,
  type RelatedQuery,
  type StoredObject,
  type View,
} from '#events'
import { mapAtMost, unlessAborted } from '#primitives'
import { isGivingBack, KindNotListedError, type OwnedObject, TooMuchStateError, type World } from '#reconcile'
import {
  coverageId,
  crossesNamespaces,
  isByField,
  isKindNamed,
  isOwnedBy,
  mayBeRetained,
  NAMED_KINDS,
  namespacesNear,
  type OwnedResource,
  patchedBy,
  patchRelations,
  type ReconcilerSpec,
  type RelatedLookup,
  type RelatedResource,
  relatedLookup,
  relatedSelection,
  relation,
} from '#spec'
import { isListed, type ReconcilerVersion, UnprovedError } from './reconciler-version.ts'
import { type Adoptions, REFERENCES_AT_ONCE, type References, type Resolve } from './references.ts'
import type { RunState, StateMeter } from './state-budget.ts'

export interface Observation extends World {
  /** The primary's own controller, if a Reconciler has it as its primary. */
  owner: OwnerKey | undefined
  /** The traceparent of the newest change of the primary, or of its owned and related objects. */
  traceparent: string | undefined
  /** When EVENTS stored this version of the primary, in epoch milliseconds. */
  storedAt: number
  /** Why owned and related objects are not read: both lists are empty, and the function is not called. */
  unread?: TooMuchStateError | KindNotListedError
}

interface ObserveDeps {
  events: Pick<EventStore, 'observe' | 'isReferenceOnly'> & Partial<Pick<EventStore, 'cursor'>>
  references: References
  adoptions: Adoptions
}

interface ObservedReconciler {
  name: string
  identity: string
  spec: ReconcilerSpec
  reconcilerVersion: ReconcilerVersion | undefined
}

type Primary = Pick<ObjectKey, 'namespace' | 'name'>

/**
 * Returns the primary with its owned and related objects, or the primary alone if these exceed the limit or are not known.
 * Returns undefined if the primary is gone. Throws SupersededError if the Reconciler has changed, or if EVENTS may lack
 * objects.
 */
export async function observePrimary(
  deps: ObserveDeps,
  observing: ObservedReconciler,
  primary: Primary,
  { state, view, signal }: { state: RunState; view: RunView; signal: AbortSignal },
): Promise<Observation | undefined> {
  try {
    return await state.read((meter) => observeAll(deps, observing, primary, { meter, view, signal }))
  } catch (error) {
    if (error instanceof UnprovedError) {
      view.end()
      return observePrimary(deps, observing, primary, { state, view, signal })
    }
    if (!(error instanceof TooMuchStateError || error instanceof KindNotListedError)) throw error
    const { spec } = observing
    const alone = { ...observing, spec: { ...spec, owns: [], related: [], patches: undefined } }
    view.end()
    const found = await state.read((meter) => observeAll(deps, alone, primary, { meter, view: new RunView(), signal }))
    return found && { ...found, unread: error }
  }
}

/**
 * Reads EVENTS once, unless the run's view is still valid, and a second time if a field of the primary names related
 * objects. If EVENTS has only a reference to an object, the object is read from the API server.
 */
async function observeAll(
  { events, references, adoptions }: ObserveDeps,
  { name: reconciler, identity, spec, reconcilerVersion }: ObservedReconciler,
  { namespace, name }: Primary,
  { meter, view, signal }: { meter: StateMeter; view: RunView; signal: AbortSignal },
): Promise<Observation | undefined> {
  const key = { ref: spec.for, namespace, name }
  const near = spec.related.filter((one) => !isByField(one))
  const named = spec.related.filter(isByField)
  const terms = { allowance: meter, signal }
  const cursor = events.cursor?.bind(events)
  const proof = cursor && reconcilerVersion?.proof(cursor)
  if (proof) await unlessAborted(proof, signal)
  const first = await view.observe(events, {
    primary: key,
    owned: spec.owns,
    related: queriesNear(near, key),
    news: reconcilerVersion?.news,
    ...terms,
  })
  reconcilerVersion?.check(first.news, proof)
  const { primary } = first
  const object = primary && (await references.resolve(spec.for, primary, { meter, reconciler, namespace, signal }))
  if (primary === undefined || object === undefined) return undefined
  const { owner, storedAt, traceparent } = primary
  // To give back fields needs nothing else, and must not wait for anything else.
  if (isGivingBack(object, identity))
    return { object, owned: [], related: [], patched: [], owner, storedAt, traceparent }
  if (cursor && reconcilerVersion) await demandListed(cursor, spec, reconcilerVersion.reconciler, object)
  const resolveWhole: Resolve = (resource, stored) =>
    references.resolve(resource, stored, { meter, reconciler, namespace, signal })
  const resolve: Resolve = async (resource, stored) =>
    isMetadataEnough(spec, resource) ? stored.object : resolveWhole(resource, stored)
  const patches = patchRelations(spec, identity)
  const queries = [...queriesNamed(named, object), ...queriesRecorded(spec, object, identity)]
  const second: StoredObject[][] = []
  for (let from = 0; from < queries.length; from += MOST_LOOKUPS) {
    const portion = queries.slice(from, from + MOST_LOOKUPS)
    second.push(...(await events.observe({ primary: key, related: portion, ...terms })).related)
  }
  const isCreated: IsCreated = (resource, stored, found) => {
    const candidate = {
      resource,
      object: found,
      isAnnotated: !stored.referenceOnly || found !== stored.object,
      isFingerprinted: resource.strategy !== 'CreateOnly' && !events.isReferenceOnly(resource),
    }
    return adoptions.isCreatedBy(identity, object, candidate, { reconciler, namespace, signal })
  }
  const found = [...first.related, ...second].flat()
  const [owned, related, patched] = await Promise.all([
    ownedBy(object, spec, first.owned, { resolve, resolveWhole, isCreated }),
    relatedTo(object, spec.related, found, resolve),
    relatedTo(object, patches, found, resolveWhole),
  ])
  const mine = first.owned.flat().filter((child) => isOwnedBy(child.object, object))
  const newest = [...mine, ...related, ...patched].reduce(
    (latest, other) => (other.sequence > latest.sequence ? other : latest),
    primary,
  )
  return {
    object,
    owned,
    related: related.map((other) => other.object),
    patched: patched.map((other) => other.object),
    owner,
    storedAt,
    traceparent: newest.traceparent,
  }
}

/**
 * Throws KindNotListedError if the primary names a kind of which EVENTS may lack objects: no cursor covers the Reconciler.
 * The cursor is read after the primary and before the objects, so that it does not promise too much.
 */
async function demandListed(
  cursor: EventStore['cursor'],
  spec: ReconcilerSpec,
  reconciler: KubeObject,
  primary: KubeObject,
): Promise<void> {
  for (const one of spec.related) {
    const { kindPath } = one
    if (kindPath === undefined || !isKindNamed(one, primary)) continue
    const id = coverageId(reconciler, spec)
    const ref = { group: one.group, version: one.version, resource: one.resource }
    const { namespace } = primary.metadata
    const near = namespace === undefined || crossesNamespaces(one) ? [] : [namespace]
    if (!(await isListed(cursor, ref, id, near)))
      throw new KindNotListedError(kindName(one.kind, apiVersionOf(one)), kindPath, whyUnlisted(reconciler))
  }
}

/** Returns what bridges say about kinds that primaries name. */
function whyUnlisted({ status }: KubeObject): string | undefined {
  const { conditions = [] } = (status ?? {}) as { conditions?: { type: string; message?: string }[] }
  return conditions.find(({ type }) => type === NAMED_KINDS)?.message
}

const isMetadataEnough = ({ owns, related }: ReconcilerSpec, { group, resource }: ResourceRef): boolean =>
  [...owns, ...related].every((one) => one.group !== group || one.resource !== resource || one.metadataOnly === true)

/**
 * Whether the reconciler has created or adopted the stored object. `found` is the same object with its references
 * resolved.
 */
type IsCreated = (resource: OwnedResource, stored: StoredObject, found: KubeObject) => Promise<boolean>

/**
 * Returns the owned objects without those that are gone, and without those that other reconcilers have created for the
 * same owner.
 */
async function ownedBy(
  owner: KubeObject,
  { owns }: ReconcilerSpec,
  found: readonly StoredObject[][],
  { resolve, resolveWhole, isCreated }: { resolve: Resolve; resolveWhole: Resolve; isCreated: IsCreated },
): Promise<OwnedObject[]> {
  const children = owns.flatMap((resource, index) =>
    (found[index] ?? [])
      .filter((child) => isOwnedBy(child.object, owner) || mayBeRetained(child))
      .map((child) => ({ resource, child })),
  )
  const created = await mapAtMost(REFERENCES_AT_ONCE, children, async ({ resource, child }) => {
    const object = await (mayBeRetained(child) ? resolveWhole : resolve)(resource, child)
    if (object === undefined || !isOwnedBy(object, owner)) return undefined
    return (await isCreated(resource, child, object)) ? { resource, object } : undefined
  })
  return created.filter((child) => child !== undefined)
}

/**
 * The server compares each filter with each other one (nats-server 2.15: 700 names take four seconds), and users who
 * may write the primary decide how many there are. Above this number of names and namespaces, more objects are read and
 * then filtered.
 */
const MOST_LOOKUPS = 64

/** Returns the queries of relations that do not depend on fields of the primary. */
const queriesNear = (related: readonly RelatedResource[], { namespace, name }: Primary): RelatedQuery[] =>
  related.flatMap((one) =>
    queriesOf(one, {
      namespaces: namespacesNear(one, namespace),
      clusterScoped: true,
      names: one.naming === undefined ? undefined : [name],
    }),
  )

/** Returns the queries of relations that fields of the primary name. */
function queriesNamed(named: readonly RelatedResource[], primary: KubeObject): RelatedQuery[] {
  const lookups = named
    .map((one) => ({ one, lookup: relatedLookup(one, primary) }))
    .filter(({ lookup }) => lookup.names?.length !== 0)
  const widen = [(lookup: RelatedLookup) => lookup, ofAnyName].find(
    (wider) => sum(lookups.map(({ lookup }) => countOf(wider(lookup)))) <= MOST_LOOKUPS,
  )
  return lookups.flatMap(({ one, lookup }) => queriesOf(one, (widen ?? ofAnyNamespace)(lookup)))
}

/** Returns a query for each recorded object of others, so that no other one counts for the limit of the run. */
const queriesRecorded = ({ patches = [] }: ReconcilerSpec, primary: KubeObject, identity: string): RelatedQuery[] =>
  patchedBy(primary, identity).flatMap(({ group, resource, namespace, name }) => {
    const declared = patches.find((one) => one.group === group && one.resource === resource)
    if (declared === undefined) return []
    const ref = { group, version: declared.version, resource }
    return [namespace === undefined ? { ref, clusterScoped: true, name } : { ref, namespace, name }]
  })

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
  const { group, version, resource, byName, naming } = related
  const { namespaces, clusterScoped, names } = lookup
  const ref = { group, version, resource }
  const near = namespaces?.map((namespace) => ({ ref, namespace })) ?? [{ ref }]
  const places: { ref: ResourceRef; namespace?: string; clusterScoped?: boolean }[] =
    namespaces && clusterScoped ? [...near, { ref, clusterScoped }] : near
  const selection = relatedSelection(related)
  if (names !== undefined)
    return places.flatMap((place) =>
      names.map((name) => (naming === undefined ? { ...place, name } : { ...place, selection, naming: name })),
    )
  return byName !== undefined && naming === undefined ? places : places.map((place) => ({ ...place, selection }))
}

/**
 * Returns each object once, even if several declarations select it. Fields need the object, not a reference.
 */
async function relatedTo(
  primary: KubeObject,
  related: readonly RelatedResource[],
  found: readonly StoredObject[],
  resolve: Resolve,
): Promise<StoredObject[]> {
  const isNear = anyRelation(
    related.map((one) => ({
      ...one,
      fieldSelector: undefined,
      ...(one.naming !== undefined && { naming: undefined, byName: undefined }),
    })),
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

function anyRelation(related: readonly RelatedResource[], primary: KubeObject) {
  const relations = related.map((one) => ({ one, holds: relation(one)(primary) }))
  return (ref: ResourceRef, other: KubeObject): boolean =>
    relations.some(({ one, holds }) => one.group === ref.group && one.resource === ref.resource && holds(other))
}

/**
 * The object and the owned objects as a run has observed them. A view is used if this process caused the new observation
 * by a change that it has put into EVENTS. A change of another process comes with a token, and is read from EVENTS.
 */
export class RunView implements Disposable {
  #view: View | undefined

  async observe(events: Pick<EventStore, 'observe'>, query: ObserveQuery): Promise<Observed> {
    const shown = this.#view?.observed(query.allowance)
    if (shown) return shown
    this.end()
    const { view, ...found } = await events.observe({ ...query, withView: true })
    this.#view = view
    return found
  }

  /** Ends the view. The next observation reads EVENTS. */
  end(): void {
    this.#view?.close()
    this.#view = undefined
  }

  [Symbol.dispose](): void {
    this.end()
  }
}
