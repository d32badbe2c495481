import type { Cause, FieldChange, KubeObject, LogLine, RunRecord, RunResult } from '#contracts'
import type { RunsFilter, RunsView, StoredRun } from '#events'
import { duration } from '#process/exit'
import { causesOf } from '#process/history'
import { differences } from '#reconcile'
import { keyNameOf } from './keys.ts'

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
  for await (const run of explained(view.list(filterOf(selection), selection.since))) {
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
  for await (const run of explained(view.list({ reconciler, namespace: namespace ?? null, name }))) found.push(run)
  return found
}

/**
 * Adds the causes to each run: the differences from the previous recorded run of the object. A process knows only its
 * own runs, so another process may have recorded a run in between.
 */
export async function* explained(runs: AsyncIterable<StoredRun>): AsyncGenerator<StoredRun> {
  const before = new Map<string, RunRecord>()
  for await (const run of runs) {
    const { record } = run
    const object = `${record.reconciler} ${record.namespace ?? ''}/${record.name}`
    const last = before.get(object)
    before.set(object, record)
    const causes = last === undefined || last.id === record.since ? record.causes : causesOf(record, last)
    const { causes: _, ...rest } = record
    yield { ...run, record: causes === undefined ? rest : { ...rest, causes } }
  }
}

/** `changed Deployment shop/web` */
export const causeText = ({ is, object }: Cause): string => {
  const [kind = '', name = ''] = object.split(' ')
  return `${is} ${kind.split('.')[0]} ${name}`
}

/** Describes the known causes of the run. */
export function becauseOf({ causes, fired, cutShort, attempt }: RunRecord): string {
  const texts = (causes ?? []).map(causeText)
  if (fired) texts.unshift('its timer came due')
  if (cutShort) texts.unshift('the run before never ended')
  if (texts.length > 0) return texts.join(', ')
  if (attempt > 0) return 'another try'
  return causes === undefined ? 'not known: no run before it is recorded' : 'nothing that it reads has changed'
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

export const writesIn = ({ laps }: RunRecord): number => laps.reduce((sum, { writes }) => sum + writes.length, 0)

/**
 * Returns the causes of a run, field by field if both versions of an object are recorded. `before`: the previous
 * recorded run of the object.
 */
export const causeChanges = (
  record: RunRecord,
  before: RunRecord | undefined,
): { cause: Cause; changes: readonly FieldChange[] }[] =>
  (record.causes ?? []).map((cause) => {
    const [old, young] = [versionsOf(before, cause.object).at(-1), versionsOf(record, cause.object)[0]]
    return { cause, changes: cause.is === 'changed' && old && young ? differences(old, young) : [] }
  })

/** Returns the versions of the object that a run has seen, in that order. */
const versionsOf = (record: RunRecord | undefined, object: string): KubeObject[] =>
  Object.entries(record?.objects ?? {}).flatMap(([version, found]) => (version.startsWith(`${object}@`) ? [found] : []))
