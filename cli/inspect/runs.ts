import {
  type FieldChange,
  type InputRecord,
  type KubeObject,
  type LapRecord,
  type LogLine,
  namespacedName,
  type ObjectVersion,
  type RunRecord,
  type RunResult,
  type WriteRecord,
} from '#contracts'
import type { RunsFilter, RunsView, StoredRun } from '#events'
import { duration } from '#process/exit'
import { differences } from '#reconcile'
import { causesText, keyNameOf } from './keys.ts'

/** The runs that a command selects. */
export interface RunSelection {
  reconciler?: string
  /** `name` or `namespace/name`; default: all. */
  object?: string
  namespace?: string
  /** Empty selects all. */
  results: readonly RunResult[]
  /** Only runs that ended at this time or later. */
  since?: Date
}

export function filterOf({ reconciler, object, namespace }: RunSelection): RunsFilter {
  const key = object === undefined ? undefined : keyNameOf(object, namespace)
  const where = key?.namespace ?? namespace
  return { reconciler, namespace: where, name: key?.name }
}

export const wants = ({ results }: Pick<RunSelection, 'results'>, { record }: StoredRun): boolean =>
  results.length === 0 || results.includes(record.result)

/** Returns the latest `limit` runs, oldest first. */
export async function latestRuns(view: RunsView, selection: RunSelection, limit: number): Promise<StoredRun[]> {
  const found: StoredRun[] = []
  for await (const run of view.list(filterOf(selection), selection.since)) {
    if (!wants(selection, run)) continue
    found.push(run)
    if (found.length > limit) found.shift()
  }
  return found
}

/** Yields the runs of one object, oldest first. */
export async function runsOf(
  view: RunsView,
  { reconciler, namespace, name }: Pick<RunRecord, 'reconciler' | 'namespace' | 'name'>,
): Promise<StoredRun[]> {
  const found: StoredRun[] = []
  for await (const run of view.list({ reconciler, namespace: namespace ?? null, name })) found.push(run)
  return found
}

/** Describes why the key of the run was queued. */
export function becauseOf({ causes = [], fired, cutShort, attempt }: RunRecord): string {
  const texts = causes.length === 0 ? [] : [causesText(causes)]
  const retry = attempt > 0 && `another try after ${attempt === 1 ? 'a failure' : `${attempt} failures`}`
  if (fired) texts.unshift(retry || 'its timer came due')
  if (cutShort) texts.unshift('the run before did not end in its lease')
  return texts.length > 0 ? texts.join(', ') : retry || 'not recorded'
}

export const tookMs = ({ startedAt, endedAt }: RunRecord): number => Date.parse(endedAt) - Date.parse(startedAt)
export const waitedMs = ({ queuedAt, startedAt }: RunRecord): number =>
  Math.max(0, Date.parse(startedAt) - Date.parse(queuedAt))

/** Returns how long after the start of its run a line was logged: `+12ms`. */
export const lineOffset = ({ startedAt }: RunRecord, { at }: LogLine): string =>
  `+${duration(Math.max(0, Date.parse(at) - Date.parse(startedAt)))}`

/** Describes the lines that a record leaves out; undefined if it has all of them. */
export function linesLeftOut({ log, overHttp, traceId }: RunRecord): string | undefined {
  const where = `the log of the ${overHttp ? "function's server" : 'process'}`
  const lines = traceId === undefined ? where : `${where}, with the trace ID ${traceId}`
  if (overHttp) return `The function runs over HTTP: its lines are in ${lines}.`
  const { omitted = 0 } = log ?? {}
  if (omitted === 0) return undefined
  const more = `${omitted.toLocaleString('en')} more ${omitted === 1 ? 'line is' : 'lines are'} not recorded`
  return `${more}: see ${lines}, as far as its LOG_LEVEL includes them.`
}

/** The requests of a run by what became of them. */
export interface WritesOfRun {
  written: WriteRecord[]
  refused: WriteRecord[]
  unchanged: WriteRecord[]
}

export function writesIn({ laps }: Pick<RunRecord, 'laps'>): WritesOfRun {
  const {
    written = [],
    refused = [],
    unchanged = [],
  } = Object.groupBy(
    laps.flatMap(({ writes }) => writes),
    ({ error, unchanged: isSame }) => (error !== undefined ? 'refused' : isSame ? 'unchanged' : 'written'),
  )
  return { written, refused, unchanged }
}

/** `3`, or `1 (2 refused, 1 unchanged)` */
export function writesText(record: Pick<RunRecord, 'laps'>): string {
  const { written, refused, unchanged } = writesIn(record)
  const others = [
    ...(refused.length > 0 ? [`${refused.length} refused`] : []),
    ...(unchanged.length > 0 ? [`${unchanged.length} unchanged`] : []),
  ]
  return `${written.length}${others.length === 0 ? '' : ` (${others.join(', ')})`}`
}

/** Describes the error of a function that failed: `TypeError at src/website.ts:12:5: no such field`. */
export const failureText = ({ error = '', place }: Pick<LapRecord, 'error' | 'place'>): string =>
  place === undefined ? error : `${place}: ${error}`

/** An object that a run has read, and that differs from what the previous recorded run of the object knew when it ended. */
export interface InputChange {
  is: 'new' | 'changed' | 'gone'
  /** `Deployment.v1.apps shop/web` */
  object: string
  /** The fields that differ, if both versions are recorded. */
  fields: readonly FieldChange[]
}

/** `changed Deployment shop/web` */
export const changeText = ({ is, object }: Pick<InputChange, 'is' | 'object'>): string => {
  const [kind = '', name = ''] = object.split(' ')
  return `${is} ${kind.split('.')[0]} ${name}`
}

/** Longer lists are cut. */
const MOST_CHANGES = 50

/**
 * Compares the input of a run with the previous recorded run of the object. Empty if there is none, or if one of the two
 * has not called the function.
 */
export function inputChanges(record: RunRecord, before: RunRecord | undefined): InputChange[] {
  const [first] = record.laps
  const known = before && versionsAfter(before.laps)
  if (first === undefined || known === undefined) return []
  const read = versionsIn(first.input)
  const changes: Omit<InputChange, 'fields'>[] = []
  for (const [object, version] of read) {
    const last = known.get(object)
    if (last !== version) changes.push({ is: last === undefined ? 'new' : 'changed', object })
  }
  for (const object of known.keys()) if (!read.has(object)) changes.push({ is: 'gone', object })
  return changes.slice(0, MOST_CHANGES).map((change) => {
    const [old, young] = [versionsOf(before, change.object).at(-1), versionsOf(record, change.object)[0]]
    return { ...change, fields: change.is === 'changed' && old && young ? differences(old, young) : [] }
  })
}

/** Versions, keyed by object. */
type Versions = ReadonlyMap<string, ObjectVersion>

/** Returns `Deployment.v1.apps shop/web` for `Deployment.v1.apps shop/web@123`. */
const objectOf = (version: ObjectVersion): string => version.slice(0, version.lastIndexOf('@'))

function versionsIn({ object, owned, related }: Pick<InputRecord, 'object' | 'owned' | 'related'>): Versions {
  const versions = new Map<string, ObjectVersion>()
  if (object !== null) versions.set(objectOf(object), object)
  for (const kinds of [owned, related])
    for (const kind in kinds) for (const version of kinds[kind] ?? []) versions.set(objectOf(version), version)
  return versions
}

/** Returns the versions that a run knew when it ended: its last input, with the run's own writes applied. */
function versionsAfter(laps: readonly Pick<LapRecord, 'input' | 'writes'>[]): Versions | undefined {
  const last = laps.at(-1)
  if (last === undefined) return undefined
  const versions = new Map(versionsIn(last.input))
  for (const { verb, kind, namespace, name, resourceVersion, error } of last.writes) {
    if (error !== undefined) continue
    const id = [...versions.keys()].find((one) => isCalled(one, kind, namespace, name))
    if (id === undefined) continue
    if (verb === 'delete') versions.delete(id)
    else if (resourceVersion !== undefined) versions.set(id, `${id}@${resourceVersion}`)
  }
  return versions
}

const isCalled = (id: string, kind: string, namespace: string | undefined, name: string): boolean =>
  id.startsWith(`${kind}.`) && id.endsWith(` ${namespacedName({ namespace, name })}`)

/** Returns the versions of the object that a run has seen, in that order. */
const versionsOf = (record: RunRecord | undefined, object: string): KubeObject[] =>
  Object.entries(record?.objects ?? {}).flatMap(([version, found]) => (version.startsWith(`${object}@`) ? [found] : []))
