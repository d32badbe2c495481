import type { KubeObject, ResourceRef } from '#contracts'
import type { EventsView } from '#events'
import type { WorkQueue } from '#queue'
import { RECONCILERS } from '#spec'
import { presentObjects } from '../stored.ts'
import { demandReconciler, type KeyName, keyFor } from './select.ts'

export interface QueuedNow extends KeyName {
  reconciler: string
  result: 'queued' | 'absent'
  /** Objects with that name in any namespace. */
  there: readonly KubeObject[]
}

/**
 * Queues objects as a change would: idle keys run, waiting keys run now, and running keys run once more. Queues only
 * objects that EVENTS contains: a run for another name would end without an effect.
 */
export async function* queueNow(
  { queue, events }: { queue: WorkQueue; events: EventsView },
  reconciler: string,
  names: readonly KeyName[],
): AsyncGenerator<QueuedNow> {
  await demandReconciler(queue, reconciler)
  const primary = await primaryOf(events, reconciler)
  for (const name of names) {
    const there = await presentObjects(events, { ref: primary, name: name.name })
    const isThere = there.some((object) => object.metadata.namespace === name.namespace)
    if (isThere) await queue.enqueue(reconciler, keyFor(reconciler, name).key)
    yield { reconciler, ...name, result: isThere ? 'queued' : 'absent', there }
  }
}

/** Returns the resource of the reconciled objects. */
async function primaryOf(events: EventsView, reconciler: string): Promise<ResourceRef> {
  const [found] = await presentObjects(events, { ref: RECONCILERS, name: reconciler })
  if (found === undefined) throw new Error(`there is no Reconciler ${reconciler} any more: nothing would run`)
  return (found['spec'] as { for: ResourceRef }).for
}
