import type { ResourceRef } from '#contracts'
import { type EventStore, keyOf } from '#events'

const AT_ONCE = 64

/** Acts on every key, a bounded number at a time; resolves with how many there were. */
export async function forEachKey(
  keys: Iterable<string> | AsyncIterable<string>,
  act: (key: string, index: number) => Promise<void>,
): Promise<number> {
  let count = 0
  let batch: Promise<void>[] = []
  for await (const key of keys) {
    batch.push(act(key, count++))
    if (batch.length < AT_ONCE) continue
    await Promise.all(batch)
    batch = []
  }
  await Promise.all(batch)
  return count
}

/**
 * The keys of every object that EVENTS has of a resource in a namespace (left out: in all of them), and of those that are in
 * none, to which every namespace belongs.
 */
export async function* keysIn(events: EventStore, ref: ResourceRef, namespace?: string): AsyncGenerator<string> {
  for await (const { key, deleted } of events.identities(ref, namespace, { withoutNamespace: true }))
    if (!deleted) yield keyOf(key.namespace, key.name)
}
