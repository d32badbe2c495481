export { consequenceOf } from './consequence.ts'
export { fingerprint, isRecord, sameJson } from './covers.ts'
export { type Difference, differences } from './diff.ts'
export {
  FunctionError,
  GoneError,
  NamespaceTerminatingError,
  RefusedError,
  RunTimeoutError,
  UnsettledError,
} from './errors.ts'
export { isFinalizing } from './finalizer.ts'
export { deepFreeze } from './freeze.ts'
export { next, start } from './machine.ts'
export { keepNewest } from './newest.ts'
export { HUNDRED_YEARS_S } from './outcome.ts'
export { statusTarget, type Write } from './plan.ts'
export { type Reconciled, reconciled } from './progress.ts'
export { SettledWrites } from './settled-writes.ts'
export { conditionPatch, failurePatch, PAUSED, RECONCILED, type StatusPatch } from './status.ts'
export type { Step } from './step.ts'
export type { Answer, Ask, Failed, Note, Observed, Settled, Written } from './vocabulary.ts'
export { called, isControlledBy, nameTaken, type OwnedObject, type World } from './world.ts'
