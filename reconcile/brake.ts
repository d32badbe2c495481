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
  /** Where it is counted. */
  annotation: string
  /** Declared values that are gone. */
  missing: readonly TakenField[]
  /** The version of the primary, where the object has no fingerprint of its declaration. */
  on: string | undefined
}

/** A correction that has to wait. */
export interface HeldBack {
  until: Date
}

/** The object as it is applied first, and how to count what this takes back. */
export interface Counted {
  object: KubeObject
  taking: Taking
}

/**
 * Decides how an apply to an existing object goes on. `isCorrection`: the function declares the same as before, so another
 * manager has changed the object. Only corrections wait in a fight. A new declaration does not.
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
  // Without it, server-side apply would remove the annotation.
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
 * Returns declared values that an object had and has no more. No field manager owns a removed field.
 * The server drops empty values by itself, so these do not count.
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
  /** The message of a condition. */
  message: string
  /** The time at which the first of them is over if no field changes again. */
  calmAt: Date
}

const TOLD = 4

/** Undefined: there are none. `annotation`: of the object itself. */
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
