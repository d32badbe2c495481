export { coverageId } from './coverage.ts'
export { type ObjectSelector, parseFieldSelector } from './field-selector.ts'
export {
  CONTESTS,
  contestAnnotationOf,
  finalizerOf,
  finalizerOfReconciler,
  finalizersWithout,
  holdsFinalizer,
  identityOf,
  METADATA_MANAGERS,
  metadataManagerOf,
  RECONCILER_LABEL,
  reconcilerFinalizers,
  reconcilerLabel,
} from './names.ts'
export { isNamedAs, isOwnedBy, type Owner, ownerOf, RETAINED_FOR, retainedFor, retainerOf } from './owner.ts'
export { isRefused, LONGEST_RECONCILER_NAME, type Refused, readReconciler } from './read-reconciler.ts'
export {
  type Backoff,
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
export {
  crossesNamespaces,
  isByField,
  isNamedInBody,
  namesAt,
  namesOthers,
  namespacesAt,
  namespacesNear,
  type RelatedLookup,
  relatedLookup,
  relation,
  selectionOf,
} from './related.ts'
export { isRevision, owedRevision, type Revision, revisionsOf } from './revisions.ts'
export { type LabelSelector, type Labels, labelsOfSelector, parseSelector, SelectorError } from './selector.ts'
export { holderOf, nameOfShard, RELEASED, SHARD_LABEL, shardOf } from './shard.ts'
export { shownUrl } from './shown-url.ts'
