import type { KubeObject } from '#contracts'
import {
  after,
  CALM_MS,
  type Contest,
  contestOf,
  delayMs,
  LONGEST_DELAY_MS,
  type TakenField,
  withContest,
} from './contest.ts'
import { isRecord } from './covers.ts'
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
export interface HeldBack {
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
): Counted | HeldBack {
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

export const isHeldBack = (one: object): one is HeldBack => 'until' in one

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
