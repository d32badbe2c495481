import type { KubeObject } from '#contracts'
import { isRecord } from './compare.ts'
import { called, type Family } from './world.ts'

/** How an apply counts the fields that it takes back from other managers. */
export interface Taking {
  /** The object, as it was observed. */
  observed: KubeObject
  now: Date
  /** The annotation that holds the count. */
  annotation: string
  /** Declared values that the object no longer has. */
  missing: readonly TakenField[]
  /** The version of the primary, if the object has no fingerprint of its declaration. */
  on: string | undefined
}

/** A correction that is delayed. */
export interface Delayed {
  until: Date
}

/** The object to apply first, and how to count the fields that this apply takes back. */
export interface Counted {
  object: KubeObject
  taking: Taking
}

/**
 * Decides how an apply to an existing object continues. `isCorrection`: the function declares the same as before, so
 * another manager has changed the object. In a fight only corrections are delayed. A new declaration is not.
 */
export function braked(
  object: KubeObject,
  taking: Taking,
  isCorrection: (contest: Contest) => boolean,
): Counted | Delayed {
  const { observed, now, annotation, missing } = taking
  const contest = contestOf(observed, now, annotation)
  if (contest !== undefined && isCorrection(contest)) {
    const until = new Date(contest.at + delayMs(contest))
    if (until > now) return { until }
  }
  if (missing.length > 0) return { object: asTakenBack(object, taking, []), taking }
  // Server-side apply would remove an annotation that is left out.
  const kept = contest === undefined ? object : withContest(object, contest, observed.metadata.uid, annotation)
  return { object: kept, taking }
}

export const isDelayed = (one: object): one is Delayed => 'until' in one

/** Returns the object that sets these fields back, with the new count. */
export function asTakenBack(object: KubeObject, taking: Taking, taken: readonly TakenField[]): KubeObject {
  const { observed, now, annotation, missing, on } = taking
  const contest = after(contestOf(observed, now, annotation), [...missing, ...taken], now, on)
  return withContest(object, contest, observed.metadata.uid, annotation)
}

/**
 * Returns the declared values that an object had and no longer has. A removed field has no field manager. Empty values
 * do not count, because the API server removes them itself.
 */
export function missingFields(declared: unknown, observed: unknown, path = ''): TakenField[] {
  if (isRecord(declared))
    return Object.keys(declared).flatMap((field) =>
      field === 'stringData' ? [] : missingFields(declared[field], fieldOf(observed, field), `${path}.${field}`),
    )
  if (Array.isArray(declared)) {
    if (!Array.isArray(observed)) return observed === undefined && declared.length > 0 ? [removed(path)] : []
    if (observed.length < declared.length) return [removed(path)]
    return observed.length === declared.length
      ? declared.flatMap((item, index) => missingFields(item, observed[index], `${path}[${index}]`))
      : []
  }
  return declared && observed === undefined ? [removed(path)] : []
}

const removed = (field: string): TakenField => ({ field, manager: undefined })

const fieldOf = (value: unknown, field: string): unknown => (isRecord(value) ? value[field] : undefined)

/** The fights over an object and over its owned objects. */
export interface Fights {
  /** The message of the condition. */
  message: string
  /** The time at which the first fight ends if no field changes again. */
  calmAt: Date
}

const TOLD = 4

/**
 * Returns the fights, or undefined if there are none. `annotation`: the annotation with the count of the object's own
 * labels and annotations.
 */
export function fightsIn({ object, owned }: Family, annotation: string, now: Date): Fights | undefined {
  const fights = [
    ...fightOver(object, contestOf(object, now, annotation)),
    ...owned.flatMap((child) => fightOver(child.object, contestOf(child.object, now))),
  ]
  if (fights.length === 0) return undefined
  const told = fights.slice(0, TOLD).map(({ message }) => message)
  const others = fights.length - told.length
  return {
    message: [...told, ...(others > 0 ? [`and ${others} more objects`] : [])].join('; '),
    calmAt: new Date(Math.min(...fights.map(({ calmAt }) => calmAt))),
  }
}

function fightOver(object: KubeObject, contest: Contest | undefined): { message: string; calmAt: number }[] {
  if (contest === undefined || delayMs(contest) === 0) return []
  const { since, at, rivals } = contest
  const seconds = Math.max(1, Math.round((at - since) / 1000))
  const who = rivals
    .filter(({ times }) => delayMs({ ...contest, rivals: [{ times, fields: [] }] }) > 0)
    .map(({ manager, times, fields }) => {
      const by = manager === undefined ? 'an unknown manager has removed' : `${JSON.stringify(manager)} has changed`
      return `${by} ${fields.join(', ')} ${times} times in ${seconds} s`
    })
  const pause = `the function's values are set again after ${delayMs(contest) / 1000} s (${LONGEST_DELAY_MS / 1000} s at most)`
  return [{ message: `${called(object)}: ${who.join(', ')}; ${pause}`, calmAt: at + CALM_MS }]
}

/**
 * The annotation of an object whose declared fields other managers have changed. It holds the managers, the counts, and
 * the time of the last correction.
 */
export const CONTESTED_ANNOTATION = 'fairlead.dev/contested'

/** The number of corrections in one fight that are not delayed. */
const FREE = 5
/** The delay of the first correction after these. It doubles with each further correction. */
const FIRST_DELAY_MS = 1000
const LONGEST_DELAY_MS = 300_000
/** The time for which a correction has to stand to end the fight. Longer than the longest delay. */
const CALM_MS = 600_000

/** These limits keep the annotation below 3 KiB. */
const MAX_RIVALS = 4
const MAX_FIELDS = 4
const MAX_TEXT = 128

/** A field that has another value than the function declares. */
export interface TakenField {
  /** `.spec.replicas` */
  field: string
  /** The field manager that has changed the field. Undefined if it is not known, because the field was removed. */
  manager: string | undefined
}

interface Rival {
  manager?: string
  times: number
  fields: string[]
}

/** The corrections of one object since a fight began. */
export interface Contest {
  /** Epoch milliseconds. */
  since: number
  /** Time of the last correction, epoch milliseconds. */
  at: number
  rivals: Rival[]
  /** The version of the primary at the last correction, if the object has no fingerprint. */
  on?: string
}

/** Returns undefined if there is no contest, if it is over, or if the annotation was copied from another object. */
export function contestOf(object: KubeObject, now: Date, annotation = CONTESTED_ANNOTATION): Contest | undefined {
  const text = object.metadata.annotations?.[annotation]
  if (text === undefined) return undefined
  const stored = parsed(text)
  if (stored === undefined || stored.uid !== object.metadata.uid) return undefined
  // The clock of another process may be ahead.
  const at = Math.min(stored.at, now.getTime())
  const contest = { ...stored, since: Math.min(stored.since, at), at }
  return now.getTime() - at < CALM_MS ? contest : undefined
}

function parsed(text: string): (Contest & { uid: unknown }) | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (!isRecord(value)) return undefined
  const { uid, since, at, by, on } = value
  const [from, last] = [since, at].map((time) => Date.parse(String(time))) as [number, number]
  if (Number.isNaN(from + last) || !Array.isArray(by)) return undefined
  const rivals = by.filter(isRival).slice(0, MAX_RIVALS)
  return { uid, since: from, at: last, rivals, ...(typeof on === 'string' && { on }) }
}

const isRival = (value: unknown): value is Rival =>
  isRecord(value) &&
  (value['manager'] === undefined || typeof value['manager'] === 'string') &&
  Number.isSafeInteger(value['times']) &&
  Array.isArray(value['fields']) &&
  value['fields'].every((field) => typeof field === 'string')

/** Returns the contest after these fields have been taken back at `now`. */
function after(before: Contest | undefined, taken: readonly TakenField[], now: Date, on: string | undefined): Contest {
  const rivals = new Map((before?.rivals ?? []).map((rival) => [rival.manager, rival]))
  for (const [manager, fields] of byManager(taken)) {
    const { times = 0, fields: known = [] } = rivals.get(manager) ?? {}
    // The newest manager is moved to the end, so that the oldest is dropped first.
    rivals.delete(manager)
    const all = [...new Set([...fields.map(short), ...known])].slice(0, MAX_FIELDS)
    rivals.set(manager, { ...(manager !== undefined && { manager }), times: times + 1, fields: all })
  }
  const since = before?.since ?? now.getTime()
  const kept = [...rivals.values()].slice(-MAX_RIVALS)
  return { since, at: now.getTime(), rivals: kept, ...(on !== undefined && { on }) }
}

const byManager = (taken: readonly TakenField[]): Map<string | undefined, string[]> => {
  const fields = new Map<string | undefined, string[]>()
  for (const { field, manager } of taken) {
    const name = manager && short(manager)
    fields.set(name, [...(fields.get(name) ?? []), field])
  }
  return fields
}

const short = (text: string): string =>
  (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text).toWellFormed()

/**
 * Returns how long a correction has to stand before the next one, in milliseconds, from the highest count of a manager.
 * 0: there is no fight yet.
 */
export function delayMs({ rivals }: Contest): number {
  const times = Math.max(0, ...rivals.map((rival) => rival.times))
  return times < FREE ? 0 : Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (times - FREE))
}

function withContest(object: KubeObject, contest: Contest, uid: string | undefined, annotation: string): KubeObject {
  const { since, at, rivals, on } = contest
  const [from, last] = [since, at].map((time) => new Date(time).toISOString())
  const value = JSON.stringify({ uid, since: from, at: last, by: rivals, ...(on !== undefined && { on }) })
  const { metadata } = object
  return { ...object, metadata: { ...metadata, annotations: { ...metadata.annotations, [annotation]: value } } }
}
