export { ConflictError, RetryAfterError, TerminalError } from './errors.ts'
export { type RunLog, withFields } from './log.ts'
export {
  apiVersionOf,
  controllerOf,
  EVENT_TYPES,
  FUNCTION_HEADER,
  type KeptStatus,
  type KubeObject,
  keptStatus,
  namespacedName,
  type ObjectMeta,
  type OwnerReference,
  REVISION_HEADER,
  type ResourceRef,
  resourceName,
} from './objects.ts'
export type { Runnable } from './run.ts'
export {
  type AppliedObject,
  type ConditionRemoval,
  type ConditionUpdate,
  type Effect,
  type EventReport,
  type FunctionInput,
  type Invoke,
  kindName,
  type Outcome,
  type OwnMetadata,
  type Performed,
  type PerformInput,
  type ReadInput,
  type Refusal,
  type RunContext,
  type RunInput,
} from './run.ts'
export type {
  Cause,
  FieldChange,
  InputRecord,
  LapRecord,
  LogLine,
  LogRecord,
  ObjectVersion,
  RunRecord,
  RunResult,
  WriteRecord,
} from './run-record.ts'
