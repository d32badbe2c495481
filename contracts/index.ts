export { coverageToken } from './coverage.ts'
export { ConflictError, FencedError, RetryAfterError, TerminalError } from './errors.ts'
export { type ObjectSelector, parseFieldSelector } from './field-selector.ts'
export {
  apiVersionOf,
  controllerOf,
  type KubeObject,
  type ObjectMeta,
  type OwnerReference,
  type ResourceRef,
  resourceName,
} from './objects.ts'
export { isRefused, LONGEST_RECONCILER_NAME, type Refused, readReconciler } from './read-reconciler.ts'
export {
  type Backoff,
  finalizerOf,
  holdsFinalizer,
  isOfMetadata,
  keepsStatus,
  type OwnedResource,
  PAUSED_ANNOTATION,
  RECONCILERS,
  type ReconcilerSpec,
  type RelatedResource,
  reconcilerSpec,
  type SelectedResource,
  SYSTEM_NAMESPACE,
  userNameOf,
} from './reconciler.ts'
export { namesAt, type RelatedLookup, relatedLookup, relation, selectionOf } from './related.ts'
export {
  type ConditionUpdate,
  type EventReport,
  type Invoke,
  kindName,
  type Outcome,
  type RunContext,
  type RunInput,
  type RunLog,
} from './run.ts'
export { type LabelSelector, type Labels, parseSelector, SelectorError } from './selector.ts'
export { type KeptStatus, keptStatus } from './status.ts'
export { type Span, spanAfter, traceparentOf } from './trace.ts'
