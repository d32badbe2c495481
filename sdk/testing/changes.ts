import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from '#contracts'
import { isResource, type Reconciler, type Resource } from '#sdk'
import { asGroup, rest, type Step, type Trial } from './scenario.ts'
import type { Simulation } from './simulation.ts'

export interface Change {
  /** The idle world before the change. */
  before: Simulation
  change: (world: Simulation) => void | Promise<void>
  when: string
  /** Nothing but time passes. */
  isTime: boolean
}

/** How many timers are followed after the last step. */
const MOST_TIMERS = 12
/** A timer that fires earlier is a poll: the next time that the object contains is of interest. */
const POLL_MS = 3_600_000

/**
 * Yields the steps, the passing of time up to the next timer before each of them and up to each of some timers after the
 * last one, then the deletion.
 */
export async function* changesOf(trial: Trial): AsyncGenerator<Change> {
  const { steps = [] } = trial.scenario
  const world = trial.world()
  let number = 0
  trial.begins(number++, 'at the start')
  await world.runUntilIdle()
  const goes = async function* (
    from: Simulation,
    change: Step[1],
    when: string,
    isTime = false,
  ): AsyncGenerator<Change> {
    if (trial.begins(number++, when)) yield { before: from.copy(), change, when, isTime }
    await change(from)
  }
  const timePasses = async function* (from: Simulation, most: number, after = ''): AsyncGenerator<Change> {
    await rest(from)
    for (let timers = 0; timers < most; timers++) {
      const next = nextTimeOf(from)
      if (next === undefined) return
      const seconds = (next - from.now.getTime()) / 1000
      const passes = async (one: Simulation) => {
        one.pass(seconds)
        await one.runUntilIdle()
      }
      yield* goes(from, passes, `${after}when it is ${new Date(next).toISOString()}`, true)
      await rest(from)
    }
  }
  let after = ''
  for (const [what, change] of steps.flatMap(asGroup)) {
    yield* timePasses(world.copy(), 1, after)
    after = `after "${what}", `
    yield* goes(world, change, `after "${what}"`)
    await world.runUntilIdle()
  }
  yield* timePasses(world, MOST_TIMERS)
  if (world.object !== undefined && world.object.metadata.deletionTimestamp === undefined)
    yield* goes(world, (one) => one.delete(), 'after its deletion')
}

function nextTimeOf({ object, timer, failure, now }: Simulation): number | undefined {
  if (object === undefined || timer === undefined || failure !== undefined) return undefined
  const due = Math.max(timer.getTime(), now.getTime())
  if (due - now.getTime() >= POLL_MS) return due
  const promised = timesIn(object).filter((time) => time > due)
  return promised.length === 0 ? due : Math.min(...promised)
}

/** Returns all times in a value, in epoch milliseconds. */
export function timesIn(value: unknown): number[] {
  if (typeof value === 'string')
    return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(value)
      ? [Date.parse(value)].filter((time) => !Number.isNaN(time))
      : []
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(timesIn) : []
}

/** Returns the fields of the spec that are the same in all states, with their defaults, though users may change them. */
export function unchangedIn(states: readonly KubeObject[], of: Reconciler['for']): string[] {
  if (!isResource(of)) return []
  const specs = states.map((state) => specOf(of, state)).filter((spec) => spec !== undefined)
  const isFixed = (path: string) => of.rules.some(({ title }) => title === `immutable ${path}`)
  const fields = [...new Set(specs.flatMap((spec) => Object.keys(spec)))]
  const same = fields.filter((field) => specs.every((spec) => isDeepStrictEqual(spec[field], specs[0]?.[field])))
  return same.map((field) => `.spec.${field}`).filter((path) => !isFixed(path))
}

/** Returns the spec as the function gets it. Undefined: its schema refuses it, and the function is not called. */
function specOf(of: Resource, state: KubeObject): Record<string, unknown> | undefined {
  try {
    return of.parse(state).spec
  } catch {
    return undefined
  }
}
