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
  type AppliedObject,
  type ConditionRemoval,
  type ConditionUpdate,
  ConflictError,
  type Effect,
  type EventReport,
  type Invoke,
  type KubeObject,
  type ObjectMeta,
  type Performed,
  type Refusal,
  RetryAfterError,
  type RunLog,
  TerminalError,
} from '#contracts'
export {
  ConfigMap,
  CronJob,
  Deployment,
  Ingress,
  Job,
  Namespace,
  NetworkPolicy,
  PersistentVolumeClaim,
  Pod,
  ResourceQuota,
  RoleBinding,
  Secret,
  Service,
  ServiceAccount,
  StatefulSet,
} from './built-in-kinds.ts'
export { breakingChanges } from './compatibility.ts'
export type { Column, CustomResourceDefinition, ResourceOptions, Scale, ServedVersion } from './crd.ts'
export type { External, ExternalSystem, Reconciler, ReconcilerOptions, RelatedKind, Run } from './definition.ts'
export { toInvoke } from './invoke.ts'
export { type Kind, kind, type ObservedBy, type PlainKind } from './kinds.ts'
export { manifest, type ReconcilerManifest } from './manifest.ts'
export { deploymentName, serviceName, shortName } from './names.ts'
export type { ReconcileOutcome } from './outcome.ts'
export { type Rollout, rolloutOf } from './readiness.ts'
export { reconciler } from './reconciler.ts'
export { definitionsOf, type Parsed, type Resource, resource } from './resource.ts'
export type { ValidationRule } from './rules.ts'
