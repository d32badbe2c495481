import { isDeepStrictEqual } from 'node:util'
import type { Outcome, RunInput } from '#contracts'
import { changesBetween, FoundAnywhere, TWO_CALLS, TWO_CALLS_DIFFER } from './broken.ts'
import { permutations, stateOf, withoutHistory } from './effect-laws.ts'
import { decided, decidedTwice, invokeOf } from './given.ts'
import { asGroup, rest, type Step, type Trial } from './scenario.ts'
import type { Simulation } from './simulation.ts'

type Invoke = (input: RunInput) => Promise<Outcome>

/** The function decides on its input alone: at any time, in any time zone, whatever it was called with before, in any order of a list. */
export async function decidesTheSame(trial: Trial): Promise<void> {
  const invoke = invokeOf(trial.reconciler)
  // Once as the scenario has it, once with a cluster that makes one change between two runs.
  for (const isStepwise of trial.scenario.cluster === undefined ? [false] : [false, true])
    for await (const { start, when } of trial.starts()) {
      const world = start()
      world.isStepwise = isStepwise
      await world.runUntilIdle()
      const outcomes: unknown[] = []
      for (const [index, input] of world.inputs.entries()) {
        const outcome = await decidedPurely(invoke, input)
        const returned = world.outcomes[index]
        const lines = returned ? changesBetween(await decided(() => returned, input), outcome) : []
        if (lines.length > 0) throw new FoundAnywhere(REMEMBERS, { lines, sides: ['in its run', 'called again'] })
        trial.hasChecked = true
        for (const [list, other] of reordered(input))
          trial.same(await decided(invoke, other), outcome, `the order of a list decides, that of ${list}, ${when}`, {
            sides: ['one order', 'another order'],
          })
        outcomes.push(outcome)
      }
      for (const zone of ZONES)
        for (const [index, other] of (await decidedIn(zone, invoke, world.inputs)).entries())
          trial.same(other, outcomes[index], `the time zone of the process decides, ${when}`, {
            sides: ['in the time zone of this process', `in ${zone}`],
          })
    }
  // Before these laws, this process may have called it with all of the inputs above.
  for await (const { start } of trial.starts()) {
    const world = start()
    await world.runUntilIdle()
    for (const input of world.inputs.slice(-1))
      for (const [what, other] of neverSeen(input)) await decidedPurely(invoke, other, what)
  }
}

/** The first and the last one to begin a day. */
const ZONES = ['Pacific/Kiritimati', 'Pacific/Pago_Pago'] as const

/** Decides in another time zone of the process, up to the first `await` of the function, so that no other code meets it. */
function decidedIn(zone: string, invoke: Invoke, inputs: readonly RunInput[]): Promise<unknown[]> {
  const { TZ: before } = process.env
  process.env['TZ'] = zone
  try {
    return Promise.all(inputs.map((input) => decided(invoke, input)))
  } finally {
    if (before === undefined) delete process.env['TZ']
    else process.env['TZ'] = before
  }
}

const REMEMBERS = `it remembers former calls, which another process has not had: ${TWO_CALLS_DIFFER}`
/** A function that decides the same in so many further calls is not random. */
const FURTHER_CALLS = 20

/** Returns the decision. Throws if two calls differ: of a function that remembers the first one, all others are the same. */
async function decidedPurely(invoke: Invoke, input: RunInput, what = ''): Promise<unknown> {
  const [first, second] = await decidedTwice(invoke, input)
  const lines = changesBetween(first, second)
  if (lines.length === 0) return first
  for (let calls = 0; calls < FURTHER_CALLS; calls++)
    if (!isDeepStrictEqual(await decided(invoke, input), second))
      throw new FoundAnywhere(`${TWO_CALLS_DIFFER}${what}`, { lines, sides: TWO_CALLS })
  throw new FoundAnywhere(`${REMEMBERS}${what}`, { lines, sides: TWO_CALLS })
}

const DAY_MS = 86_400_000
/** Later than each time that a scenario is likely to have. */
const LATER_DAYS = 400
let unseen = 0

/** Returns inputs that no call of this process has had: as of a later time, and of an object with another name. */
function neverSeen(input: RunInput): [what: string, input: RunInput][] {
  const { object, now } = input
  unseen++
  const later = new Date(Date.parse(now) + (LATER_DAYS + unseen) * DAY_MS).toISOString()
  const asOfLater: [string, RunInput] = [` with "now" set to ${later}`, { ...input, now: later }]
  if (object === null) return [asOfLater]
  const { name, uid } = object.metadata
  const metadata = { ...object.metadata, name: `${name}-${unseen}`, uid: `${uid}-${unseen}` }
  return [asOfLater, [` under the name ${metadata.name}`, { ...input, object: { ...object, metadata } }]]
}

/** Returns the same input with other orders of one list of objects, each with the kind in that list. */
function reordered(input: RunInput): [kind: string, input: RunInput][] {
  return (['owned', 'related'] as const).flatMap((from) =>
    Object.entries(input[from]).flatMap(([kind, list]): [string, RunInput][] => {
      const orders = [list.toReversed(), [...list.slice(1), ...list.slice(0, 1)]]
      // Both are one order of two objects.
      return orders
        .slice(0, Math.max(0, list.length - 1))
        .map((order) => [kind, { ...input, [from]: { ...input[from], [kind]: order } }])
    }),
  )
}

/** The end is the same, whichever change of a group comes first. */
export async function takesAnyOrder(trial: Trial): Promise<void> {
  const { steps = [] } = trial.scenario
  const world = trial.world()
  trial.begins(0, 'at the start')
  await world.runUntilIdle()
  for (const [index, group] of steps.map(asGroup).entries()) {
    const names = group.map(([what]) => what).join(', ')
    const worlds: Simulation[] = []
    if (trial.begins(index + 1, `in an order of: ${names}`))
      for (const order of permutations(group))
        for (const oneByOne of group.length > 1 ? [true, false] : [])
          worlds.push(await changedIn(world.copy(), order, oneByOne))
    const [first, ...others] = worlds
    const differing = () => others.find((one) => first && !isDeepStrictEqual(endOf(one), endOf(first)))
    // Jobs may still run. A cluster that never comes to rest shows no end.
    if (first !== undefined && (!differing() || (await restTogether(worlds))))
      trial.same(endOf(differing() ?? first), endOf(first), `the order decides, of: ${names}`, {
        sides: ['one order', 'another order'],
      })
    else if (first !== undefined) trial.why = `the cluster never comes to rest after: ${names}`
    for (const [, change] of group) await change(world)
    await world.runUntilIdle()
  }
}

const endOf = (world: Simulation): unknown => withoutHistory(stateOf(world))

async function changedIn(world: Simulation, order: readonly Step[], oneByOne: boolean): Promise<Simulation> {
  for (const [, change] of order) {
    await change(world)
    if (oneByOne) await world.runUntilIdle()
  }
  await world.runUntilIdle()
  return world
}

/** How often worlds that are to be at rest at one time wait for each other. */
const MOST_WAITS = 10

/** Whether the cluster is at rest in all of the worlds, which have the same time then. */
async function restTogether(worlds: readonly Simulation[]): Promise<boolean> {
  for (let waits = 0; waits < MOST_WAITS; waits++) {
    for (const world of worlds) await rest(world)
    if (worlds.some(({ clusterTimer }) => clusterTimer !== undefined)) return false
    const latest = Math.max(...worlds.map(({ now }) => now.getTime()))
    for (const world of worlds) {
      await world.advance((latest - world.now.getTime()) / 1000)
      // A timer that waits for some time begins in all of them now.
      await world.runUntilIdle()
    }
    if (worlds.every(({ clusterTimer }) => clusterTimer === undefined)) return true
  }
  return false
}
