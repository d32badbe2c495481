import type { Kind, Reconciler } from '#sdk'
import { Crash, type SimulatedWrite } from './simulated-run.ts'
import { Simulation, type SimulationOptions } from './simulation.ts'

/**
 * A change from outside of the function: its name in messages, and the change.
 *
 * @example
 * import type { Step } from 'fairlead/testing'
 * import type { Website } from './website.ts'
 * const grows: Step<typeof Website> = ['the website grows', (world) => world.edit({ spec: { replicas: 3 } })]
 * grows[0] // => 'the website grows'
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
 * import type { Scenario } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const scenario: Scenario<typeof Website> = {
 *   objects: [object],
 *   steps: [['its ConfigMap is deleted', (world) => world.delete(ConfigMap)]],
 * }
 * scenario.steps?.length // => 1
 */
export interface Scenario<For extends Kind<unknown> = Kind<unknown>, State = unknown>
  extends SimulationOptions<For, State> {
  /** What happens, in this order; changes that stand in a list of their own come in any order. */
  steps?: readonly (Step<For, State> | readonly Step<For, State>[])[]
  /** What counts at an end that effects reach in another way. Left out: all objects, and the state of the external system. */
  endOf?(world: Simulation<For, State>): unknown
}

interface Start {
  /** A world of one's own in which there may be something to do. */
  start: () => Simulation
  when: string
}

/** The world as it is at first, after each step, and when its object is deleted in the end. */
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

/** Worlds that became idle although that happened before their first, second, … write. */
export async function* disturbances(
  start: () => Simulation,
  happens: (world: Simulation, write: SimulatedWrite) => void,
): AsyncGenerator<{ world: Simulation; write: string }> {
  for (let at = 0; ; at++) {
    const world = start()
    const write = await runDisturbed(world, at, happens)
    if (write === undefined) return
    // Whoever goes on knows nothing but what is stored.
    const next = world.copy()
    await next.runUntilIdle()
    yield { world: next, write }
  }
}

export const die = (): never => {
  throw new Crash()
}

/** Undefined: it makes no such write. */
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
