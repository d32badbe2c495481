import type { Kind, Reconciler } from '#sdk'
import { Crash, type SimulatedWrite } from './simulated-run.ts'
import { Simulation, type SimulationOptions } from './simulation.ts'

/**
 * A change from outside of the function: its name in messages, and the change.
 *
 * @example
 * import { type Step, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const [, grows]: Step<typeof Website> = ['the website grows', (world) => world.edit({ spec: { replicas: 3 } })]
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object] })
 * await grows(world)
 * world.object?.spec.replicas // => 3
 */
export type Step<For extends Kind<unknown> = Kind<unknown>, State = unknown> = readonly [
  what: string,
  change: (world: Simulation<For, State>) => void | Promise<void>,
]

/**
 * A simulation with the changes that happen to it. `lawsOf` replays it, disturbed at every write.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * import { lawsOf, type Scenario } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const scenario: Scenario<typeof Website> = {
 *   objects: [object],
 *   steps: [['its ConfigMap is deleted', (world) => world.delete(ConfigMap)]],
 * }
 * lawsOf(website, scenario).length // => 10
 */
export interface Scenario<For extends Kind<unknown> = Kind<unknown>, State = unknown>
  extends SimulationOptions<For, State> {
  /** The changes in their order. Changes in a nested list come in any order. */
  steps?: readonly (Step<For, State> | readonly Step<For, State>[])[]
  /**
   * Returns the state to compare after disturbed effects.
   *
   * @default all objects, and the state of the external system
   */
  endOf?(world: Simulation<For, State>): unknown
}

interface Start {
  /** Returns a new world with possible work. */
  start: () => Simulation
  when: string
}

/** Yields the initial world, the world after each step, and the world after the deletion of its object. */
export async function* starts(reconciler: Reconciler, { steps = [], ...options }: Scenario): AsyncGenerator<Start> {
  const world = new Simulation(reconciler, options)
  yield { start: () => world.copy(), when: 'at the start' }
  await world.runUntilIdle()
  for (const [what, change] of steps.flatMap(asGroup)) {
    await change(world)
    yield { start: () => world.copy(), when: `after "${what}"` }
    await world.runUntilIdle()
  }
  if (world.object === undefined) return
  world.delete()
  yield { start: () => world.copy(), when: 'after its deletion' }
}

/** Yields worlds that became idle after this disturbance of their first, second, … write. */
export async function* disturbances(
  start: () => Simulation,
  happens: (world: Simulation, write: SimulatedWrite) => void,
): AsyncGenerator<{ world: Simulation; write: string }> {
  for (let at = 0; ; at++) {
    const world = start()
    const write = await runDisturbed(world, at, happens)
    if (write === undefined) return
    // A copy of the world: the process that continues knows only the stored state.
    const next = world.copy()
    await next.runUntilIdle()
    yield { world: next, write }
  }
}

export const die = (): never => {
  throw new Crash()
}

/** Returns undefined if there is no such write. */
export async function runDisturbed(
  world: Simulation,
  at: number,
  happens: (world: Simulation, write: SimulatedWrite) => void,
): Promise<string | undefined> {
  let writes = 0
  let disturbed: string | undefined
  world.before = (write) => {
    if (writes++ !== at) return
    disturbed = `${write.verb} of ${write.object.kind} ${write.object.metadata.name}`
    happens(world, write)
  }
  await world.runUntilIdle().catch((error: unknown) => {
    if (!(error instanceof Crash)) throw error
  })
  return disturbed
}

const isStep = (step: Step | readonly Step[]): step is Step => typeof step[0] === 'string'

export const asGroup = (step: Step | readonly Step[]): readonly Step[] => (isStep(step) ? [step] : step)
