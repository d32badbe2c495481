export type { SimulatedWrite } from './dispatching.ts'
export { type Given, outcomeOf, ownedBy } from './given.ts'
export { lawsOf, type Scenario, type Step } from './laws.ts'
export { type Simulation, type SimulationOptions, simulate } from './simulation.ts'
