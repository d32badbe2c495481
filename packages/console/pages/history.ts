import type { KubeObject, RunRecord, RunResult } from '#contracts'
import type { StoredRun } from '#events'
import { becauseOf, type Condition, conditionsOf, type Situation, tookMs, wordsOf, writesIn } from '#inspect'
import { duration } from '#process/exit'
import { type Html, html } from '../html.ts'
import { ago, runPath, section, type Tone } from './parts.ts'

const LANES = ['Runs', 'Conditions', 'Events'] as const
const LANE = 34
const MARKS_SHOWN = 25

interface Mark {
  at: number
  lane: (typeof LANES)[number]
  tone: Tone
  text: string
  path?: string
}

const TONES: Record<RunResult, Tone> = {
  success: 'good',
  requeue_after: 'good',
  error: 'bad',
  terminal: 'bad',
  fenced: 'warn',
}

/** Runs, conditions and Events of one object on one axis, and as a list. `untold`: what the page leaves out of texts. */
export function history(
  situation: Situation,
  runs: readonly StoredRun[],
  now: Date,
  untold = (text: string): string => text,
): Html {
  const marks = marksOf(situation, runs, untold).toSorted((a, b) => b.at - a.at)
  if (marks.length === 0) return html``
  const start = Math.min(...marks.map(({ at }) => at))
  const span = Math.max(60_000, now.getTime() - start)
  const end = start + span
  // 7 % for the names of the lanes would be too little on a narrow screen: they stand above their lines.
  const place = (at: number) => `${(2 + (96 * (at - start)) / span).toFixed(2)}%`
  const lanes = LANES.map((lane, index) => {
    const y = index * LANE + 26
    const own = marks.filter((mark) => mark.lane === lane)
    return html`<text class="lane" x="0" y="${y - 12}">${lane}</text><line x1="0" x2="100%" y1="${y}" y2="${y}"/>${own.map((mark) => shape(mark, place(mark.at), y))}`
  })
  const height = LANES.length * LANE + 22
  const chart = html`<svg class="timeline" width="100%" height="${height}" role="group" aria-label="Timeline">${lanes}
<text class="lane" x="0" y="${height - 4}">${duration(now.getTime() - start)} ago</text><text class="lane" x="100%" y="${height - 4}" text-anchor="end">${end > now.getTime() ? '' : 'now'}</text></svg>`
  const list = marks
    .slice(0, MARKS_SHOWN)
    .map(
      ({ at, tone, text, path, lane }) =>
        html`<li><span class="when">${ago(new Date(at), now)}</span><span class="dot ${tone}"></span><span><span class="of">${lane.slice(0, -1)}</span> ${path === undefined ? text : html`<a href="${path}">${text}</a>`}</span></li>`,
    )
  return section('Timeline', html`${chart}<details><summary>As a list</summary><ol class="log">${list}</ol></details>`)
}

function shape({ tone, text, path, at, lane }: Mark, x: string, y: number): Html {
  const said = `${lane.slice(0, -1)}, ${new Date(at).toISOString()}: ${text}`
  const mark =
    tone === 'bad'
      ? html`<rect class="bad" x="${x}" y="${y - 7}" width="9" height="14" rx="1" transform="translate(-4 0)"/>`
      : html`<circle class="${tone}" cx="${x}" cy="${y}" r="6"/>`
  return path === undefined
    ? html`<g role="img" aria-label="${said}"><title>${said}</title>${mark}</g>`
    : html`<a href="${path}" aria-label="${said}"><title>${said}</title>${mark}</a>`
}

function marksOf({ object, events }: Situation, runs: readonly StoredRun[], untold: (text: string) => string): Mark[] {
  const ran = runs.map(({ sequence, record }): Mark => {
    const wrote = writesIn(record).written.length
    const what =
      untold(record.message ?? '') ||
      `${wrote === 0 ? 'wrote nothing' : `${wrote} ${wrote === 1 ? 'write' : 'writes'}`} in ${duration(tookMs(record))}; ${becauseOf(record)}`
    return {
      at: Date.parse(record.endedAt),
      lane: 'Runs',
      tone: TONES[record.result],
      text: `${record.result}: ${what}`,
      path: runPath(sequence),
    }
  })
  const conditions = transitionsOf(object, runs).map((one): Mark => {
    const { type, status, before, run, lastTransitionTime } = one
    const change = before === undefined || before === status ? `${type}=${status}` : `${type} ${before} → ${status}`
    return {
      at: Date.parse(lastTransitionTime),
      lane: 'Conditions',
      tone: toneOf(one),
      text: `${change} ${wordsOf({ ...one, message: untold(one.message ?? '') })}`.trimEnd(),
      ...(run !== undefined && { path: runPath(run) }),
    }
  })
  const told = events.map(
    ({ type, reason, message, last }): Mark => ({
      at: Date.parse(last),
      lane: 'Events',
      tone: type === 'Warning' ? 'bad' : 'idle',
      text: [reason, untold(message)].filter((part) => part !== '').join(': '),
    }),
  )
  const created = object?.metadata.creationTimestamp
  const born: Mark[] =
    created === undefined ? [] : [{ at: Date.parse(created), lane: 'Events', tone: 'idle', text: 'created' }]
  return [...ran, ...conditions, ...told, ...born].filter(({ at }) => Number.isFinite(at))
}

/** A condition that has got another status. */
export interface Transition extends Condition {
  lastTransitionTime: string
  /** The status before. Undefined: the condition is new, or its status before is not recorded. */
  before?: string
  /** The recorded run that wrote it. */
  run?: number
}

/**
 * Returns the transitions that the object shows, and the earlier ones that recorded runs have written or seen. The
 * object itself has only the last one of each type.
 */
export function transitionsOf(object: KubeObject | undefined, runs: readonly StoredRun[]): Transition[] {
  const found = new Map<string, Transition>()
  const note = (one: Condition, more: Pick<Transition, 'before' | 'run'> = {}) => {
    const { type, status, lastTransitionTime } = one
    const id = `${type} ${status} ${lastTransitionTime}`
    if (lastTransitionTime !== undefined && !found.has(id)) found.set(id, { ...one, lastTransitionTime, ...more })
  }
  for (const { sequence, record } of runs.toSorted((a, b) => a.sequence - b.sequence)) {
    const seen = seenBy(record)
    const statuses = new Map(seen.map(({ type, status }) => [type, status]))
    for (const one of seen) note(one)
    for (const one of writtenBy(record)) {
      const { type, status, lastTransitionTime = '' } = one
      // A run writes the conditions that it has not changed too.
      note(one, isDuring(record, lastTransitionTime) ? { before: statuses.get(type), run: sequence } : {})
      statuses.set(type, status)
    }
  }
  for (const one of conditionsOf(object)) note(one)
  return [...found.values()]
}

/** `lastTransitionTime` has whole seconds. */
const isDuring = ({ startedAt, endedAt }: RunRecord, time: string): boolean =>
  Date.parse(time) > Date.parse(startedAt) - 1000 && Date.parse(time) <= Date.parse(endedAt)

function seenBy({ laps, objects = {} }: RunRecord): Condition[] {
  const version = laps[0]?.input.object
  return conditionsOf(version ? objects[version] : undefined)
}

function writtenBy({ laps }: RunRecord): Condition[] {
  const writes = laps.flatMap((lap) => lap.writes).filter(({ verb, error }) => verb === 'status' && error === undefined)
  return writes.flatMap(({ kind, name, patch }) =>
    conditionsOf({ apiVersion: '', kind, metadata: { name }, status: patch }),
  )
}

/** Status True of a condition is mostly good. Some conditions name a fault. */
export const toneOf = ({ type, status }: Pick<Condition, 'type' | 'status'>): Tone => {
  const isBadIfTrue = /Failed|Failure|Contested|Stalled|Degraded|Pressure/.test(type)
  return status === 'Unknown' ? 'warn' : (status === 'True') === isBadIfTrue ? 'bad' : 'good'
}
