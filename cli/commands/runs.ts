import { type FieldChange, type LapRecord, namespacedName, type RunRecord, type WriteRecord } from '#contracts'
import { type RunsView, type StoredRun, viewRuns } from '#events'
import {
  becauseOf,
  changeText,
  failureText,
  filterOf,
  inputChanges,
  latestRuns,
  lineOffset,
  linesLeftOut,
  type RunSelection,
  runsOf,
  tookMs,
  waitedMs,
  wantsRun,
  writesText,
} from '#inspect'
import { duration, oneLine, table, UsageError, untilStopped } from '#process/exit'
import { createLogger } from '#process/logging'
import { openJetStream, reportConnection } from '#process/nats'
import { differences } from '#reconcile'
import type { CommandContext } from '../options.ts'

export interface RunsLsOptions extends RunSelection {
  output: RunsFormat
  limit: number
  watch?: boolean
}

export type RunsTailOptions = RunSelection & { output: RunsFormat }

/** Connects to NATS only. */
async function withRuns({ config }: CommandContext, act: (view: RunsView) => Promise<void>): Promise<void> {
  const settings = await config()
  await using js = await openJetStream(settings, 'runs')
  reportConnection(js, await createLogger(settings))
  await act(viewRuns(js, settings.FAIRLEAD_PREFIX))
}

export const ls = ({ output, limit, watch, ...selection }: RunsLsOptions, context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => {
    const end = watch ? await view.end() : 0
    const runs = await latestRuns(view, selection, limit)
    if (output === 'json' && !watch) context.print(JSON.stringify(runs.map(jsonRow), null, 2))
    else if (output === 'json') for (const run of runs) context.print(runLine(run, output))
    else if (runs.length > 0) context.print(runTable(runs, new Date(), output))
    else if (!watch) context.print('No such run is recorded.')
    if (watch) await follow(view, selection, end, output, context)
  })

export const tail = ({ output, ...selection }: RunsTailOptions, context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => follow(view, selection, await view.end(), output, context))

async function follow(
  view: RunsView,
  selection: RunSelection,
  start: number,
  output: RunsFormat,
  { print }: CommandContext,
): Promise<void> {
  const { signal } = untilStopped()
  for await (const run of view.follow(filterOf(selection), start, signal))
    if (wantsRun(selection, run)) print(runLine(run, output))
}

export const show = (id: number, context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => {
    const { record } = await demandRun(view, id)
    const all = await runsOf(view, record)
    const index = all.findIndex(({ sequence }) => sequence === id)
    const found = all[index]
    if (found === undefined) throw gone(view, id)
    context.print(showRun(found, all[index - 1]?.record))
  })

/** Prints whole records, one per line: the input of `replay --from`. */
export const get = (ids: readonly number[], context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => {
    for (const id of ids) context.print(JSON.stringify((await demandRun(view, id)).record))
  })

type RunsFormat = 'table' | 'wide' | 'json'

const CAUSE_CHARS = 60

const head = (isWide: boolean): string[] => [
  'RUN',
  'ENDED',
  'RECONCILER',
  'NAMESPACE',
  'NAME',
  'RESULT',
  'TOOK',
  'WRITES',
  ...(isWide ? ['WAITED', 'CALLS', 'ATTEMPT', 'PROCESS', 'TRACE'] : []),
  'BECAUSE',
]

function cells({ sequence, record }: StoredRun, ended: string, isWide: boolean): string[] {
  const { reconciler, namespace = '-', name, result, message, laps, attempt, process, traceId = '-' } = record
  const why = `${becauseOf(record)}${message === undefined ? '' : `; failed: ${message}`}`
  return [
    String(sequence),
    ended,
    reconciler,
    namespace,
    name,
    result,
    duration(tookMs(record)),
    writesText(record),
    ...(isWide ? [duration(waitedMs(record)), String(laps.length), String(attempt), process, traceId] : []),
    oneLine(why, isWide ? Number.POSITIVE_INFINITY : CAUSE_CHARS),
  ]
}

function runTable(runs: readonly StoredRun[], now: Date, format: Exclude<RunsFormat, 'json'>): string {
  const isWide = format === 'wide'
  const age = ({ record }: StoredRun) => duration(now.getTime() - Date.parse(record.endedAt))
  return table(
    head(isWide),
    runs.map((run) => cells(run, age(run), isWide)),
  )
}

/** Formats one line of a live list, with the time instead of the age. */
const runLine = (run: StoredRun, format: RunsFormat): string =>
  format === 'json'
    ? JSON.stringify(jsonRow(run))
    : cells(run, run.record.endedAt, format === 'wide')
        .map((cell) => oneLine(cell))
        .join('  ')

/** Returns a record without its objects, which `runs get` prints. */
function jsonRow({ sequence, bytes, record }: StoredRun): object {
  const { objects: _, ...rest } = record
  return { run: sequence, bytes, ...rest }
}

const VALUE_CHARS = 200
const DIFFERENCES_SHOWN = 20
const LINE_CHARS = 1000

/** Describes one run from its causes to its writes. `before`: the previous recorded run of the object. */
function showRun({ sequence, record }: StoredRun, before: RunRecord | undefined): string {
  const { reconciler, namespace, name, result, message, requeueAt, attempt, lane, process, cpuMs, requests } = record
  const cpu = cpuMs === undefined ? '' : `, ${cpuMs.toFixed(1)} ms of CPU`
  const again = requeueAt === undefined ? '' : `; runs again at ${requeueAt}`
  const cluster = record.laps[0]?.input.cluster
  const rows: [string, string][] = [
    ['Run', `${sequence} (${record.id})`],
    ['Of', `${reconciler} ${namespacedName({ namespace, name })}`],
    ...(cluster === undefined ? [] : [['Cluster', cluster.name] as [string, string]]),
    ['Result', `${result}${message === undefined ? '' : `: ${message}`}${again}`],
    ['Because', becauseOf(record)],
    ['Queued', `${record.queuedAt}, waited ${duration(waitedMs(record))} in the ${lane} lane`],
    [
      'Ran',
      `${record.startedAt}, took ${duration(tookMs(record))} in ${process}, ${requests} requests that write${cpu}`,
    ],
    ...(attempt === 0 ? [] : [['Failures', `${attempt} in a row before it`] as [string, string]]),
    ['Trace', record.traceId ?? '-'],
    ['Left out', record.leftOut.join('; ')],
  ]
  const width = Math.max(...rows.map(([title]) => title.length)) + 1
  const head = rows.map(([title, value]) => `${`${title}:`.padEnd(width)}  ${oneLine(value)}`)
  const changes = inputLines(record, before)
  const laps = record.laps.flatMap(lapLines)
  const log = logLines(record)
  return [
    head.join('\n'),
    ...(changes.length > 0 ? [`What differs from the run before:\n${changes.join('\n')}`] : []),
    laps.join('\n'),
    ...(log.length > 0 ? [`Log:\n${log.join('\n')}`] : []),
  ]
    .filter((part) => part !== '')
    .join('\n\n')
}

const inputLines = (record: RunRecord, before: RunRecord | undefined): string[] =>
  inputChanges(record, before).flatMap((change) => [`  ${changeText(change)}`, ...changeLines(change.fields)])

function lapLines(lap: LapRecord, index: number): string[] {
  const { error, outcome, writes } = lap
  const said = error === undefined ? returnedText(outcome) : `failed: ${failureText(lap)}`
  return [`Call ${index + 1}: ${oneLine(said)}`, ...writes.flatMap(writeLines)]
}

function returnedText(outcome: LapRecord['outcome']): string {
  if (outcome === undefined) return 'returned the same'
  const { apply, ...rest } = outcome
  const parts: string[] = []
  if (apply) parts.push(`apply ${apply.map(({ kind, metadata }) => `${kind} ${metadata.name}`).join(', ')}`)
  for (const [field, value] of Object.entries(rest))
    parts.push(`${field} ${oneLine(JSON.stringify(value), VALUE_CHARS)}`)
  return parts.length === 0 ? 'returned nothing' : `returned ${parts.join('; ')}`
}

function writeLines({
  verb,
  kind,
  namespace,
  name,
  error,
  unchanged,
  differences: found,
  patch,
}: WriteRecord): string[] {
  const object = `${kind} ${namespacedName({ namespace, name })}`
  const result = error !== undefined ? `, refused: ${oneLine(error)}` : unchanged ? ', unchanged' : ''
  const line = `  ${verb} ${object}${result}`
  if (found) return [line, ...changeLines(found)]
  return patch === undefined ? [line] : [line, ...changeLines(differences(undefined, patch), '=')]
}

function logLines(record: RunRecord): string[] {
  const lines = (record.log?.lines ?? []).map((line) => {
    const { level, message, fields, withoutFields } = line
    const shown = withoutFields ? '(fields left out)' : fields && JSON.stringify(fields)
    return `  ${lineOffset(record, line).padEnd(7)} ${level.padEnd(5)}  ${oneLine([message, shown].join(' ').trimEnd(), LINE_CHARS)}`
  })
  const rest = linesLeftOut(record)
  return rest === undefined ? lines : [...lines, `  ${rest}`]
}

/** `set` marks a value without one of before: `+` if it was not there, `=` in a patch, which does not say what was there. */
function changeLines(changes: readonly FieldChange[], set: '+' | '=' = '+'): string[] {
  const shown = changes.slice(0, DIFFERENCES_SHOWN).map(({ path, ...values }) => {
    const text = (value: unknown) => oneLine(JSON.stringify(value) ?? '-', VALUE_CHARS)
    if (!('before' in values)) return `    ${set} ${path}: ${text(values.after)}`
    if (!('after' in values)) return `    - ${path}: ${text(values.before)}`
    return `    ~ ${path}: ${text(values.before)} → ${text(values.after)}`
  })
  const more = changes.length - shown.length
  return more > 0 ? [...shown, `    … and ${more} more`] : shown
}

/** Returns the run with this number. Throws a UsageError if RUNS does not have it. */
export async function demandRun(view: RunsView, id: number): Promise<StoredRun> {
  const found = await view.get(id)
  if (found === undefined) throw gone(view, id)
  return found
}

const gone = ({ stream }: RunsView, id: number) =>
  new UsageError(`there is no run ${id} in ${stream}: fairlead runs ls lists them`)
