export { type AdmissionCase, admissionLawsOf } from './admission-laws.ts'
export {
  deploymentsRun,
  type JobOptions,
  jobsRun,
  othersSet,
  type RunOptions,
  statefulSetsRun,
} from './controllers.ts'
export { type ConversionCase, conversionLawsOf } from './conversion-laws.ts'
export type { ExternalModel } from './external.ts'
export { type Given, given, outcomeOf, ownedBy } from './given.ts'
export { lawsOf } from './laws.ts'
export { changeText, type ReplayedCall, type ReplayedRun, recordsIn, replayOf, replayRun } from './replay.ts'
export type { Scenario, Step } from './scenario.ts'
export type { SimulatedWrite } from './simulated-run.ts'
export type { Controller, Simulation, SimulationOptions } from './simulation.ts'
export { simulate } from './simulation.ts'
