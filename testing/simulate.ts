import type { Kind, Reconciler } from '#sdk'
import { Simulation, type SimulationOptions } from './simulation.ts'

/**
 * Returns a simulation of one object. Throws an Error if the first of `objects` is not of the kind that the function
 * reconciles. Failures of the function are in `failure`; `runUntilIdle` rejects with those that the function does not
 * intend.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object] })
 * await world.runUntilIdle()
 * world.list(ConfigMap)[0]?.data // => { 'index.html': 'hi' }
 */
export const simulate = <For extends Kind<unknown>, State = unknown>(
  reconciler: Reconciler<For>,
  options: SimulationOptions<NoInfer<For>, State>,
): Simulation<For, State> => new Simulation(reconciler, options)
