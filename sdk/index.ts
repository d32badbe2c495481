/**
 * The [zod](https://zod.dev) that Fairlead was built with. Use no other version for the schemas of a resource: schemas
 * of two versions of zod do not fit together.
 *
 * @example
 * import { z } from 'fairlead'
 * const size = z.int32().min(1).max(9).default(3)
 * size.parse(undefined) // => 3
 */
export { z } from 'zod'
export {
  type Act,
  type AppliedObject,
  type ClusterInfo,
  type ConditionRemoval,
  type ConditionUpdate,
  ConflictError,
  type Effect,
  type EventReport,
  type Invoke,
  type KubeObject,
  type MetricReport,
  type ObjectMeta,
  type Performed,
  type Refusal,
  RetryAfterError,
  type RunLog,
  TerminalError,
} from '#contracts'
export {
  atLeastOneOf,
  atMost,
  atMostOneOf,
  defaultFrom,
  exactlyOneOf,
  immutable,
  labelled,
  named,
  notDeletedWhile,
  onlyGroups,
  onlyGrows,
  type Rule,
  type RuleOptions,
  reserved,
  setOnce,
  together,
  unique,
} from './builders.ts'
export {
  CertificateSigningRequest,
  ConfigMap,
  CronJob,
  Deployment,
  Ingress,
  Job,
  Namespace,
  NetworkPolicy,
  Node,
  PersistentVolumeClaim,
  Pod,
  ResourceQuota,
  RoleBinding,
  type Rollout,
  rolloutOf,
  Secret,
  Service,
  ServiceAccount,
  StatefulSet,
} from './built-in-kinds.ts'
export type { Column, ConversionClient, CustomResourceDefinition, ResourceOptions, Scale } from './crd.ts'
export { breakingChanges } from './crd.ts'
export type {
  External,
  ExternalRun,
  MetricDeclaration,
  PatchedKind,
  Reconciler,
  ReconcilerOptions,
  RelatedKind,
  Run,
} from './definition.ts'
export type { ConfigDeclaration, ExternalSystem } from './external-system.ts'
export { toInvoke } from './invoke.ts'
export {
  type ActedKind,
  deploymentName,
  fieldsOf,
  type Kind,
  kind,
  type ObservedBy,
  type PlainKind,
  serviceName,
  shortName,
} from './kinds.ts'
export { grantKinds, type NamedKind, namedKind } from './named-kind.ts'
export type { ReconcileOutcome } from './outcome.ts'
export { type Readiness, readinessOf } from './readiness.ts'
export { manifest, policiesOf, type ReconcilerManifest, reconciler } from './reconciler.ts'
export { definitionsOf, isResource, type Parsed, type Resource, resource } from './resource.ts'
export type { AdmittedWrite, FieldPath, Violation } from './rule.ts'
export type { ValidationRule } from './rules.ts'
export type { Conversion, ServedVersion, VersionBody, Wire } from './served.ts'
export { removeStages, type Stage, type Staged, type StageOptions, stages } from './stages.ts'
export { type ConversionStep, mapped, moved, scaled, wrapped } from './steps.ts'
export type { Finding, WriteRequest } from './validation.ts'
export type { ResourceVersion } from './versions.ts'
