export { coverageToken } from './coverage.ts'
export { ConflictError, FencedError, RetryAfterError, TerminalError } from './errors.ts'
export { type ObjectSelector, parseFieldSelector } from './field-selector.ts'
export { FUNCTION_HEADER, REVISION_HEADER } from './http.ts'
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
  identityOf,
  isOfMetadata,
  keepsStatus,
  METADATA_MANAGERS,
  metadataManagerOf,
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
export { isRevision, owedRevision, type Revision, revisionsOf } from './revisions.ts'
export {
  type ConditionUpdate,
  type EventReport,
  type Invoke,
  kindName,
  type Outcome,
  type OwnMetadata,
  type RunContext,
  type RunInput,
  type RunLog,
} from './run.ts'
export { type LabelSelector, type Labels, parseSelector, SelectorError } from './selector.ts'
export { shownUrl } from './shown-url.ts'
export { type KeptStatus, keptStatus } from './status.ts'
export { type Span, spanAfter, traceparentOf } from './trace.ts'
