import { controllerOf, type KubeObject } from '#contracts'
import { duration, oneLine } from '#process/exit'
import { BLOCKED_AT } from '#reconcile'
import { isRefused, readReconciler } from '#spec'
import { called, detail } from '../keys.ts'
import { type Explanation, untoldBy } from './explain.ts'
import { healthOf, wordsOf } from './health.ts'
import { isSelected, quietFor } from './reconciler-rules.ts'
import {
  conditionOf,
  conditionsOf,
  type Finding,
  nameOf,
  type ReconcilerSituation,
  type Relative,
  type Situation,
  shown,
} from './situation.ts'

const CHARS = 160
/** The limit of lines of one list. */
const LINES = 20

/** Returns one page for a terminal with so many columns; three sentences for a healthy object. */
export function pageOf(situation: Situation, explanation: Explanation, columns = Number.POSITIVE_INFINITY): string {
  const { healthy, findings } = explanation
  const isShort = healthy && findings.every(({ reason }) => USUAL.has(reason))
  return (isShort ? shortPage : longPage)(situation, explanation, columns)
}

/** Breaks a text between words. All lines but the first are indented. */
function wrapped(text: string, columns: number, indent = 0): string {
  const lines: string[] = []
  for (const word of text.split(/(?<=\S)(?= )/)) {
    const line = lines.at(-1)
    if (line !== undefined && line.length + word.length <= columns) lines[lines.length - 1] = line + word
    else lines.push(line === undefined ? word : ' '.repeat(indent) + word.trimStart())
  }
  return lines.join('\n')
}

/** Findings that a healthy object may have and that do not need the full page. */
const USUAL = new Set(['TimerPending', 'Unselected'])

function shortPage(
  { target, object, reconcilers, now }: Situation,
  { findings }: Explanation,
  columns: number,
): string {
  const ready = conditionOf(object, 'Ready')
  const words = ready === undefined ? '' : `: Ready${ready.reason === undefined ? '' : ` (${ready.reason})`}`
  const names = reconcilers.map(({ object: reconciler }) => nameOf(reconciler)).join(', ')
  const owned = reconcilers.flatMap((one) => one.owned).length
  const objects = owned === 0 ? '' : `; ${owned} owned object${owned === 1 ? ' is' : 's are'} there`
  const last = reconcilers.find(({ lastRun }) => lastRun)?.lastRun
  const ran =
    last === undefined
      ? ''
      : `; its last recorded run ended ${duration(Date.parse(now) - Date.parse(last.endedAt))} ago`
  const timer = findings.find(({ reason }) => reason === 'TimerPending')
  const then = timer?.message ?? 'it runs when something changes'
  return [
    `${shown(target)} is healthy${words}.`,
    `${names} watches, selects and serves it${objects}${ran}; ${then}.`,
    'Nothing has to be done.',
  ]
    .map((line) => wrapped(line, columns))
    .join('\n')
}

function longPage(situation: Situation, explanation: Explanation, columns: number): string {
  const { findings, next, healthy } = explanation
  const { target, now, object } = situation
  const [first] = findings
  const summary = healthy || first === undefined ? 'is healthy, with notes' : oneLine(spoken(first))
  const isGoing = object?.metadata.deletionTimestamp !== undefined && !summary.includes('being deleted')
  const goes = isGoing ? ', which is being deleted' : ''
  const rows = sections(situation, Date.parse(now), untoldBy(situation, explanation))
  const width = Math.max(...rows.map(([title]) => title.length))
  const lines = rows.flatMap(([title, values]) =>
    values.map((value, index) => {
      const indent = /^[├└]─ /.test(value) ? width + 5 : width + 2
      return wrapped(`${(index === 0 ? title : '').padEnd(width)}  ${oneLine(value, CHARS)}`, columns, indent)
    }),
  )
  const others = (healthy ? findings : findings.slice(1)).map((finding) =>
    wrapped(`  ${oneLine(`${finding.level}: ${listed(finding)}`)}`, columns, 4),
  )
  const command = next?.command === undefined ? '' : `\n  ${oneLine(next.command)}`
  const ends = next === undefined ? 'Nothing has to be done.' : `Next step: ${oneLine(next.say)}`
  return [
    wrapped(`${shown(target)}${goes}${healthy ? ' ' : ': '}${summary}`, columns),
    lines.join('\n'),
    ...(others.length === 0 ? [] : [`${healthy ? 'Found' : 'Also found'}:\n${others.join('\n')}`]),
    `${wrapped(ends, columns)}${command}`,
  ].join('\n\n')
}

type Paint = (format: 'bold' | 'red' | 'yellow' | 'green' | 'cyan', text: string) => string

const COLORS = { problem: 'red', unknown: 'yellow', pending: 'yellow', note: 'cyan' } as const
const HEALTHS = { healthy: 'green', progressing: 'yellow', failed: 'red', missing: 'red', unknown: 'yellow' } as const

/** Returns the page with colors, and the same words. */
export function colored(page: string, { healthy, findings }: Explanation, paint: Paint): string {
  const verdict = healthy ? 'green' : COLORS[findings[0]?.level ?? 'problem']
  const eachLine = (text: string, format: Parameters<Paint>[0]) =>
    text.replaceAll(/\S.*/g, (line) => paint(format, line))
  return (
    page
      .replace(/^[^]*?(?=\n\n|$)/, (summary) => eachLine(summary, verdict))
      .replaceAll(/^[A-Z][a-z]+(?: [a-z]+)?(?= {2})/gm, (title) => paint('bold', title))
      .replaceAll(/^ {2}(problem|unknown|pending|note)(?=: )/gm, (text, level: Finding['level']) =>
        paint(COLORS[level], text),
      )
      .replaceAll(
        /([├└]─ \S+ \S+) (healthy|progressing|failed|missing|unknown)\b/g,
        (_, name: string, is: keyof typeof HEALTHS) => `${name} ${paint(HEALTHS[is], is)}`,
      )
      .replace(/^Next step:/m, (title) => paint('bold', title))
      // The command of the next step is the last line.
      .replace(/(?<=\n {2})\S.*$/, (command) => paint('cyan', command))
  )
}

/** The next step of a note does not count as the next step of the page, so it is printed beside the note. */
const listed = (finding: Finding): string =>
  finding.level === 'note' && finding.next
    ? `${spoken(finding)}. ${finding.next.say} ${finding.next.command ?? ''}`
    : spoken(finding)

const spoken = ({ reconciler, message }: Finding): string =>
  reconciler === undefined ? message : `${reconciler}: ${message}`

type Untold = ReturnType<typeof untoldBy>

function sections(situation: Situation, now: number, untold: Untold): [title: string, values: string[]][] {
  const { object, reconcilers, events } = situation
  const age = (time: string | undefined) => (time === undefined ? '' : ` (${duration(now - Date.parse(time))})`)
  const conditions = conditionsOf(object).map(({ type, status, lastTransitionTime, reason, message = '' }) =>
    `${type}=${status}${age(lastTransitionTime)}  ${wordsOf({ type, status, reason, message: untold(message) })}`.trimEnd(),
  )
  const told = events.map(({ type, reason, message, count, last }) =>
    `${type} ${reason}${count > 1 ? ` ×${count}` : ''}${age(last)}  ${untold(message)}`.trimEnd(),
  )
  const writers = writersOf(object).map(({ manager = '-', time, subresource = 'object' }) => {
    const ago = time === undefined ? '' : ` ${duration(now - Date.parse(time))} ago`
    return `${manager}: ${subresource}${ago}`
  })
  const owner = object && controllerOf(object)
  const all: [string, string[]][] = [
    ['Reconciler', reconcilers.map((one) => `${nameOf(one.object)}: ${stateOf(one, situation)}`)],
    ['Queue', reconcilers.flatMap((one) => queueOf(one, now, untold))],
    ['Order', reconcilers.flatMap((one) => orderOf(one, untold))],
    ['Last run', reconcilers.flatMap((one) => lastRunOf(one, now))],
    ['Changed by', writers],
    ['Conditions', conditions],
    ['Owner', owner ? [`${owner.kind} ${owner.name}`] : []],
    [
      'Owns',
      tree(
        reconcilers.flatMap(({ owned }) => owned),
        untold,
      ),
    ],
    [
      'Names',
      tree(
        reconcilers.flatMap(({ named }) => named),
        untold,
      ),
    ],
    ['Finalizers', object?.metadata.finalizers ?? []],
    ['Events', told],
  ]
  return all.filter(([, values]) => values.length > 0).map(([title, values]) => [title, shortened(values)])
}

const shortened = (values: string[]): string[] =>
  values.length <= LINES ? values : [...values.slice(0, LINES - 1), `… and ${values.length - LINES + 1} more`]

/** Returns whether the object is watched, selected and served: yes, no, or unknown. */
function stateOf(one: ReconcilerSituation, situation: Situation): string {
  const read = readReconciler(one.object)
  const held = isRefused(read) ? ['refused'] : [...(read.paused ? ['paused'] : []), ...(read.dryRun ? ['dry run'] : [])]
  const { watched, selected, served } = reachOf(one, situation)
  return [`watched ${watched}`, `selected ${selected}`, `served ${served}`, ...held].join(', ')
}

export type Known = 'yes' | 'no' | 'not known'
const known = (is: boolean | undefined): Known => (is === undefined ? 'not known' : is ? 'yes' : 'no')

/** Whether changes of the object cause runs of the function. */
export function reachOf(
  one: ReconcilerSituation,
  situation: Situation,
): Record<'watched' | 'selected' | 'served', Known> {
  return {
    watched: known(conditionOf(one.object, 'Synced')?.status === 'True' && quietFor(one) === undefined),
    selected: known(isSelected(one, situation)),
    served: known(one.isServed ?? (conditionOf(one.object, 'Ready')?.status === 'True' ? undefined : false)),
  }
}

function queueOf({ object, rows }: ReconcilerSituation, now: number, untold: Untold): string[] {
  if (rows === undefined) return [`${nameOf(object)}: not known`]
  if (rows.length === 0) return [`${nameOf(object)}: idle`]
  return rows.map((row) => {
    const error = untold(row.error ?? '') || undefined
    const since = duration(now - Date.parse(row.since))
    const failures = row.attempt === 0 ? '' : `, ${row.attempt} ${row.attempt === 1 ? 'failure' : 'failures'} in a row`
    return `${called(row)}: ${row.state} since ${since}${failures}; ${detail({ ...row, error }, new Date(now), CHARS)}`
  })
}

const WRITERS_SHOWN = 4

/** Returns the latest field managers of the object, from the API server. */
export function writersOf(object: KubeObject | undefined): { manager?: string; time?: string; subresource?: string }[] {
  const entries = (object?.metadata['managedFields'] ?? []) as ReturnType<typeof writersOf>
  return entries.toSorted((a, b) => (b.time ?? '').localeCompare(a.time ?? '')).slice(0, WRITERS_SHOWN)
}

function lastRunOf({ object, lastRun }: ReconcilerSituation, now: number): string[] {
  if (lastRun === undefined) return []
  const { run, endedAt, tookMs, waitedMs, result, message, because, place, writes, refused, unchanged } = lastRun
  const ago = duration(now - Date.parse(endedAt))
  const parts = [
    `${nameOf(object)}: ${result} ${ago} ago (run ${run})${result === 'fenced' && message !== undefined ? `: ${message}` : ''}, because ${because}`,
    `waited ${duration(waitedMs)}, took ${duration(tookMs)}`,
    ...(place === undefined ? [] : [place.startsWith(BLOCKED_AT) ? place : `threw ${place}`]),
    `wrote ${writes.length === 0 ? 'nothing' : writes.join(', ')}`,
    ...(refused.length === 0 ? [] : [`refused: ${refused.map(({ write }) => write).join(', ')}`]),
    ...(unchanged.length === 0 ? [] : [`unchanged: ${unchanged.join(', ')}`]),
  ]
  return [parts.join('; ')]
}

/**
 * Returns the objects of the last recorded outcome in the order of their stages, each with its health. The contents of a
 * Secret are withheld from the record, and its place with them.
 */
function orderOf({ owned, lastRun }: ReconcilerSituation, untold: Untold): string[] {
  const there = new Map(owned.map((one) => [shown(one), healthOf(one)]))
  return (lastRun?.declared ?? [])
    .flatMap((one) => (typeof one.stage?.number === 'number' ? [{ ...one, stage: one.stage }] : []))
    .sort((one, other) => one.stage.number - other.stage.number)
    .map((one) => {
      const { number, action } = one.stage
      const health = there.get(shown(one))
      const why = untold(health?.why ?? '')
      const words = health && `${health.is}${why === '' ? '' : `: ${why}`}${action ? ', stays as it is' : ''}`
      const absent = action === 'Hold' ? 'waits for the stage before' : action === 'Done' ? 'is done' : 'missing'
      return `${Math.floor(number)} ${shown(one)} ${action === 'Remove' ? 'is being removed' : (words ?? absent)}`
    })
}

function tree(relatives: readonly Relative[], untold: Untold): string[] {
  return relatives.map((one, index) => {
    const { is, why: said = '' } = healthOf(one)
    const why = untold(said)
    const branch = index === relatives.length - 1 ? '└─' : '├─'
    return `${branch} ${shown(one)}  ${is}${why === '' ? '' : `: ${why}`}`
  })
}

/** Returns the explanation as JSON, for scripts. */
/** `cluster`: the name of its cluster in the file that lists it. */
export function jsonOf(situation: Situation, { healthy, findings, next }: Explanation, cluster?: string): string {
  const { target, object, reconcilers, events, letters, apiAway, natsAway } = situation
  const relative = (one: Relative) => ({
    kind: one.kind,
    namespace: one.namespace,
    name: one.name,
    ...healthOf(one),
  })
  const { kind, namespace, name } = target
  const shape = {
    cluster,
    kind,
    namespace,
    name,
    healthy,
    findings,
    ...(next && { next }),
    apiAway,
    natsAway,
    reconcilers: reconcilers.map((one) => ({
      name: nameOf(one.object),
      ...reachOf(one, situation),
      ...(one.rows && { queue: one.rows }),
      ...(one.missingRights && { missingRights: one.missingRights }),
      ...(one.lastRun && { lastRun: one.lastRun }),
      ...(one.blocked && { blocked: one.blocked }),
      owned: one.owned.map(relative),
      named: one.named.map(relative),
    })),
    conditions: conditionsOf(object),
    finalizers: object?.metadata.finalizers ?? [],
    events,
    deadLetters: letters,
  }
  return JSON.stringify(shape, null, 2)
}
