import type { ResourceRef } from '#contracts'
import type { EventStore, ObjectKey, OwnerKey } from '#events'
import { TooMuchStateError, type World } from '#reconcile'
import { isByField, isOwnedBy, type ReconcilerSpec } from '#spec'
import type { Adoptions } from './adoptions.ts'
import { type IsCreated, ownedBy } from './owned-objects.ts'
import type { ReconcilerVersion } from './reconciler-version.ts'
import type { References, Resolve } from './references.ts'
import { queriesNamed, queriesNear, relatedTo } from './related-objects.ts'
import { RunView } from './run-view.ts'
import type { RunState, StateMeter } from './state-budget.ts'

export interface Observation extends World {
  /** The primary's own controller, if a Reconciler has it as its primary. */
  owner: OwnerKey | undefined
  /** The traceparent of the newest change of the primary, or of its owned and related objects. */
  traceparent: string | undefined
  /** When EVENTS stored this version of the primary, in epoch milliseconds. */
  storedAt: number
  /** The owned and related objects exceed the limit of a run. Both lists are empty, and the function is not called. */
  excess?: TooMuchStateError
}

interface Dependencies {
  events: Pick<EventStore, 'observe' | 'isReferenceOnly'>
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
 * Returns the primary with its owned and related objects, or the primary alone if these exceed the limit. Returns
 * undefined if the primary is gone. Throws SupersededError if the Reconciler has changed.
 */
export async function observePrimary(
  deps: Dependencies,
  observing: ObservedReconciler,
  primary: Primary,
  { state, view, signal }: { state: RunState; view: RunView; signal: AbortSignal },
): Promise<Observation | undefined> {
  try {
    return await state.read((meter) => observeAll(deps, observing, primary, { meter, view, signal }))
  } catch (error) {
    if (!(error instanceof TooMuchStateError)) throw error
    const { spec } = observing
    const alone = { ...observing, spec: { ...spec, owns: [], related: [] } }
    view.end()
    const found = await state.read((meter) => observeAll(deps, alone, primary, { meter, view: new RunView(), signal }))
    return found && { ...found, excess: error }
  }
}

/**
 * Reads EVENTS once, unless the run's view is still valid, and a second time if a field of the primary names related
 * objects. If EVENTS has only a reference to an object, the object is read from the API server.
 */
async function observeAll(
  { events, references, adoptions }: Dependencies,
  { name: reconciler, identity, spec, reconcilerVersion }: ObservedReconciler,
  { namespace, name }: Primary,
  { meter, view, signal }: { meter: StateMeter; view: RunView; signal: AbortSignal },
): Promise<Observation | undefined> {
  const key = { ref: spec.for, namespace, name }
  const near = spec.related.filter((one) => !isByField(one))
  const named = spec.related.filter(isByField)
  const terms = { allowance: meter, signal }
  const first = await view.observe(events, {
    primary: key,
    owned: spec.owns,
    related: queriesNear(near, namespace),
    news: reconcilerVersion?.news,
    ...terms,
  })
  reconcilerVersion?.check(first.news)
  const { primary } = first
  const object = primary && (await references.resolve(spec.for, primary, { meter, reconciler, signal }))
  if (primary === undefined || object === undefined) return undefined
  const resolveWhole: Resolve = (resource, stored) =>
    references.resolve(resource, stored, { meter, reconciler, signal })
  const resolve: Resolve = async (resource, stored) =>
    isMetadataEnough(spec, resource) ? stored.object : resolveWhole(resource, stored)
  const queries = queriesNamed(named, object)
  const second =
    queries.length === 0 ? [] : (await events.observe({ primary: key, related: queries, ...terms })).related
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
    ownedBy(object, spec, first.owned, { resolve, resolveWhole, isCreated }),
    relatedTo(object, spec, [...first.related, ...second].flat(), resolve),
  ])
  const mine = first.owned.flat().filter((child) => isOwnedBy(child.object, object))
  const newest = [...mine, ...related].reduce(
    (latest, other) => (other.sequence > latest.sequence ? other : latest),
    primary,
  )
  return {
    object,
    owned,
    related: related.map((other) => other.object),
    owner: primary.owner,
    storedAt: primary.storedAt,
    traceparent: newest.traceparent,
  }
}

const isMetadataEnough = ({ owns, related }: ReconcilerSpec, { group, resource }: ResourceRef): boolean =>
  [...owns, ...related].every((one) => one.group !== group || one.resource !== resource || one.metadataOnly === true)
