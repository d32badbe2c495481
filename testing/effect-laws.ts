import type { Reconciler } from '#sdk'
import { same, stateOf, withoutFailure, withoutHistory } from './same.ts'
import { die, type Scenario, starts } from './scenario.ts'
import { Crash } from './simulated-run.ts'
import type { Simulation } from './simulation.ts'

interface Happening {
  world: Simulation
  /** Passes the effect to the external system. */
  perform: () => Promise<unknown>
  /** Passes the effect to the external system after a newer run has ended. */
  late: () => void
}

/** The disturbance of one effect. Returns the result that the platform receives, or throws. */
type Fate = (happening: Happening) => Promise<unknown>

const fails = (): never => {
  throw new Error('the answer of the external system is lost')
}

const SAME_END: Record<string, Record<string, Fate>> = {
  'comes to the same end if its process dies before or after any effect': {
    'its process dies before effect': async () => die(),
    'its process dies after effect': async ({ perform }) => {
      await perform()
      return die()
    },
  },
  'comes to the same end if an effect is performed twice': {
    'two times effect': async ({ perform }) => {
      await perform()
      return perform()
    },
  },
  'comes to the same end if an effect fails, whether it was performed or not': {
    'a failed effect': async () => fails(),
    'an effect that is performed and reported as failed': async ({ perform }) => {
      await perform()
      return fails()
    },
  },
  'comes to the same end if an effect is reported as performed before it is, or never is': {
    'an effect that is reported as performed, and is not': async () => null,
    'a delayed effect': async ({ late }) => {
      late()
      return null
    },
  },
  'comes to the same end if a process that has lost its key performs an effect late': {
    'a stalled process that performs effect': async ({ late }) => {
      late()
      return die()
    },
    'a timed out process that performs effect': async ({ late }) => {
      late()
      return fails()
    },
  },
}

const GOES: Record<string, Fate> = {
  'the object is deleted before effect': async ({ world, perform }) => {
    if (world.object !== undefined) world.delete()
    return perform()
  },
  'the object is deleted after effect': async ({ world, perform }) => {
    const result = await perform()
    if (world.object !== undefined) world.delete()
    return result
  },
}

/** The laws for functions with an external system. */
export const EFFECT_LAWS: Record<string, (reconciler: Reconciler, scenario: Scenario) => Promise<void>> = {
  ...Object.fromEntries(
    Object.entries(SAME_END).map(([law, fates]) => [
      law,
      (reconciler: Reconciler, scenario: Scenario) => comesToTheSameEnd(reconciler, scenario, fates),
    ]),
  ),
  'leaves the external system as its finalizer does, if its object goes before or after any effect': cleansUp,
}

async function comesToTheSameEnd(
  reconciler: Reconciler,
  scenario: Scenario,
  fates: Record<string, Fate>,
): Promise<void> {
  const end = (world: Simulation): unknown => scenario.endOf?.(world) ?? withoutFailure(withoutHistory(stateOf(world)))
  for await (const { start, when } of starts(reconciler, scenario)) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    for await (const { world, what } of ends(start, fates))
      same(end(world), end(undisturbed), `it ends otherwise: ${what}, ${when}`)
  }
}

async function cleansUp(reconciler: Reconciler, scenario: Scenario): Promise<void> {
  if (reconciler.finalize === undefined) return
  const left = (world: Simulation): unknown => [world.object, scenario.endOf?.(world) ?? world.external]
  for await (const { start, when } of starts(reconciler, scenario)) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    if (undisturbed.object !== undefined) undisturbed.delete()
    await undisturbed.runUntilIdle()
    for await (const { world, what } of ends(start, GOES))
      same(left(world), left(undisturbed), `something else is left if ${what}, ${when}`)
  }
}

/** Worlds that became idle after this disturbance of their first, second, … effect. */
async function* ends(
  start: () => Simulation,
  fates: Record<string, Fate>,
): AsyncGenerator<{ world: Simulation; what: string }> {
  for (const [name, fate] of Object.entries(fates))
    for (let at = 0; ; at++) {
      const world = start()
      const kind = await disturb(world, at, fate)
      if (kind === undefined) break
      // A copy of the world: the process that continues knows only the stored state.
      const next = world.copy()
      await next.runUntilIdle()
      yield { world: next, what: `${name} ${kind}` }
    }
}

/** Returns the kind of the disturbed effect; undefined if there was no such effect. */
async function disturb(world: Simulation, at: number, fate: Fate): Promise<string | undefined> {
  let [seen, kind]: [number, string | undefined] = [0, undefined]
  let late: (() => Promise<unknown>) | undefined
  world.aroundEffects((effect, perform) => {
    if (seen++ !== at) return perform()
    kind = effect.kind
    return fate({ world, perform, late: () => (late = perform) })
  })
  await world.runUntilIdle().catch((error: unknown) => {
    if (!(error instanceof Crash)) throw error
  })
  if (late === undefined) return kind
  await world.runUntilIdle()
  // The external system may refuse the late effect.
  await late().catch(() => undefined)
  return kind
}
