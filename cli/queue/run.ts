import type { KubeObject, ResourceRef } from '#contracts'
import type { EventsView } from '#events'
import type { WorkQueue } from '#queue'
import { RECONCILERS } from '#spec'
import type { Print } from '../options.ts'
import { called } from './rows.ts'
import { demandReconciler, type KeyName, keyFor, keyNameOf } from './select.ts'

export interface RunNowOptions {
  reconciler: string
  /** As they were given. */
  keys: readonly string[]
  namespace?: string
  output: 'text' | 'json'
}

export interface RunNowTools {
  queue: WorkQueue
  events: EventsView
  print: Print
}

/**
 * Queues objects as their changes would: idle ones run, those that wait do not wait any longer, and those that run do so
 * once more. True: each of them is there. Only what is in EVENTS is queued: what has no such name would end in silence.
 */
export async function runNow(options: RunNowOptions, { queue, events, print }: RunNowTools): Promise<boolean> {
  const { reconciler, keys, namespace, output } = options
  await demandReconciler(queue, reconciler)
  const primary = await primaryOf(events, reconciler)
  const results: (KeyName & { reconciler: string; result: 'queued' | 'absent' })[] = []
  for (const name of keys.map((key) => keyNameOf(key, namespace))) {
    const there = await objectsNamed(events, primary, name.name)
    const isThere = there.some((object) => object.metadata.namespace === name.namespace)
    const { fn, key } = keyFor(reconciler, name)
    if (isThere) await queue.enqueue(fn, key)
    const acted = { reconciler, ...name, result: isThere ? ('queued' as const) : ('absent' as const) }
    results.push(acted)
    if (output === 'text') print(`${called(acted)}: ${isThere ? 'queued' : `no such object${elsewhere(there)}`}`)
  }
  if (output === 'json') print(JSON.stringify(results, null, 2))
  return results.every(({ result }) => result === 'queued')
}

/** The resource whose objects are its keys. */
async function primaryOf(events: EventsView, reconciler: string): Promise<ResourceRef> {
  const [found] = await objectsNamed(events, RECONCILERS, reconciler)
  if (found === undefined) throw new Error(`there is no Reconciler ${reconciler} any more: nothing would run`)
  return (found['spec'] as { for: ResourceRef }).for
}

async function objectsNamed(events: EventsView, ref: ResourceRef, name: string): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  for await (const { verb, object } of events.stored([{ ref, name }]))
    if (verb === 'added' || verb === 'modified') found.push(object)
  return found
}

const elsewhere = (there: readonly KubeObject[]): string =>
  there.length === 0
    ? ''
    : `; there is ${there
        .slice(0, 5)
        .map(({ metadata: { namespace, name } }) => (namespace === undefined ? name : `${namespace}/${name}`))
        .join(', ')}`
