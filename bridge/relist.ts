import { setImmediate as endOfTurn } from 'node:timers/promises'
import { apiVersionOf, type KubeObject, type ResourceRef } from '#contracts'
import { type EventStore, keyOf, parseKey } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { type CoveredUpTo, difference, disproved, type Known, known } from './compare.ts'
import { UnwatchableError } from './failure.ts'
import { KnownObjects } from './known-objects.ts'
import { type ListObjectsOptions, listObjects, ofKind } from './list-objects.ts'
import type { News } from './publisher.ts'
import type { Routes } from './routing.ts'
import type { RelistReport } from './types.ts'

export interface RelistPlan extends ListObjectsOptions {
  ref: ResourceRef
  /** Left out: all namespaces. */
  namespace: string | undefined
  routes: Routes
  /**
   * The position up to which keys were certainly enqueued, and the Reconcilers (by coverage ID) for which they were.
   */
  coveredUpTo: CoveredUpTo | undefined
  covers: ReadonlySet<string>
  /** A sweep may delete objects below this sequence of EVENTS, so the list stores them again. */
  unsafeBelow: number
}

/** One change to publish. Changes with the same `key` keep their order. */
export interface ListedChange {
  key: string
  news: News | (() => Promise<News>)
  /** Left out: the lane of the list. */
  lane?: 'high'
  /** Left out: every Reconciler must run. */
  only?: ((coverageId: string) => boolean) | undefined
}

export interface RelistDeps {
  kube: KubeClient
  events: EventStore
  /** Resolves when there is room for the next one. */
  publish: (found: ListedChange) => Promise<void>
  /** Receives every listed object, and then its changes during the list. */
  listed?: ((object: KubeObject, isGone: boolean) => void) | undefined
}

/** The number of objects of EVENTS that are read in one turn of the event loop. */
const KNOWN_IN_A_TURN = 100

/**
 * Lists a resource, compares the list with EVENTS, and publishes the difference: new and changed objects, and missing
 * objects as deletions with their last known state. An unchanged object costs nothing, unless its keys must run.
 *
 * EVENTS is read first. Each object in it existed at that time, so an object that a later list of the newest state
 * lacks is gone. An object in the list exists, even if EVENTS has its deletion
 * (docs/decisions/0025-back-in-a-selection.md).
 */
export async function relist(plan: RelistPlan, deps: RelistDeps): Promise<RelistReport & { resourceVersion: string }> {
  const { ref, namespace, selection } = plan
  const { stored, kind } = await readKnown(plan, deps.events)
  // The memory of the writer may have objects that were swept.
  if (plan.unsafeBelow > 0) deps.events.forget(ref)
  const report = { objects: 0, changed: 0, deleted: 0, resourceVersion: '' }
  for await (const event of listObjects(deps.kube, resourcePath(ref, namespace), plan)) {
    if (event.type === 'COMPLETE') {
      report.resourceVersion = event.resourceVersion
      break
    }
    const object = ofKind(event.object, selection, apiVersionOf(ref))
    const { uid, resourceVersion } = object.metadata
    if (!uid || !resourceVersion)
      throw new UnwatchableError(`${object.metadata.name} has no uid or no resourceVersion: choose another resource`)
    const key = keyOf(object.metadata.namespace, object.metadata.name)
    const findings = findingsOf(plan, deps.events, key, stored.take(key), object, event.type)
    deps.listed?.(object, event.type === 'DELETED')
    if (event.type === 'PRESENT') report.objects++
    if (findings.some(({ news }) => isChange(news))) report.changed++
    for (const found of findings) await deps.publish(found)
  }
  for (const [key, gone] of stored.remaining()) {
    if (gone.deleted && gone.hasStaleCopy) await deps.publish({ key, news: deletionOf(ref, kind, key, gone) })
    else if (!gone.deleted || !gone.covered) await deps.publish({ key, news: ending(ref, key, gone, deps.events) })
    if (!gone.deleted) report.deleted++
  }
  return report
}

async function readKnown(
  { ref, namespace, coveredUpTo, signal }: RelistPlan,
  events: EventStore,
): Promise<{ stored: KnownObjects; kind: string }> {
  const stored = new KnownObjects()
  let kind = ''
  let read = 0
  for await (const identity of events.identities(ref, namespace)) {
    signal.throwIfAborted()
    stored.add(keyOf(identity.key.namespace, identity.key.name), known(identity, coveredUpTo))
    kind = identity.object.kind
    // Up to 24 MiB of objects arrive at once. Changes must not wait until all of them are parsed.
    if (++read % KNOWN_IN_A_TURN === 0) await endOfTurn()
  }
  return { stored, kind }
}

function findingsOf(
  { ref, routes, covers, selection, unsafeBelow }: RelistPlan,
  events: EventStore,
  key: string,
  before: Known | undefined,
  object: KubeObject,
  type: 'PRESENT' | 'MODIFIED' | 'DELETED',
): ListedChange[] {
  // The change has just happened, so it does not wait behind the objects of the list.
  if (type !== 'PRESENT')
    return [{ key, lane: 'high', news: { verb: type === 'DELETED' ? 'deleted' : 'modified', object } }]
  const owner = routes.ownerOf(object)
  const verb = difference(before, object, owner)
  switch (verb) {
    case 'added':
    case 'modified':
      return [{ key, news: { verb, object, disproves: disproved(before, object) ?? staleBeside(before) } }]
    case 'replaced':
      return [
        ...(before ? [{ key, news: ending(ref, key, before, events) }] : []),
        { key, news: { verb: 'added', object } },
      ]
    case 'same': {
      const isRepaired = before?.hasStaleCopy === true && (owner !== undefined || before.owner === undefined)
      if (before && (before.sequence < unsafeBelow || isRepaired))
        return [{ key, news: { verb: 'modified', object, disproves: before.sequence } }]
      const isOwed = (coverageId: string) => !covers.has(coverageId)
      const only = before?.covered === true ? isOwed : undefined
      if (only && !routes.coverageIdsOf(ref).some(isOwed)) return []
      // A Reconciler needs the whole object now.
      const isWanting = before?.partial === true && selection.metadataOfKind === undefined
      const { namespace, name } = object.metadata
      return [
        {
          key,
          only,
          news: isWanting ? { verb: 'modified', object } : { verb: undefined, namespace, name, object, owner },
        },
      ]
    }
  }
}

/** Returns the deletion of an object that no longer exists, or its keys if the deletion is stored already. */
function ending(ref: ResourceRef, key: string, gone: Known, events: EventStore): () => Promise<News> {
  const { namespace, name } = parseKey(key)
  return async () => {
    const { primary } = gone.deleted ? {} : await events.observe({ primary: { ref, namespace, name } })
    const isUntold = primary?.uid === gone.uid && primary.resourceVersion === gone.resourceVersion
    if (primary && isUntold) return { verb: 'deleted', object: primary.object, disproves: staleBeside(gone) }
    return { verb: undefined, namespace, name, object: undefined, owner: gone.owner }
  }
}

/** Returns a deletion that EVENTS has already, to be stored once more, because a stale copy is beside it. */
function deletionOf(ref: ResourceRef, kind: string, key: string, gone: Known): News {
  const { namespace, name } = parseKey(key)
  const { uid, resourceVersion } = gone
  const metadata = { name, ...(namespace !== undefined && { namespace }), uid, resourceVersion }
  return { verb: 'deleted', object: { apiVersion: apiVersionOf(ref), kind, metadata }, disproves: staleBeside(gone) }
}

/**
 * The sequence of a copy that has a stale copy beside it. A write that disproves it looks at all copies, and retires the
 * stale one.
 */
const staleBeside = (before: Known | undefined): number | undefined =>
  before?.hasStaleCopy === true ? before.sequence : undefined

const isChange = (news: ListedChange['news']): boolean => typeof news !== 'function' && news.verb !== undefined
