import type { ResourceRef } from '#contracts'
import { type EventStore, keyOf } from '#events'

/** The number of keys in progress when every key of a Reconciler is enqueued. */
export const KEYS_AT_ONCE = 64

/**
 * Returns the keys of every object of a resource that EVENTS has in a namespace (left out: in all of them). It includes
 * cluster-scoped objects, which count for every namespace.
 */
export async function* keysIn(events: EventStore, ref: ResourceRef, namespace?: string): AsyncGenerator<string> {
  for await (const { key, deleted } of events.identities(ref, namespace, { withoutNamespace: true }))
    if (!deleted) yield keyOf(key.namespace, key.name)
}
