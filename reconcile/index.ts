export { asTakenBack, type Taking } from './brake.ts'
export { contentsReturned, isConfidential } from './confidential.ts'
export { consequenceOf } from './consequence.ts'
export { CONTESTED_ANNOTATION, contestOf, delayMs, type TakenField } from './contest.ts'
export { fingerprint, isRecord, sameJson } from './covers.ts'
export { DESIRED_ANNOTATION } from './desired.ts'
export { type Difference, differences } from './diff.ts'
export {
  EffectError,
  ExternalError,
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
export type { MetadataWrite } from './metadata.ts'
export { takeOver } from './name-taken.ts'
export { HUNDRED_YEARS_S, OUTCOME_FIELDS, parseOutcome } from './outcome.ts'
export {
  fieldManagerOf,
  isCreatedBy,
  markedBy,
  ownershipMark,
  RECONCILER_ANNOTATION,
} from './ownership.ts'
export type { Write } from './plan.ts'
export { type Reconciled, reconciled } from './progress.ts'
export { MAX_STATE_BYTES } from './readable.ts'
export { WITHHELD, withoutContents, withoutValues } from './recorded.ts'
export { CONFIDENTIAL, type Contents, scrubber } from './scrub.ts'
export type { Settled } from './settled.ts'
export { SettledWrites } from './settled-writes.ts'
export { CONTESTED, conditionPatch, failurePatch, PAUSED, RECONCILED, type StatusPatch } from './status.ts'
export type { Step } from './step.ts'
export { type Read, TooMuchStateError } from './too-much-state.ts'
export type { Answer, Ask, Failed, Note, Observed, Written } from './vocabulary.ts'
export { called, type OwnedObject, type World } from './world.ts'
