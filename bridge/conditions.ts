import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import type { Reconciler, RefusedReconciler } from './reconcilers.ts'
import type { ResourceStatus } from './types.ts'

/** The bridge's condition of a Reconciler: does what it asks for reach EVENTS and its queue? */
export interface SyncedCondition {
  type: 'Synced'
  status: 'True' | 'False'
  reason: string
  message: string
  observedGeneration?: number
}

/** Another Reconciler for the same objects owns the same kinds; absent if there is none. */
export interface OverlappingCondition extends Omit<SyncedCondition, 'type'> {
  type: 'Overlapping'
}

/** What the bridge says of a Reconciler. */
export type BridgeCondition = SyncedCondition | OverlappingCondition

type StoredCondition = BridgeCondition & { lastTransitionTime: string }

export function refusedCondition({ reason, message, object }: RefusedReconciler): SyncedCondition {
  return { type: 'Synced', status: 'False', reason, message, ...generationOf(object) }
}

export const unpreparedCondition = ({ object }: Reconciler, failure: string): SyncedCondition => ({
  type: 'Synced',
  status: 'False',
  reason: 'NotPrepared',
  message: `nothing is watched or queued for it: ${failure}`,
  ...generationOf(object),
})

/** Says what is missing; that a watch was broken off and is about to go on is no news. */
export function servedCondition(
  { spec, coverageId, object }: Reconciler,
  statusesOf: (ref: ResourceRef) => readonly ResourceStatus[],
): SyncedCondition {
  const condition = (status: 'True' | 'False', reason: string, message: string): SyncedCondition => ({
    type: 'Synced',
    status,
    reason,
    message,
    ...generationOf(object),
  })
  for (const ref of [spec.for, ...spec.owns, ...spec.related]) {
    const name = resourceName(ref)
    const statuses = statusesOf(ref)
    const failures = statuses.map(({ failure, namespace }) => ({ ...failure, where: inNamespace(namespace) }))
    if (failures.some(({ kind }) => kind === 'absent'))
      return condition('False', 'ResourceNotFound', `${name} is not served by the API server: install its definition`)
    const forbidden = failures.find(({ kind }) => kind === 'forbidden')
    if (forbidden)
      return condition(
        'False',
        'Forbidden',
        `list and watch of ${name}${forbidden.where} are not allowed: ${forbidden.message}`,
      )
    const rejected = failures.find(({ kind }) => kind === 'rejected')
    if (rejected)
      return condition(
        'False',
        'Rejected',
        `${name} cannot be listed and watched${rejected.where}: ${rejected.message}`,
      )
    const isListed = statuses.length > 0 && statuses.every(({ covers }) => covers.includes(coverageId))
    if (!isListed) return condition('False', 'Listing', `${name} is not listed completely yet`)
  }
  return condition('True', 'Watching', 'every resource is listed, and its changes arrive')
}

const inNamespace = (namespace: string | undefined): string => (namespace === undefined ? '' : ` in ${namespace}`)

/** What the object says already. */
export function storedConditions(object: KubeObject): StoredCondition[] {
  const { conditions = [] } = (object.status ?? {}) as { conditions?: StoredCondition[] }
  return ['Synced', 'Overlapping'].flatMap((wanted) => conditions.find(({ type }) => type === wanted) ?? [])
}

export const areSame = (some: readonly BridgeCondition[], others: readonly BridgeCondition[]): boolean =>
  some.length === others.length && some.every((one, index) => isSame(one, others[index]))

const isSame = (a: BridgeCondition, b: BridgeCondition | undefined): boolean =>
  a.type === b?.type &&
  a.status === b.status &&
  a.reason === b.reason &&
  a.message === b.message &&
  a.observedGeneration === b.observedGeneration

export function withTransition(
  condition: BridgeCondition,
  before: StoredCondition | undefined,
  now: Date,
): StoredCondition {
  const isKept = before?.status === condition.status
  return { ...condition, lastTransitionTime: isKept ? before.lastTransitionTime : now.toISOString() }
}

const generationOf = ({ metadata }: KubeObject): { observedGeneration?: number } =>
  metadata.generation === undefined ? {} : { observedGeneration: metadata.generation }
