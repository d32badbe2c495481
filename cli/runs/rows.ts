import type { StoredRun } from '#events'
import { duration, oneLine, table } from '#host/exit'
import { becauseOf, tookMs, waitedMs, writesIn } from '#inspect'

export type RunsFormat = 'table' | 'wide' | 'json'

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
    String(writesIn(record)),
    ...(isWide ? [duration(waitedMs(record)), String(laps.length), String(attempt), process, traceId] : []),
    oneLine(why, isWide ? Number.POSITIVE_INFINITY : CAUSE_CHARS),
  ]
}

export function runTable(runs: readonly StoredRun[], now: Date, format: Exclude<RunsFormat, 'json'>): string {
  const isWide = format === 'wide'
  const age = ({ record }: StoredRun) => duration(now.getTime() - Date.parse(record.endedAt))
  return table(
    head(isWide),
    runs.map((run) => cells(run, age(run), isWide)),
  )
}

/** Formats one line of a live list, with the time instead of the age. */
export const runLine = (run: StoredRun, format: RunsFormat): string =>
  format === 'json'
    ? JSON.stringify(jsonRow(run))
    : cells(run, run.record.endedAt, format === 'wide')
        .map((cell) => oneLine(cell))
        .join('  ')

/** Returns a record without its objects, which `runs get` prints. */
export function jsonRow({ sequence, bytes, record }: StoredRun): object {
  const { objects: _, ...rest } = record
  return { run: sequence, bytes, ...rest }
}
