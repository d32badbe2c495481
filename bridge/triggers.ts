import { namespacedName } from '#contracts'
import { type CloudEvent, type EventStore, keyOf, type TakeTrigger, type Trigger, type TriggerAnswer } from '#events'
import { TokenBucket } from '#primitives'
import { isTriggered, triggerCause, type WorkQueue } from '#queue'
import { valuesAt } from '#spec'
import type { Reconciler } from './reconcilers.ts'
import { isInNamespaces } from './routing.ts'

export interface TriggerDeps {
  events: EventStore
  queue: Pick<WorkQueue, 'enqueue' | 'find'>
  /**
   * Returns a Reconciler that this bridge serves, or why it cannot be served. `starting`: not yet, or not all Reconcilers
   * are known yet.
   */
  find: (name: string) => Reconciler | { message: string } | 'starting' | undefined
  /** Whether EVENTS has all objects in the namespace that existed when this bridge began to watch them. */
  isListed: (reconciler: Reconciler, namespace: string | undefined) => boolean
}

/** The triggers that one bridge accepts for one Reconciler. */
const RATE = { perSecond: 100, burst: 1000 }
const STARTING_MS = 500
const RUNNING_MS = 250

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
    if ('message' in reconciler) return { refused: `the Reconciler ${name} is not served: ${reconciler.message}` }
    const rate = rateOf(reconciler).takeWithin(0)
    if ('returnMs' in rate) return { againMs: Math.ceil(rate.returnMs) }
    const named = 'event' in of ? namedIn(of.event, reconciler) : of
    if ('refused' in named) return named
    const { for: ref } = reconciler.spec
    if (!isInNamespaces(ref.namespaces, named.namespace))
      return { refused: `the Reconciler ${name} is not for the namespace ${named.namespace}: spec.for.namespaces` }
    const { primary } = await events.observe({ primary: { ref, ...named } })
    if (primary === undefined && !isListed(reconciler, named.namespace)) return { againMs: STARTING_MS }
    if (primary === undefined) return { refused: `there is no ${ref.kind} ${namespacedName(named)}` }
    return queued(queue, { reconciler: name, key: keyOf(named.namespace, named.name) }, triggerCause(cause))
  }
}

/**
 * Queues a key for a run that begins later. If the key was queued before the trigger, a run under way may still take that
 * token, find nothing changed, and not call the function: then the trigger is asked for again.
 */
async function queued(
  queue: TriggerDeps['queue'],
  of: { reconciler: string; key: string },
  cause: string,
): Promise<TriggerAnswer> {
  const enqueue = () => queue.enqueue(of.reconciler, of.key, { cause })
  if ((await enqueue()) === 'queued') return { result: 'queued' }
  const entries = await queue.find(of)
  if (entries.some(({ state, causes }) => state === 'queued' && isTriggered(causes))) return { result: 'coalesced' }
  if (entries.some(({ state }) => state === 'running')) return { againMs: RUNNING_MS }
  // The run may have ended after it has taken the token. A token that is still there waits for a later run.
  return { result: await enqueue() }
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

/** Returns the only text at a path of an event, and '' if there is none, or another number of them. */
function textAt(event: CloudEvent, path: string): string {
  const [text, ...more] = valuesAt(event, path)
  return typeof text === 'string' && text.isWellFormed() && more.length === 0 ? text : ''
}
