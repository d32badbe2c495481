import type { KubeObject, ResourceRef } from '#contracts'
import { type EventStore, keyOf, parseKey } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { type CoveredUpTo, difference, type Known, known } from './compare.ts'
import type { News } from './publisher.ts'
import type { Routes } from './routing.ts'
import type { RelistReport } from './types.ts'

export interface RelistPlan {
  ref: ResourceRef
  routes: Routes
  /** Up to where, and for which Reconcilers (by token), keys were enqueued for certain: there nothing is owed. */
  coveredUpTo: CoveredUpTo | undefined
  covers: ReadonlySet<string>
  signal: AbortSignal
}

/** One thing to publish, in order per `key`. */
export interface Found {
  key: string
  news: News | (() => Promise<News>)
  /** Left out: every Reconciler is owed a run. */
  only?: (token: string) => boolean
}

export interface RelistDeps {
  kube: KubeClient
  events: EventStore
  /** Resolves when there is room for the next. */
  publish: (found: Found) => Promise<void>
  /** Sees every listed object. */
  listed?: ((object: KubeObject) => void) | undefined
}

/**
 * Lists a resource, compares with EVENTS, and publishes the difference: what is new or changed, and as deletions, with
 * their last known state, what is gone. What is unchanged costs nothing unless its keys are owed a run.
 *
 * EVENTS is read first: whatever it has by then existed by then, so what a list of the newest state lacks is gone.
 */
export async function relist(plan: RelistPlan, deps: RelistDeps): Promise<RelistReport & { resourceVersion: string }> {
  const { ref, signal } = plan
  const remaining = await readKnown(plan, deps.events)
  const report = { objects: 0, changed: 0, deleted: 0, resourceVersion: '' }
  for await (const page of deps.kube.list(resourcePath(ref), { signal })) {
    report.resourceVersion = page.resourceVersion
    for (const object of page.items) {
      const key = keyOf(object.metadata.namespace, object.metadata.name)
      const findings = findingsOf(plan, deps.events, key, remaining.get(key), object)
      remaining.delete(key)
      deps.listed?.(object)
      report.objects++
      if (findings.some(({ news }) => isChange(news))) report.changed++
      for (const found of findings) await deps.publish(found)
    }
  }
  for (const [key, gone] of remaining) {
    if (gone.deleted && gone.covered) continue
    if (!gone.deleted) report.deleted++
    await deps.publish({ key, news: ending(ref, key, gone, deps.events) })
  }
  return report
}

async function readKnown({ ref, coveredUpTo, signal }: RelistPlan, events: EventStore): Promise<Map<string, Known>> {
  const objects = new Map<string, Known>()
  for await (const identity of events.identities(ref)) {
    signal.throwIfAborted()
    objects.set(keyOf(identity.key.namespace, identity.key.name), known(identity, coveredUpTo))
  }
  return objects
}

function findingsOf(
  { ref, routes, covers }: RelistPlan,
  events: EventStore,
  key: string,
  before: Known | undefined,
  object: KubeObject,
): Found[] {
  const owner = routes.ownerOf(object)
  const verb = difference(before, object, owner)
  switch (verb) {
    case 'added':
    case 'modified':
      return [{ key, news: { verb, object } }]
    case 'replaced':
      return [
        ...(before ? [{ key, news: ending(ref, key, before, events) }] : []),
        { key, news: { verb: 'added', object } },
      ]
    case 'same': {
      const { namespace, name, labels = {} } = object.metadata
      const news = { verb: undefined, namespace, name, labels, owner }
      if (before?.covered !== true) return [{ key, news }]
      const isOwed = (token: string) => !covers.has(token)
      return routes.tokensOf(ref).some(isOwed) ? [{ key, news, only: isOwed }] : []
    }
  }
}

/** The deletion of an object that is no longer there, or the keys it concerned if somebody has told it already. */
function ending(ref: ResourceRef, key: string, gone: Known, events: EventStore): () => Promise<News> {
  const { namespace, name } = parseKey(key)
  return async () => {
    const { primary } = gone.deleted ? {} : await events.observe({ primary: { ref, namespace, name } })
    const isUntold = primary?.uid === gone.uid && primary.resourceVersion === gone.resourceVersion
    if (primary && isUntold) return { verb: 'deleted', object: primary.object }
    return { verb: undefined, namespace, name, labels: undefined, owner: gone.owner }
  }
}

const isChange = (news: Found['news']): boolean => typeof news !== 'function' && news.verb !== undefined
