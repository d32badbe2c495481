import { isRecord, type KubeObject } from '#contracts'
import { contestAnnotationOf, type PatchedFields, patchedBy } from '#spec'
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
  const contest = counted(contestOf(observed, now, annotation), [...missing, ...taken], now)
  return withContest(object, { ...contest, ...(on !== undefined && { on }) }, observed.metadata.uid, annotation)
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

/** The fights over an object, over its owned objects, and over the fields that it sets on others. */
export interface Fights {
  /** The message of the condition. */
  message: string
  /** The time at which the first fight ends if no field changes again. */
  calmAt: Date
}

const TOLD = 4

/** Whether the reconciler sets these fields of others again. It does not take others: the write is refused. */
export const isFight = ({ manager, fields }: Contest, before: PatchedFields['before'] = {}): boolean =>
  manager === undefined || fields.every((field) => field.slice(1) in before)

/** Returns the fights of a reconciler, or undefined if there are none. */
export function fightsIn({ object, owned }: Family, identity: string, now: Date): Fights | undefined {
  const fights = [
    ...fightOver(object, contestOf(object, now, contestAnnotationOf(identity))),
    ...owned.flatMap((child) => fightOver(child.object, contestOf(child.object, now))),
    ...patchedBy(object, identity).flatMap(({ kind, contest, before, ...metadata }) =>
      contest && isFight(contest, before) ? fightOver({ kind, metadata }, lasting(contest, now)) : [],
    ),
  ]
  if (fights.length === 0) return undefined
  const told = fights.slice(0, TOLD).map(({ message }) => message)
  const others = fights.length - told.length
  return {
    message: [...told, ...(others > 0 ? [`and ${others} more objects`] : [])].join('; '),
    calmAt: new Date(Math.min(...fights.map(({ calmAt }) => calmAt))),
  }
}

function fightOver(
  object: Pick<KubeObject, 'kind' | 'metadata'>,
  contest: Contest | undefined,
): { message: string; calmAt: number }[] {
  if (contest === undefined || delayMs(contest) === 0) return []
  const { at, times, manager, fields } = contest
  const who = manager === undefined ? 'an unknown manager has removed' : `${JSON.stringify(manager)} has changed`
  const pause = `set back ${times} times, next after ${delayMs(contest) / 1000} s (${LONGEST_DELAY_MS / 1000} s at most)`
  return [{ message: `${called(object)}: ${who} ${fields.join(', ')}; ${pause}`, calmAt: at + CALM_MS }]
}

/**
 * The annotation of an object whose declared fields other managers have changed. It holds the number of corrections, and
 * the time, manager and fields of the last one.
 */
export const CONTESTED_ANNOTATION = 'fairlead.dev/contested'

/** The number of corrections in one fight that are not delayed. */
const FREE = 5
/** The delay of the first correction after these. It doubles with each further correction. */
const FIRST_DELAY_MS = 1000
const LONGEST_DELAY_MS = 300_000
/** The time for which a correction has to stand to end the fight. Longer than the longest delay. */
const CALM_MS = 600_000

/** These limits keep the annotation below 1 KiB. */
const MAX_FIELDS = 4
const MAX_TEXT = 128

/** A field that has another value than the function declares. */
export interface TakenField {
  /** `.spec.replicas` */
  field: string
  /** The field manager that has changed the field. Undefined if it is not known, because the field was removed. */
  manager: string | undefined
}

/** The corrections of one object since a fight began. */
export interface Contest {
  times: number
  /** Time of the last correction, epoch milliseconds. */
  at: number
  /** What the last correction set back, and whose change it was. Undefined: the fields were removed. */
  manager?: string
  fields: string[]
  /** The version of the primary at the last correction, if the object has no fingerprint. */
  on?: string | number
}

/** Returns undefined if there is no contest, if it is over, or if the annotation was copied from another object. */
export function contestOf(object: KubeObject, now: Date, annotation = CONTESTED_ANNOTATION): Contest | undefined {
  const text = object.metadata.annotations?.[annotation]
  const stored = text === undefined ? undefined : parsed(text)
  if (stored === undefined || stored.uid !== object.metadata.uid) return undefined
  return lasting(stored, now)
}

/** Returns undefined if the contest is over. */
export function lasting(contest: Contest | undefined, now: Date): Contest | undefined {
  if (contest === undefined) return undefined
  // The clock of another process may be ahead.
  const at = Math.min(contest.at, now.getTime())
  return now.getTime() - at < CALM_MS ? { ...contest, at } : undefined
}

function parsed(text: string): (Contest & { uid: unknown }) | undefined {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (!isRecord(value)) return undefined
  const { uid, times, manager, fields, on } = value
  const at = Date.parse(String(value['at']))
  const isText = (one: unknown): one is string => typeof one === 'string'
  if (Number.isNaN(at) || !isCount(times) || !Array.isArray(fields)) return undefined
  const named = fields.filter(isText).slice(0, MAX_FIELDS)
  return { uid, times, at, fields: named, ...(isText(manager) && { manager }), ...(isText(on) && { on }) }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value)

/** Returns the contest after these fields have been taken back at `now`, without `on`. */
export function counted(before: Contest | undefined, taken: readonly TakenField[], now: Date): Contest {
  // A manager that is known tells a user more than a field that is gone.
  const manager = taken.find((one) => one.manager !== undefined)?.manager
  const fields = taken.filter((one) => one.manager === manager).map(({ field }) => short(field))
  return {
    times: (before?.times ?? 0) + 1,
    at: now.getTime(),
    fields: [...new Set(fields)].slice(0, MAX_FIELDS),
    ...(manager !== undefined && { manager: short(manager) }),
  }
}

const short = (text: string): string =>
  (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1)}…` : text).toWellFormed()

/** Returns how long a correction has to stand before the next one, in milliseconds. 0: there is no fight yet. */
export const delayMs = ({ times }: Pick<Contest, 'times'>): number =>
  times < FREE ? 0 : Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** (times - FREE))

function withContest(object: KubeObject, contest: Contest, uid: string | undefined, annotation: string): KubeObject {
  const value = JSON.stringify({ uid, ...contest, at: new Date(contest.at).toISOString() })
  const { metadata } = object
  return { ...object, metadata: { ...metadata, annotations: { ...metadata.annotations, [annotation]: value } } }
}
