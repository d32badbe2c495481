export { type Acted, actText, editOf, type PlannedAct, toldActs } from './acts.ts'
export { asTakenBack, CONTESTED_ANNOTATION, contestOf, delayMs, type TakenField, type Taking } from './brake.ts'
export { type Difference, differences, fingerprint, sameJson } from './compare.ts'
export { contentsReturned, isConfidential, namesOf } from './confidential.ts'
export { DESIRED_ANNOTATION } from './desired.ts'
export {
  BLOCKED_AT,
  consequenceOf,
  EffectError,
  ENDED_PROCESS,
  ExternalError,
  FunctionError,
  GoneError,
  KindNotListedError,
  NamespaceTerminatingError,
  NOT_CALLED,
  type Read,
  RefusedError,
  RunTimeoutError,
  SERVER_AWAY,
  STORE_FULL,
  TooMuchStateError,
  UnsettledError,
} from './errors.ts'
export {
  type FieldsWrite,
  isAsBefore,
  isGivingBack,
  returnedBy,
  sharedWithOurs,
  withOldBefore,
  withoutKept,
  withValues,
} from './fields.ts'
export { deepFreeze, isFinalizing } from './input.ts'
export type { MetadataWrite } from './metadata.ts'
export { isDeclared, type MetricChange } from './metrics.ts'
export { takeOver } from './name-taken.ts'
export { type NoOps, NoOpWrites } from './no-ops.ts'
export { HUNDRED_YEARS_S, MAX_STATE_BYTES, OUTCOME_FIELDS, parseOutcome } from './outcome.ts'
export {
  fieldManagerOf,
  isCreatedBy,
  markedBy,
  ownershipMark,
  RECONCILER_ANNOTATION,
} from './ownership.ts'
export type { Write } from './plan.ts'
export { type Reconciled, reconciled } from './progress.ts'
export { run } from './run.ts'
export { type Contents, scrubber, WITHHELD, withoutContents, withoutValues } from './scrub.ts'
export {
  CONTESTED,
  conditionPatch,
  failurePatch,
  isFunctionFailing,
  PAUSED,
  RECONCILED,
  type StatusPatch,
} from './status.ts'
export type { Answer, Ask, Failed, Note, Observed, Written } from './vocabulary.ts'
export { called, type OwnedObject, type World } from './world.ts'
