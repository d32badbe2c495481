import type { KubeObject } from '#contracts'
import type { Kind, Reconciler } from '#sdk'
import { PAUSED_ANNOTATION, retainerOf } from '#spec'
import {
  decided,
  EFFECT_LAWS,
  permutations,
  reordered,
  same,
  stateOf,
  survivesFights,
  TOUCHED,
  withoutFailure,
  withoutHistory,
  withoutPause,
} from './effect-laws.ts'
import { invokeOf, isOfKind } from './given.ts'
import { asGroup, die, disturbances, runDisturbed, type Scenario, type Step, starts } from './scenario.ts'
import type { SimulatedWrite } from './simulated-run.ts'
import { Simulation } from './simulation.ts'

/**
 * Returns the laws that every reconciler must satisfy, as rows of a test runner. Each plays the scenario in memory,
 * disturbed in its own way (crashes, conflicts, refused writes, pauses), and rejects with the difference that it finds.
 * Writes no files and needs no cluster.
 *
 * @example
 * import { deploymentsRun, lawsOf } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const rows = lawsOf(website, { objects: [object], cluster: deploymentsRun })
 * for (const [, holds] of rows.slice(0, 2)) await holds()
 * rows[1]?.[0] // => 'writes nothing when it runs again, at once or a second later'
 */
export function lawsOf<For extends Kind<unknown>, State = unknown>(
  reconciler: Reconciler<For>,
  scenario: Scenario<NoInfer<For>, State>,
): [law: string, holds: () => Promise<void>][] {
  const laws = { ...LAWS, ...(reconciler.external !== undefined && EFFECT_LAWS) }
  return Object.entries(laws).map(([law, check]) => [law, () => check(reconciler, scenario as Scenario)])
}

const LAWS: Record<string, (reconciler: Reconciler, scenario: Scenario) => Promise<void>> = {
  'decides the same on the same state, whatever the order of its lists': decidesTheSame,
  'writes nothing when it runs again, at once or a second later': writesNothingTwice,
  'comes to the same end if its process dies between any two writes': survivesCrashes,
  'comes to the same end if another client writes first': survivesConflicts,
  'writes little while others fight it over a field, and sets the field again afterwards': survivesFights,
  'comes to the same end if a write is refused for some time': survivesRefusals,
  'writes nothing while it is paused, and comes to the same end when it is resumed': survivesPauses,
  'leaves nothing behind if its object goes in the middle of a run': leavesNothingBehind,
  'keeps what it retains when its object goes, at any moment': keepsWhatItRetains,
  'comes to the same end in whatever order changes come, one by one or at once': takesAnyOrder,
}

async function decidesTheSame(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  const invoke = invokeOf(reconciler)
  for await (const { start, when } of starts(reconciler, scenario)) {
    const world = start()
    await world.runUntilIdle()
    for (const input of world.inputs) {
      const outcome = await decided(invoke, input)
      letTheClockTick()
      same(await decided(invoke, input), outcome, `a second call on the same state decides otherwise, ${when}`)
      for (const other of reordered(input))
        same(await decided(invoke, other), outcome, `the order of a list decides, ${when}`)
    }
  }
}

async function writesNothingTwice(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  for await (const { start, when } of starts(reconciler, scenario)) {
    const world = start()
    await world.runUntilIdle()
    const before = stateOf(world)
    world.draw = 'another run'
    await world.run()
    same(stateOf(world), before, `a run with nothing to do has changed something, ${when}`)
    const { length } = world.writes
    const effects = world.effects.length
    world.pass(aMoment(world))
    await world.run()
    same(world.writes.slice(length), [], `a run a moment later, before its timer, writes the time or so, ${when}`)
    same(world.effects.slice(effects), [], `a run a moment later, before its timer, performs an effect, ${when}`)
  }
}

/** Returns a second, or less if a timer fires earlier. */
const aMoment = ({ now, timer }: Simulation): number =>
  timer === undefined ? 1 : Math.min(1, (timer.getTime() - now.getTime()) / 2000)

/** Waits until Date.now() changes, so that a function that reads the clock gets another time. */
function letTheClockTick(): void {
  for (const before = Date.now(); Date.now() === before; );
}

async function survivesCrashes(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  await comesToTheSameEnd(reconciler, scenario, 'the process dies', die)
}

async function survivesConflicts(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  const touch = (world: Simulation, { object }: SimulatedWrite): void => {
    const target = world.memory.find(object) ?? world.object
    if (target !== undefined) world.memory.patch(target, { metadata: { annotations: { [TOUCHED]: 'true' } } })
  }
  await comesToTheSameEnd(reconciler, scenario, 'another client writes', touch)
}

async function survivesRefusals(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  const kinds = [...reconciler.owns, reconciler.for]
  const refuse = (world: Simulation, { object }: SimulatedWrite): void => {
    const kind = kinds.find((one) => isOfKind(object, one))
    if (kind !== undefined) world.refuse(kind, 'Forbidden', object.metadata.name)
  }
  for await (const { start, when } of starts(reconciler, scenario)) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    for await (const { world, write } of disturbances(start, refuse)) {
      const isGivenUp = world.failure !== undefined && world.timer === undefined && undisturbed.failure === undefined
      same(isGivenUp, false, `it is not tried again if the ${write} is refused, ${when}`)
      world.admit()
      await world.runUntilIdle()
      const [end, expected] = [world, undisturbed].map((one) => withoutFailure(withoutHistory(stateOf(one))))
      same(end, expected, `it ends otherwise if the ${write} is refused for some time, ${when}`)
    }
  }
}

async function comesToTheSameEnd(
  reconciler: Reconciler,
  scenario: Scenario,
  what: string,
  happens: (world: Simulation, write: SimulatedWrite) => void,
): Promise<void> {
  for await (const { start, when } of starts(reconciler, scenario)) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    for await (const { world, write } of disturbances(start, happens))
      same(stateOf(world), stateOf(undisturbed), `it ends otherwise if ${what} before ${write}, ${when}`)
  }
}

async function survivesPauses(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  for await (const { start, when } of starts(reconciler, scenario)) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    const resumedEnd = async (paused: Simulation): Promise<unknown> => {
      if (paused.object !== undefined) pause(paused, null)
      await paused.runUntilIdle()
      return withoutPause(stateOf(paused))
    }
    const atOnce = start()
    if (atOnce.object === undefined) continue
    pause(atOnce, 'true')
    const dead = atOnce.copy()
    await runDisturbed(dead, 0, die)
    for (const paused of [atOnce, dead.copy()]) {
      await paused.runUntilIdle()
      const written = paused.writes.filter(
        ({ verb, object }) => verb !== 'status' || object.kind !== reconciler.for.kind,
      )
      same(written, [], `something is written while it is paused, ${when}`)
      same(await resumedEnd(paused), withoutPause(stateOf(undisturbed)), `it ends otherwise after a pause, ${when}`)
    }
    for await (const { world, write } of disturbances(start, (one) => one.object && pause(one, 'true')))
      same(
        await resumedEnd(world),
        withoutPause(stateOf(undisturbed)),
        `it ends otherwise if it is paused before ${write}, ${when}`,
      )
  }
}

const pause = (world: Simulation, value: 'true' | null): void =>
  world.edit({ metadata: { annotations: { [PAUSED_ANNOTATION]: value } } })

async function leavesNothingBehind(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  for await (const { start, when } of starts(reconciler, scenario)) {
    for await (const { world, write } of disturbances(start, (one) => one.object && one.delete())) {
      world.memory.collectGarbage()
      const left = world.memory.all().filter(({ metadata }) => metadata.ownerReferences !== undefined)
      same([world.object, ...left], [undefined], `something is left if it is deleted before ${write}, ${when}`)
    }
  }
}

/**
 * Retained objects survive the deletion of their owner. Objects that the function releases in the same run may be lost:
 * the deletion may come while that write is under way.
 */
async function keepsWhatItRetains(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  for await (const { start, when } of starts(reconciler, scenario)) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    const wanted = retainedIn(undisturbed)
    let retained: KubeObject[] = []
    const goes = (world: Simulation): void => {
      if (world.object === undefined) return
      retained = retainedIn(world).filter((one) => wanted.some(({ metadata }) => metadata.uid === one.metadata.uid))
      world.delete()
    }
    const keeps = (world: Simulation, moment: string): void => {
      world.memory.collectGarbage()
      const left = new Set(world.memory.all().map(({ metadata }) => metadata.uid))
      const lost = retained.filter(({ metadata }) => !left.has(metadata.uid))
      same(lost, [], `what it retains is gone if it is deleted ${moment}, ${when}`)
    }
    for await (const { world, write } of disturbances(start, goes)) keeps(world, `before ${write}`)
    goes(undisturbed)
    await undisturbed.runUntilIdle()
    keeps(undisturbed, 'when it is idle')
  }
}

const retainedIn = ({ memory }: Simulation): KubeObject[] =>
  memory.all().filter((object) => retainerOf(object) !== undefined)

async function takesAnyOrder(reconciler: Reconciler, { steps = [], ...options }: Scenario): Promise<void> {
  const world = new Simulation(reconciler, options)
  await world.runUntilIdle()
  for (const group of steps.map(asGroup)) {
    const names = group.map(([what]) => what).join(', ')
    const ends: unknown[] = []
    for (const order of permutations(group))
      for (const oneByOne of group.length > 1 ? [true, false] : [])
        ends.push(await endOf(world.copy(), order, oneByOne))
    for (const end of ends) same(end, ends[0], `the order decides, of: ${names}`)
    for (const [, change] of group) await change(world)
    await world.runUntilIdle()
  }
}

async function endOf(world: Simulation, order: readonly Step[], oneByOne: boolean): Promise<unknown> {
  for (const [, change] of order) {
    await change(world)
    if (oneByOne) await world.runUntilIdle()
  }
  await world.runUntilIdle()
  return withoutHistory(stateOf(world))
}
