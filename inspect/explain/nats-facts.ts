import type { KubeObject } from '#contracts'
import {
  compareVersions,
  type DeadLetter,
  type EventsView,
  isKey,
  isPresent,
  keyIn,
  NoRunsError,
  type OwnerKey,
  parseKey,
  parseObjectSubject,
  type StoredEvent,
  type StoredRun,
  SubjectError,
} from '#events'
import { isOwnedBy, type ReconcilerSpec } from '#spec'
import type { ExistingStreams } from '../existing-streams.ts'
import { orphansIn, withOrphan } from '../keys/orphans.ts'
import { type Row, toRow } from '../keys/rows.ts'
import { keyFor } from '../keys/select.ts'
import { latestRuns } from '../runs/select.ts'
import { becauseOf, tookMs, waitedMs } from '../runs/texts.ts'
import type { LastRun, Letter, Target } from './situation.ts'

/** Returns the newest version among all subjects of the object. */
export async function storedObject(
  view: EventsView,
  { ref, namespace, name }: Pick<Target, 'ref' | 'namespace' | 'name'>,
): Promise<KubeObject | undefined> {
  let newest: StoredEvent | undefined
  for await (const event of view.stored([{ ref, ...(namespace !== undefined && { namespace }), name }]))
    if (event.verb !== 'moved' && (newest === undefined || isNewer(event, newest))) newest = event
  return newest && isPresent(newest) ? newest.object : undefined
}

const isNewer = (one: StoredEvent, other: StoredEvent): boolean =>
  (compareVersions(one.resourceVersion, other.resourceVersion) ?? one.sequence - other.sequence) >= 0

export async function ownedInEvents(view: EventsView, object: KubeObject, spec: ReconcilerSpec): Promise<KubeObject[]> {
  const { namespace, name } = object.metadata
  const owner: OwnerKey = { resource: spec.for.resource, name }
  const filters = spec.owns.map((ref) => ({ ref, owner, ...(namespace !== undefined && { namespace }) }))
  const found: KubeObject[] = []
  for await (const event of view.stored(filters))
    if (isPresent(event) && isOwnedBy(event.object, object)) found.push(event.object)
  return found
}

export async function rowsOf({ queue, view }: ExistingStreams, reconciler: string, target: Target): Promise<Row[]> {
  const { namespace, name } = target
  const entries = await queue.find(keyFor(reconciler, { ...(namespace !== undefined && { namespace }), name }))
  const orphans = orphansIn(view)
  return Promise.all(entries.map((entry) => withOrphan(toRow(entry), orphans)))
}

/** Returns the last recorded run; undefined if RUNS has none. */
export async function lastRunOf(
  { runs }: ExistingStreams,
  reconciler: string,
  target: Target,
): Promise<LastRun | undefined> {
  const { namespace, name } = target
  try {
    const [last] = await latestRuns(runs, { reconciler, object: name, namespace, results: [] }, 1)
    return last && toLastRun(last, target)
  } catch (error) {
    if (error instanceof NoRunsError) return undefined
    throw error
  }
}

function toLastRun({ sequence, record }: StoredRun, { namespace }: Target): LastRun {
  const { endedAt, result, message, laps } = record
  const outcome = laps.findLast((lap) => lap.outcome !== undefined)?.outcome
  return {
    run: sequence,
    endedAt,
    tookMs: tookMs(record),
    waitedMs: waitedMs(record),
    result,
    ...(message !== undefined && { message }),
    because: becauseOf(record),
    writes: laps.flatMap(({ writes }) => writes.map(({ verb, kind, name }) => `${verb} ${kind} ${name}`)),
    declared: (outcome?.apply ?? []).map(({ kind, metadata }) => {
      const place = metadata.namespace ?? namespace
      return { kind, ...(place !== undefined && { namespace: place }), name: metadata.name }
    }),
  }
}

/** Returns the dead letters about the object or one of its keys. */
export async function lettersAbout({ dead }: ExistingStreams, target: Target): Promise<Letter[]> {
  const found: Letter[] = []
  for await (const letter of dead.list()) {
    const { id, reconciler, reason, detail } = letter
    const place = placeOf(letter)
    if (place?.name !== target.name || place.namespace !== target.namespace) continue
    found.push({ id, ...(reconciler !== undefined && { reconciler }), reason, detail })
  }
  return found
}

/** Returns the object that the letter names; undefined if it names none. */
function placeOf(letter: DeadLetter): { namespace: string | undefined; name: string } | undefined {
  const key = keyIn(letter)?.key
  if (key !== undefined) return isKey(key) ? parseKey(key) : undefined
  try {
    return parseObjectSubject(letter.subject.split('.').slice(-OBJECT_PARTS).join('.'))
  } catch (error) {
    if (error instanceof SubjectError) return undefined
    throw error
  }
}

/** The last parts of a subject identify the object; a prefix may precede them. */
const OBJECT_PARTS = 7
