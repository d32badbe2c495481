import { type FieldChange, type LapRecord, namespacedName, type RunRecord, type WriteRecord } from '#contracts'
import type { StoredRun } from '#events'
import { duration, oneLine } from '#host/exit'
import { becauseOf, causeChanges, causeText, lineOffset, linesLeftOut, tookMs, waitedMs } from '#inspect'
import { differences } from '#reconcile'

const VALUE_CHARS = 200
const DIFFERENCES_SHOWN = 20
const LINE_CHARS = 1000

/** Describes one run from its causes to its writes. `before`: the previous recorded run of the object. */
export function showRun({ sequence, record }: StoredRun, before: RunRecord | undefined): string {
  const { reconciler, namespace, name, result, message, requeueAt, attempt, lane, process, cpuMs, requests } = record
  const cpu = cpuMs === undefined ? '' : `, ${cpuMs.toFixed(1)} ms of CPU`
  const again = requeueAt === undefined ? '' : `; runs again at ${requeueAt}`
  const rows: [string, string][] = [
    ['Run', `${sequence} (${record.id})`],
    ['Of', `${reconciler} ${namespacedName({ namespace, name })}`],
    ['Result', `${result}${message === undefined ? '' : `: ${message}`}${again}`],
    ['Because', becauseOf(record)],
    ['Queued', `${record.queuedAt}, waited ${duration(waitedMs(record))} in the ${lane} lane`],
    [
      'Ran',
      `${record.startedAt}, took ${duration(tookMs(record))} in ${process}, ${requests} requests that write${cpu}`,
    ],
    ['Failures', `${attempt} in a row before it`],
    ['Trace', record.traceId ?? '-'],
    ['Left out', record.leftOut.join('; ')],
  ]
  const width = Math.max(...rows.map(([title]) => title.length)) + 1
  const head = rows.map(([title, value]) => `${`${title}:`.padEnd(width)}  ${oneLine(value)}`)
  const causes = causeLines(record, before)
  const laps = record.laps.flatMap(lapLines)
  const log = logLines(record)
  return [
    head.join('\n'),
    ...(causes.length > 0 ? [`What differs from the run before:\n${causes.join('\n')}`] : []),
    laps.join('\n'),
    ...(log.length > 0 ? [`Log:\n${log.join('\n')}`] : []),
  ]
    .filter((part) => part !== '')
    .join('\n\n')
}

const causeLines = (record: RunRecord, before: RunRecord | undefined): string[] =>
  causeChanges(record, before).flatMap(({ cause, changes }) => [`  ${causeText(cause)}`, ...changeLines(changes)])

function lapLines({ error, outcome, writes }: LapRecord, index: number): string[] {
  const said = error === undefined ? returnedText(outcome) : `failed: ${error}`
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

function writeLines({ verb, kind, namespace, name, error, differences: found, patch }: WriteRecord): string[] {
  const object = `${kind} ${namespacedName({ namespace, name })}`
  const line = `  ${verb} ${object}${error === undefined ? '' : `, refused: ${oneLine(error)}`}`
  if (found) return [line, ...changeLines(found)]
  return patch === undefined ? [line] : [line, ...changeLines(differences(undefined, patch))]
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

function changeLines(changes: readonly FieldChange[]): string[] {
  const shown = changes.slice(0, DIFFERENCES_SHOWN).map(({ path, ...values }) => {
    const text = (value: unknown) => oneLine(JSON.stringify(value) ?? '-', VALUE_CHARS)
    if (!('before' in values)) return `    + ${path}: ${text(values.after)}`
    if (!('after' in values)) return `    - ${path}: ${text(values.before)}`
    return `    ~ ${path}: ${text(values.before)} → ${text(values.after)}`
  })
  const more = changes.length - shown.length
  return more > 0 ? [...shown, `    … and ${more} more`] : shown
}
