import type { About, RecordWrite } from '#console/access'
import { TO_LIST_DEAD, TO_PUBLISH, TO_REPLAY_DEAD, toChangeQueue, toGet } from '#console/access'
import { apiVersionOf, type ResourceRef } from '#contracts'
import { type Act, actOn, isDone, type KeyName, MEANING, queueNow, replay } from '#inspect'
import { UsageError } from '#process/exit'
import { RECONCILERS } from '#spec'
import { type Ask, primaries } from '../pages/page.ts'
import { selectedRows } from '../pages/queue.ts'

/** Keys of one request. */
const MOST_KEYS = 1000

/** The body of a request for a write. Everything in it is checked. */
export interface Wanted {
  act?: unknown
  /** `[reconciler, namespace or null, name]` of each. */
  keys?: unknown
  /** The query of a queue's page, instead of keys. */
  matching?: unknown
  /** `next` of the request before, if this request continues it. */
  after?: unknown
  letter?: unknown
  /** `[kind, namespace or null, name]` */
  object?: unknown
}

/** Nothing waits for the Event of a write: a thousand keys are a thousand Events. */
function report({ person, log }: Ask, record: RecordWrite, what: string, about: About): void {
  record(person, what, about).catch((error: unknown) => log.warn({ err: error, about }, 'a write has no Event'))
}

interface Done {
  say: string
  /** Each that was wanted is as it should be. */
  isDone: boolean
  /** The number of keys with each result, in words. */
  counts?: Record<string, number>
  /** The place from which another request continues. Left out: no key is left. */
  next?: string
  /** The number of keys that match and come after that place. */
  left?: number
}

type Key = KeyName & { reconciler: string }

/** A write that a person asks for: allowed, done, and recorded. */
export async function perform(wanted: Wanted, ask: Ask, record: RecordWrite): Promise<Done> {
  if (!ask.abilities.writes) return { say: 'this console only reads: start it with --allow-writes', isDone: false }
  const { act } = wanted
  if (act === 'replay') return replayLetter(Number(wanted.letter), ask, record)
  if (act === 'publish') return publish(wanted.object, ask, record)
  if (act === 'run' || act === 'retry' || act === 'park' || act === 'purge') return onKeys(act, wanted, ask, record)
  throw new UsageError(`there is no act ${JSON.stringify(act)}`)
}

const REFUSED = (what: string): Done => ({ say: `you may not ${what}`, isDone: false })

async function onKeys(act: Act | 'run', wanted: Wanted, ask: Ask, record: RecordWrite): Promise<Done> {
  const { keys, next, left } = await keysOf(wanted, ask)
  const results = new Map<string, number>()
  let isAllDone = true
  const byReconciler = Map.groupBy(keys, ({ reconciler }) => reconciler)
  for (const reconciler of byReconciler.keys())
    if (!(await ask.may(toChangeQueue(reconciler)))) return REFUSED(`update reconcilers/queue of ${reconciler}`)
  for (const [reconciler, names] of byReconciler) {
    const kind = (await primaries(ask)).get(reconciler)
    for await (const { result, ...key } of acted(act, reconciler, names, ask)) {
      results.set(result, (results.get(result) ?? 0) + 1)
      isAllDone &&= act === 'run' ? result === 'queued' : isDone(result as never, act)
      if (result !== 'absent' && result !== 'idle')
        report(ask, record, `${SAID[act]}: ${MEANING[result]}`, about(kind, key))
    }
  }
  const counts = [...results].map(([result, count]): [string, number] => [WORDS[result] ?? result, count])
  const said = counts.map(([word, count]) => `${count.toLocaleString('en')} ${word}`).join(', ')
  return {
    say: `${SAID[act]}: ${said || 'nothing to do'}`,
    isDone: isAllDone,
    counts: Object.fromEntries(counts),
    ...(next !== undefined && { next, left }),
  }
}

const SAID = { run: 'Run', retry: 'Retried', park: 'Parked', purge: 'Purged' }
const WORDS: Record<string, string> = { idle: 'were idle', running: 'run now', absent: 'do not exist' }

async function* acted(act: Act | 'run', reconciler: string, names: readonly Key[], { data }: Ask) {
  const { queue, view: events } = await data.nats()
  if (act === 'run') yield* queueNow({ queue, events }, reconciler, names)
  else yield* actOn(queue, act, reconciler, names, AbortSignal.timeout(60_000))
}

/**
 * Returns the keys of one request. Those that match are in the order of their names, so that each request of a series
 * has other keys, even if keys still match after the act.
 */
async function keysOf(
  { keys, matching, after }: Wanted,
  ask: Ask,
): Promise<{ keys: Key[]; next?: string; left: number }> {
  if (typeof matching !== 'string')
    return { keys: Array.isArray(keys) ? keys.slice(0, MOST_KEYS).map(keyIn) : [], left: 0 }
  const { rows } = await selectedRows({ ...ask, url: new URL(`/queue${matching}`, ask.url) })
  const placed = rows
    .map((row) => ({ row, place: JSON.stringify([row.reconciler, row.namespace ?? null, row.name]) }))
    .filter(({ place }) => typeof after !== 'string' || place > after)
    .sort((a, b) => (a.place < b.place ? -1 : 1))
  const now = placed.slice(0, MOST_KEYS)
  const left = placed.length - now.length
  const next = left === 0 ? undefined : now.at(-1)?.place
  return { keys: now.map(({ row }) => row), ...(next !== undefined && { next }), left }
}

function keyIn(given: unknown): Key {
  const [reconciler, namespace, name] = textsIn(given)
  return { reconciler, ...(namespace !== null && { namespace }), name }
}

/** A name, a namespace or null, and a name. */
function textsIn(given: unknown): [string, string | null, string] {
  const [first, namespace, name] = Array.isArray(given) ? (given as unknown[]) : []
  const isGood = typeof first === 'string' && typeof name === 'string' && first !== '' && name !== ''
  if (!isGood || (namespace !== null && typeof namespace !== 'string'))
    throw new UsageError(`${JSON.stringify(given)} names nothing: give [reconciler, namespace or null, name]`)
  return [first, namespace, name]
}

const about = (kind: (ResourceRef & { kind: string }) | undefined, { reconciler, namespace, name }: Key): About =>
  kind === undefined
    ? { apiVersion: apiVersionOf(RECONCILERS), kind: 'Reconciler', name: reconciler }
    : { apiVersion: apiVersionOf(kind), kind: kind.kind, ...(namespace !== undefined && { namespace }), name }

async function replayLetter(id: number, ask: Ask, record: RecordWrite): Promise<Done> {
  if (!(await ask.may(TO_LIST_DEAD)) || !(await ask.may(TO_REPLAY_DEAD)))
    return REFUSED('list and update reconcilers/dead')
  const streams = await ask.data.nats()
  const letter = await streams.dead.get(id)
  if (letter === undefined) return { say: `there is no dead letter ${id} any more`, isDone: false }
  const { done, text } = await replay(letter, streams)
  if (done)
    report(ask, record, `dead letter ${text}`, {
      apiVersion: apiVersionOf(RECONCILERS),
      kind: 'Reconciler',
      name: letter.reconciler ?? '-',
    })
  return { say: text, isDone: done }
}

async function publish(object: unknown, ask: Ask, record: RecordWrite): Promise<Done> {
  const { publish: store } = ask.abilities
  if (store === undefined) return { say: 'this console publishes nothing', isDone: false }
  const [kind, namespace, name] = textsIn(object)
  const asked = { kind, namespace: namespace ?? undefined, name }
  const target = await ask.data.target(asked)
  const { ref } = target
  if (!(await ask.may(TO_PUBLISH)) || !(await ask.may(toGet(ref, target.namespace, name))))
    return REFUSED(`create reconcilers/events and get ${ref.resource}`)
  const { object: found } = await ask.data.situation(asked)
  if (found === undefined) return { say: `there is no ${target.kind} ${name}`, isDone: false }
  const say = await store(ref, target.namespace, name)
  const { namespace: where } = target
  report(ask, record, `its event was published by hand: ${say}`, {
    apiVersion: apiVersionOf(ref),
    kind: target.kind,
    ...(where !== undefined && { namespace: where }),
    name,
  })
  return { say, isDone: true }
}
