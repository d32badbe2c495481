export { z } from 'zod'
export {
  type AppliedObject,
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
export { breakingChanges } from './compatibility.ts'
export type { Column, CustomResourceDefinition, ResourceOptions, Scale, ServedVersion } from './crd.ts'
export type { External, ExternalSystem, Reconciler, ReconcilerOptions, RelatedKind, Run } from './definition.ts'
export { toInvoke } from './invoke.ts'
export {
  ConfigMap,
  CronJob,
  Deployment,
  Ingress,
  Job,
  type Kind,
  kind,
  Namespace,
  NetworkPolicy,
  type ObservedBy,
  PersistentVolumeClaim,
  type PlainKind,
  Pod,
  ResourceQuota,
  RoleBinding,
  Secret,
  Service,
  ServiceAccount,
  StatefulSet,
} from './kinds.ts'
export { manifest, type ReconcilerManifest } from './manifest.ts'
export { deploymentName, serviceName, shortName } from './names.ts'
export type { ReconcileOutcome } from './outcome.ts'
export { type Rollout, rolloutOf } from './readiness.ts'
export { reconciler } from './reconciler.ts'
export { definitionsOf, type Parsed, type Resource, resource } from './resource.ts'
export type { ValidationRule } from './rules.ts'
