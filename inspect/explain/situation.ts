import type { KubeObject, ResourceRef } from '#contracts'
import type { Row } from '../keys/rows.ts'

/** What the API server and NATS know of one object: plain data, from which everything else is concluded. */
export interface Situation {
  /** RFC 3339. */
  now: string
  target: Target
  /** Why the API server cannot be asked. Left out: it answers. */
  apiAway?: string
  /** Why NATS cannot be asked. Left out: it answers. */
  natsAway?: string
  /** Whether the API server has that kind; undefined: not known. */
  isKindServed?: boolean
  /** The newest that is known. */
  object?: KubeObject
  /** The version of the object in EVENTS. Undefined: none, or not known. */
  storedVersion?: string
  /** Where else objects of its name are, as `namespace/name`. */
  elsewhere: string[]
  /** The namespace of the object is being deleted. */
  isNamespaceTerminating?: boolean
  /** Those that are for this kind. */
  reconcilers: ReconcilerSituation[]
  /** Finalizers of all Reconcilers that exist; undefined: not known. */
  finalizers?: string[]
  /** Kubernetes Events about the object, the latest first. */
  events: ReportedEvent[]
  /** What is in DEAD of the object or its keys. */
  letters: Letter[]
}

export interface Target {
  kind: string
  ref: ResourceRef
  namespace?: string
  name: string
}

/** One Reconciler, and what it has to do with the object. */
export interface ReconcilerSituation {
  object: KubeObject
  /** What WORK has of the key; undefined: not known. */
  rows?: Row[]
  /** Whether a process waits for keys or runs one; undefined: not known. */
  isServed?: boolean
  /** `create pods`, `patch deployments.apps`: what its account may not do here; undefined: not known. */
  missingRights?: string[]
  /** The last one that is recorded. Undefined: none, or not known. */
  lastRun?: LastRun
  /** Objects that the reconciler has created for the object, or that are retained for it. */
  owned: Relative[]
  /** Objects that a field of the object names. */
  named: Relative[]
}

export interface LastRun {
  /** In RUNS. */
  run: number
  endedAt: string
  tookMs: number
  waitedMs: number
  result: string
  message?: string
  because: string
  /** `apply Deployment shop/web` */
  writes: string[]
  /** What it returned in the end: kind, namespace and name. */
  declared: Pick<Relative, 'kind' | 'namespace' | 'name'>[]
}

export interface Relative {
  kind: string
  ref: ResourceRef
  namespace?: string
  name: string
  /** Undefined: it does not exist. */
  object?: KubeObject
}

export interface ReportedEvent {
  type: string
  reason: string
  message: string
  count: number
  /** RFC 3339. */
  last: string
  /** The controller that reports it. */
  by?: string
}

export interface Letter {
  id: number
  reconciler?: string
  reason: string
  detail: string
}

export interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
  lastTransitionTime?: string
  observedGeneration?: number
}

export function conditionsOf(object: KubeObject | undefined): Condition[] {
  const { conditions } = (object?.status ?? {}) as { conditions?: unknown }
  return Array.isArray(conditions) ? (conditions as Condition[]) : []
}

export const conditionOf = (object: KubeObject | undefined, type: string): Condition | undefined =>
  conditionsOf(object).find((condition) => condition.type === type)
