import type { ResourceRef } from '#contracts'
import { type EventStore, keyOf } from '#events'

/** Keys that are enqueued at the same time, where every key of a Reconciler is. */
export const KEYS_AT_ONCE = 64

/**
 * The keys of every object that EVENTS has of a resource in a namespace (left out: in all of them), and of those that are in
 * none, to which every namespace belongs.
 */
export async function* keysIn(events: EventStore, ref: ResourceRef, namespace?: string): AsyncGenerator<string> {
  for await (const { key, deleted } of events.identities(ref, namespace, { withoutNamespace: true }))
    if (!deleted) yield keyOf(key.namespace, key.name)
}
