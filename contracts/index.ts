export { ConflictError, RetryAfterError, TerminalError } from './errors.ts'
export { EVENT_TYPES, FUNCTION_HEADER, REVISION_HEADER } from './http.ts'
export { type RunLog, withFields } from './log.ts'
export {
  apiVersionOf,
  controllerOf,
  type KubeObject,
  namespacedName,
  type ObjectMeta,
  type OwnerReference,
  type ResourceRef,
  resourceName,
} from './objects.ts'
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
export type { Runnable } from './runnable.ts'
export { type KeptStatus, keptStatus } from './status.ts'
