import { namespacedName } from '#contracts'
import { type CloudEvent, keyOf, type TakeTrigger, type Trigger, type TriggerAnswer } from '#events'
import { TokenBucket } from '#primitives'
import { isRefused, valuesAt } from '#spec'
import type { Reconciler, RefusedReconciler } from './reconcilers.ts'
import type { BridgeDeps } from './types.ts'

export interface TriggerDeps extends Pick<BridgeDeps, 'events' | 'queue'> {
  /** Returns a Reconciler that this bridge serves. `starting`: not yet, or not all Reconcilers are known yet. */
  find: (name: string) => Reconciler | RefusedReconciler | 'starting' | undefined
  /** Whether EVENTS has all objects in the namespace that existed when this bridge began to watch them. */
  isListed: (reconciler: Reconciler, namespace: string | undefined) => boolean
}

/** The triggers that one bridge accepts for one Reconciler. */
const RATE = { perSecond: 100, burst: 1000 }
const STARTING_MS = 500

/**
 * Returns what decides on triggers. It queues only keys of objects that EVENTS has, so no sender can fill the queue. A
 * trigger queues a key and changes nothing else: its run reads the object as every run does.
 */
export function createTriggers({ events, queue, find, isListed }: TriggerDeps): TakeTrigger {
  const rates = new WeakMap<Reconciler, TokenBucket>()
  const rateOf = (reconciler: Reconciler): TokenBucket => {
    const rate = rates.get(reconciler) ?? new TokenBucket(RATE, () => performance.now())
    rates.set(reconciler, rate)
    return rate
  }
  return async ({ reconciler: name, of, cause }: Trigger): Promise<TriggerAnswer> => {
    const reconciler = find(name)
    if (reconciler === 'starting') return { againMs: STARTING_MS }
    if (reconciler === undefined) return { refused: `there is no Reconciler ${name}` }
    if (isRefused(reconciler)) return { refused: `the Reconciler ${name} is not served: ${reconciler.message}` }
    const rate = rateOf(reconciler).takeWithin(0)
    if ('returnMs' in rate) return { againMs: Math.ceil(rate.returnMs) }
    const named = 'event' in of ? namedIn(of.event, reconciler) : of
    if ('refused' in named) return named
    const { primary } = await events.observe({ primary: { ref: reconciler.spec.for, ...named } })
    if (primary === undefined && !isListed(reconciler, named.namespace)) return { againMs: STARTING_MS }
    if (primary === undefined) return { refused: `there is no ${reconciler.spec.for.kind} ${namespacedName(named)}` }
    return { result: await queue.enqueue(name, keyOf(named.namespace, named.name), { cause }) }
  }
}

/** Returns the object that an event names by the declaration of the Reconciler. */
function namedIn(
  event: CloudEvent,
  { name: reconciler, spec: { trigger } }: Reconciler,
): { namespace: string | undefined; name: string } | { refused: string } {
  if (trigger === undefined)
    return {
      refused: `the Reconciler ${reconciler} takes no CloudEvents: declare trigger, or name the object in the subject`,
    }
  const [name, namespace] = [trigger.name, trigger.namespace].map((path) => path && textAt(event, path))
  const missing = name === '' ? trigger.name : namespace === '' ? trigger.namespace : undefined
  if (name === undefined || missing !== undefined)
    return {
      refused: `the event ${event.id} has no text, or several, at ${missing}, where the Reconciler ${reconciler} looks`,
    }
  return { namespace, name }
}

/** Returns the only text at a path of an event, and '' if there is another number of them. */
function textAt(event: CloudEvent, path: string): string {
  const [text, ...more] = valuesAt(event, path)
  return typeof text === 'string' && more.length === 0 ? text : ''
}
