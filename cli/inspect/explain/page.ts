import type { KubeObject } from '#contracts'
import { duration, oneLine } from '#process/exit'
import { isRefused, readReconciler } from '#spec'
import { called, detail } from '../keys.ts'
import type { Explanation } from './explain.ts'
import { healthOf, wordsOf } from './health.ts'
import { isSelected } from './reconciler-rules.ts'
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

/** Returns one page for a terminal; three lines for a healthy object. */
export function pageOf(situation: Situation, explanation: Explanation): string {
  const { healthy, findings } = explanation
  const isShort = healthy && findings.every(({ reason }) => USUAL.has(reason))
  return isShort ? shortPage(situation, explanation) : longPage(situation, explanation)
}

/** Findings that a healthy object may have and that do not need the full page. */
const USUAL = new Set(['TimerPending', 'Unselected'])

function shortPage({ target, object, reconcilers, now }: Situation, { findings }: Explanation): string {
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
  ].join('\n')
}

function longPage(situation: Situation, { findings, next, healthy }: Explanation): string {
  const { target, now } = situation
  const [first] = findings
  const summary = healthy || first === undefined ? 'is healthy, with notes' : oneLine(spoken(first))
  const rows = sections(situation, Date.parse(now))
  const width = Math.max(...rows.map(([title]) => title.length))
  const lines = rows.flatMap(([title, values]) =>
    values.map((value, index) => `${(index === 0 ? title : '').padEnd(width)}  ${oneLine(value, CHARS)}`),
  )
  const found = findings.map((finding, index) => `  ${index + 1}. ${oneLine(`${finding.level}: ${listed(finding)}`)}`)
  const command = next?.command === undefined ? '' : `\n  ${oneLine(next.command)}`
  const ends = next === undefined ? 'Nothing has to be done.' : `Next step: ${oneLine(next.say)}${command}`
  return [
    `${shown(target)}${healthy ? ' ' : ': '}${summary}`,
    lines.join('\n'),
    `Found:\n${found.join('\n')}`,
    ends,
  ].join('\n\n')
}

/** The next step of a note does not count as the next step of the page, so it is printed beside the note. */
const listed = (finding: Finding): string =>
  finding.level === 'note' && finding.next
    ? `${spoken(finding)}. ${finding.next.say} ${finding.next.command ?? ''}`
    : spoken(finding)

const spoken = ({ reconciler, message }: Finding): string =>
  reconciler === undefined ? message : `${reconciler}: ${message}`

function sections(situation: Situation, now: number): [title: string, values: string[]][] {
  const { object, reconcilers, events } = situation
  const age = (time: string | undefined) => (time === undefined ? '' : ` (${duration(now - Date.parse(time))})`)
  const conditions = conditionsOf(object).map(
    (one) => `${one.type}=${one.status}${age(one.lastTransitionTime)}  ${wordsOf(one)}`,
  )
  const told = events.map(
    ({ type, reason, message, count, last }) =>
      `${type} ${reason}${count > 1 ? ` ×${count}` : ''}${age(last)}  ${message}`,
  )
  const all: [string, string[]][] = [
    ['Reconciler', reconcilers.map((one) => `${nameOf(one.object)}: ${stateOf(one, situation)}`)],
    ['Queue', reconcilers.flatMap((one) => queueOf(one, now))],
    ['Last run', reconcilers.flatMap((one) => lastRunOf(one, now))],
    ['Changed by', writersOf(object, now)],
    ['Conditions', conditions],
    ['Owns', tree(reconcilers.flatMap(({ owned }) => owned))],
    ['Names', tree(reconcilers.flatMap(({ named }) => named))],
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
    watched: known(conditionOf(one.object, 'Synced')?.status === 'True'),
    selected: known(isSelected(one, situation)),
    served: known(one.isServed ?? (conditionOf(one.object, 'Ready')?.status === 'True' ? undefined : false)),
  }
}

function queueOf({ object, rows }: ReconcilerSituation, now: number): string[] {
  if (rows === undefined) return [`${nameOf(object)}: not known`]
  if (rows.length === 0) return [`${nameOf(object)}: idle`]
  return rows.map(
    (row) =>
      `${called(row)}: ${row.state} since ${duration(now - Date.parse(row.since))}, ${row.attempt} failures in a row; ${detail(row, new Date(now), CHARS)}`,
  )
}

const WRITERS_SHOWN = 3

/** Returns the latest field managers of the object, from the API server. */
function writersOf(object: KubeObject | undefined, now: number): string[] {
  const entries = (object?.metadata['managedFields'] ?? []) as {
    manager?: string
    time?: string
    subresource?: string
  }[]
  return entries
    .toSorted((a, b) => (b.time ?? '').localeCompare(a.time ?? ''))
    .slice(0, WRITERS_SHOWN)
    .map(({ manager = '-', time, subresource = 'object' }) => {
      const ago = time === undefined ? '' : ` ${duration(now - Date.parse(time))} ago`
      return `${manager}: ${subresource}${ago}`
    })
}

function lastRunOf({ object, lastRun }: ReconcilerSituation, now: number): string[] {
  if (lastRun === undefined) return []
  const { run, endedAt, tookMs, waitedMs, result, because, writes } = lastRun
  const ago = duration(now - Date.parse(endedAt))
  const wrote = writes.length === 0 ? 'wrote nothing' : `wrote ${writes.join(', ')}`
  const times = `waited ${duration(waitedMs)}, took ${duration(tookMs)}`
  return [`${nameOf(object)}: ${result} ${ago} ago (run ${run}), because ${because}; ${times}; ${wrote}`]
}

function tree(relatives: readonly Relative[]): string[] {
  return relatives.map((one, index) => {
    const { is, why = '' } = healthOf(one)
    const branch = index === relatives.length - 1 ? '└─' : '├─'
    return `${branch} ${shown(one)}  ${is}${why === '' ? '' : `: ${why}`}`
  })
}

/** Returns the explanation as JSON, for scripts. */
export function jsonOf(situation: Situation, { healthy, findings, next }: Explanation): string {
  const { target, object, reconcilers, events, letters, apiAway, natsAway } = situation
  const relative = (one: Relative) => ({
    kind: one.kind,
    namespace: one.namespace,
    name: one.name,
    ...healthOf(one),
  })
  const { kind, namespace, name } = target
  const shape = {
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
