import { type KubeObject, namespacedName, type ResourceRef, resourceName } from '#contracts'
import { type EventsView, isKey, isPresent, keyOf, parseKey } from '#events'
import { duration, oneLine, UsageError } from '#process/exit'
import { BY_HAND, type Entry, type RetryOutcome, type WithdrawOutcome, type WorkQueue } from '#queue'
import { finalizerOf, finalizerOfReconciler, RECONCILERS, reconcilerFinalizers } from '#spec'
import { presentObjects, reconcilersIn, watchedIn } from './selection.ts'
import type { Act, State } from './states.ts'

export { withExistingStreams } from './existing-streams.ts'
export type { Act, State } from './states.ts'

/** The door of commands that read NATS alone: it loads no client of Kubernetes. */

/** One key in one state, in the form for scripts. */
export interface Row {
  reconciler: string
  namespace?: string
  name: string
  state: Entry['state']
  lane: Entry['lane']
  since: string
  attempt: number
  /** queued: the position in its lane, from 1. */
  position?: number
  /** queued: the position among the keys of its namespace in its lane, from 1. */
  positionInNamespace?: number
  /** waiting: the time at which the timer fires. running: the end of the lease. */
  until?: string
  reason?: string
  error?: string
  /** queued: why. running: why it runs, or if it is dirty, why it runs once more. */
  causes?: readonly string[]
  /** running: the name of the process. */
  by?: string
  /** running: the id of this run. */
  owner?: string
  /** running: the object has changed since the run began, so the key runs once more. */
  dirty?: boolean
  /** queued, running: the lease before it ended without the end of its run. */
  cutShort?: true
  /** Its Reconciler does not exist. */
  orphaned?: true
  /** orphaned: the finalizer that blocks the deletion of its object. */
  finalizer?: string
}

export function toRow(entry: Entry): Row {
  const until = entry.state === 'waiting' ? entry.until : entry.state === 'running' ? entry.leaseUntil : undefined
  return {
    reconciler: entry.reconciler,
    ...nameOf(entry.key),
    state: entry.state,
    lane: entry.lane,
    since: entry.since.toISOString(),
    attempt: entry.attempt,
    ...(entry.state === 'queued' && {
      position: entry.position,
      positionInNamespace: entry.positionInNamespace,
    }),
    ...(until && { until: until.toISOString() }),
    ...('reason' in entry && { reason: entry.reason }),
    error: entry.error,
    ...(entry.causes && { causes: entry.causes }),
    ...(entry.state === 'running' && { owner: entry.owner, dirty: entry.dirty }),
    ...(entry.cutShort && { cutShort: entry.cutShort }),
    ...(entry.state === 'running' && entry.by !== undefined && { by: entry.by }),
  }
}

/** Whether the lease before it ended without the end of its run. */
export const isCutShort = ({ reason, cutShort }: Row): boolean => reason === 'CutShort' || cutShort === true

/** A key in an unknown format is shown unchanged. */
function nameOf(key: string): Pick<Row, 'namespace' | 'name'> {
  if (!isKey(key)) return { name: key }
  const { namespace, name } = parseKey(key)
  return { namespace, name }
}

export const called = ({ reconciler, namespace, name }: Pick<Row, 'reconciler' | 'namespace' | 'name'>): string =>
  `${reconciler} ${namespacedName({ namespace, name })}`

/** Returns the object that a cause names; undefined if it names none, such as `resync`. */
export function objectOfCause(cause: string): { verb: string; kind: string; name: string } | undefined {
  const [, verb, kind, name] = /^(\w+) (\S+) (.+@.+)$/.exec(cause) ?? []
  return verb === undefined || kind === undefined || name === undefined ? undefined : { verb, kind, name }
}

/** `modified ConfigMap shop/settings@123` */
function causeText(cause: string): string {
  const object = objectOfCause(cause)
  return object === undefined ? cause : `${object.verb} ${object.kind.split('.')[0]} ${object.name}`
}

export const causesText = (causes: readonly string[]): string => causes.map(causeText).join(', ')

/** Returns an empty text if all keys before it are of its namespace. */
export const placeInNamespace = ({ position, positionInNamespace }: Row): string =>
  positionInNamespace === position ? '' : `, ${positionInNamespace} of its namespace`

/** Describes the state of the key. */
export function detail(row: Row, now: Date, errorChars: number): string {
  const left = row.until === undefined ? '' : duration(Date.parse(row.until) - now.getTime())
  const why = row.error === undefined ? '' : `: ${oneLine(row.error, errorChars)}`
  const { reconciler, orphaned, finalizer } = row
  if (orphaned)
    return `Reconciler ${reconciler} does not exist${finalizer === undefined ? why : `; the object waits for ${finalizer}`}`
  switch (row.state) {
    case 'queued':
      return `${row.lane} lane, place ${row.position}${placeInNamespace(row)}${why}`
    case 'running':
      return `by ${row.by ?? row.owner}, lease ${left}${row.dirty ? ', changed meanwhile' : ''}`
    case 'waiting':
      return row.reason === 'Error' ? `retry in ${left}${why}` : `timer in ${left}`
    case 'parked':
      return row.reason === 'Withdrawn' ? `by hand${why}` : `until something changes${why}`
  }
}

export interface Filter {
  reconciler?: string | undefined
  namespace?: string | undefined
  /** Empty selects all. `name` or `namespace/name`. */
  names?: readonly string[]
  /** Empty selects all. */
  states?: readonly State[]
}

/** Throws an error that lists the existing reconcilers if `reconciler` is not one of them. */
export async function demandReconciler(queue: WorkQueue, reconciler: string): Promise<void> {
  const known = await queue.reconcilers()
  if (known.includes(reconciler)) return
  const there = known.length === 0 ? 'no reconciler has been served here yet' : `there are: ${known.join(', ')}`
  throw new UsageError(`no reconciler "${reconciler}" in ${queue.stream}; ${there}`)
}

/** Yields the matching rows in the order of the queue. */
export async function* selectRows(queue: WorkQueue, filter: Filter): AsyncGenerator<Row> {
  const { reconciler, states = [] } = filter
  const which = { reconciler, ...(states.length > 0 && { states }) }
  for await (const entry of queue.list(which)) {
    const row = toRow(entry)
    if (matches(row, filter)) yield row
  }
}

function matches(row: Row, { namespace, names = [] }: Filter): boolean {
  if (namespace !== undefined && row.namespace !== namespace) return false
  return names.length === 0 || names.some((name) => name === row.name || name === `${row.namespace}/${row.name}`)
}

export interface KeyName {
  namespace?: string
  name: string
}

/** Parses `namespace/name`, or a name alone: in the namespace of the option, or else of a cluster-scoped object. */
export function keyNameOf(text: string, namespace: string | undefined): KeyName {
  const [before, after, ...rest] = text.split('/')
  if (rest.length > 0 || before === '' || after === '')
    throw new UsageError(`"${text}" is not a key: give name, or namespace/name`)
  if (after === undefined) return { namespace, name: text }
  if (namespace !== undefined && namespace !== before)
    throw new UsageError(`"${text}" is not in namespace ${namespace}: leave out one of the two`)
  return { namespace: before ?? '', name: after }
}

export const keyFor = (reconciler: string, { namespace, name }: KeyName) => ({
  reconciler,
  key: keyOf(namespace, name),
})

/** Returns where else that name exists, for the message of an error. */
export async function elsewhere(queue: WorkQueue, reconciler: string, { name }: KeyName): Promise<string> {
  const found = new Set<string>()
  for await (const row of selectRows(queue, { reconciler, names: [name] }))
    found.add(row.namespace === undefined ? row.name : `${row.namespace}/${row.name}`)
  return found.size === 0 ? '' : `; there is ${[...found].slice(0, 5).join(', ')}`
}

export interface ActResult extends KeyName {
  reconciler: string
  result: RetryOutcome | WithdrawOutcome
}

/** The time-out for the answers of NATS about one batch of keys. */
const TIMEOUT_MS = 10_000
const AT_ONCE = 64

/** Yields the result for each key as soon as it is known. */
export async function* actOn(
  queue: WorkQueue,
  act: Act,
  reconciler: string,
  names: readonly KeyName[],
  signal: AbortSignal,
): AsyncGenerator<ActResult> {
  for (let first = 0; first < names.length; first += AT_ONCE) {
    const either = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)])
    yield* await Promise.all(
      names.slice(first, first + AT_ONCE).map(async (name) => ({
        reconciler,
        ...name,
        result: await queue[act](keyFor(reconciler, name), either),
      })),
    )
  }
}

export const MEANING = {
  queued: 'queued',
  running: 'running',
  parked: 'parked until it is retried or changes',
  purged: 'purged',
}

/** Whether the key has the state that the user requested. */
export const isDone = (result: ActResult['result'], act: Act): boolean =>
  act === 'retry' ? result === 'queued' || result === 'running' : result === 'parked' || result === 'purged'

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
    if (isThere) await queue.enqueue(reconciler, keyFor(reconciler, name).key, { cause: BY_HAND })
    yield { reconciler, ...name, result: isThere ? 'queued' : 'absent', there }
  }
}

/** Returns the resource of the reconciled objects. */
async function primaryOf(events: EventsView, reconciler: string): Promise<ResourceRef> {
  const [found] = await presentObjects(events, { ref: RECONCILERS, name: reconciler })
  if (found === undefined) throw new Error(`there is no Reconciler ${reconciler} any more: nothing would run`)
  return (found['spec'] as { for: ResourceRef }).for
}

/** Returns the objects of that name that the Reconciler is for; undefined if EVENTS does not have the Reconciler. */
export async function objectsNamed(
  events: EventsView,
  reconciler: string,
  name: string,
): Promise<KubeObject[] | undefined> {
  const isKnown = (await existingIn(events))?.names.has(reconciler) === true
  return isKnown ? presentObjects(events, { ref: await primaryOf(events, reconciler), name }) : undefined
}

/** The streams that commands about the queue read. */
export interface QueueView {
  queue: WorkQueue
  events: EventsView
}

/** An object that has the finalizer of a Reconciler that does not exist. */
export interface Orphan {
  ref: ResourceRef
  object: KubeObject
  finalizer: string
}

/** Facts from EVENTS about Reconcilers that do not exist. */
export interface Orphans {
  /** True if the Reconciler does not exist; false if it exists or if EVENTS does not know. */
  isGone(reconciler: string): Promise<boolean>
  /** Returns the object of a key if it has a finalizer that no Reconciler removes. */
  find(reconciler: string, name: KeyName): Promise<Orphan | undefined>
}

interface Existing {
  names: Set<string>
  finalizers: Set<string>
}

/** Reads the Reconcilers once, at the first call. */
export function orphansIn(events: EventsView): Orphans {
  let known: Promise<Existing | undefined> | undefined
  const existing = () => (known ??= existingIn(events))
  return {
    async isGone(reconciler) {
      const names = (await existing())?.names
      return names !== undefined && !names.has(reconciler)
    },
    async find(reconciler, { namespace, name }) {
      const finalizers = (await existing())?.finalizers
      if (finalizers === undefined) return undefined
      const found: Orphan[] = []
      for await (const event of events.stored([{ name, namespace }])) {
        const { object, key } = event
        if (!isPresent(event) || object.metadata.namespace !== namespace) continue
        for (const finalizer of reconcilerFinalizers(object))
          if (!finalizers.has(finalizer)) found.push({ ref: key.ref, object, finalizer })
      }
      // A renamed Reconciler uses the finalizer of its identity.
      return found.find(({ finalizer }) => finalizer === finalizerOf(reconciler)) ?? found[0]
    },
  }
}

async function existingIn(events: EventsView): Promise<Existing | undefined> {
  const watched = await watchedIn(events)
  if (!watched.some((ref) => resourceName(ref) === resourceName(RECONCILERS))) return undefined
  const reconcilers = await reconcilersIn(events)
  return {
    names: new Set(reconcilers.map(({ metadata }) => metadata.name)),
    finalizers: new Set(reconcilers.map(finalizerOfReconciler)),
  }
}

/** Marks a key whose Reconciler does not exist. */
export async function withOrphan(row: Row, orphans: Orphans): Promise<Row> {
  if (!(await orphans.isGone(row.reconciler))) return row
  const orphan = await orphans.find(row.reconciler, row)
  const isWaiting = orphan?.object.metadata.deletionTimestamp !== undefined
  return { ...row, orphaned: true, ...(orphan && isWaiting && { finalizer: orphan.finalizer }) }
}

/** Returns a patch for a shell that removes the finalizer; it fails if the object has changed meanwhile. */
export function finalizerPatch({ ref, object, finalizer }: Orphan): string {
  const { namespace, name, finalizers = [] } = object.metadata
  const kind = [ref.resource, ref.group].filter((part) => part !== '').join('.')
  const where = namespace === undefined ? '' : ` -n ${namespace}`
  const path = `/metadata/finalizers/${finalizers.indexOf(finalizer)}`
  const patch = [
    { op: 'test', path, value: finalizer },
    { op: 'remove', path },
  ]
  return `kubectl patch ${kind} ${name}${where} --type json -p '${JSON.stringify(patch)}'`
}

/** Explains why the object cannot be deleted, and the possible actions with the consequence of each. */
export function adviceOn(reconciler: string, orphan: Orphan): string {
  const { object, finalizer } = orphan
  const waits =
    object.metadata.deletionTimestamp === undefined
      ? 'When it is deleted, it will wait for that finalizer.'
      : 'It is being deleted, and waits for that finalizer.'
  return [
    `There is no Reconciler ${reconciler}, and the object has a finalizer that only this Reconciler removes: ${finalizer}.`,
    waits,
    'Create the Reconciler again (fairlead install -f FILE): its function cleans up, and then the finalizer is removed.',
    'Or remove the finalizer by hand: what the function would clean up stays.',
    `  ${finalizerPatch(orphan)}`,
  ].join('\n')
}
