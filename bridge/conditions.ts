import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { nameOfShard, RELEASED, shardOf } from '#spec'
import type { AdmissionFailure } from './admission.ts'
import type { Reconciler, RefusedReconciler } from './reconcilers.ts'
import type { ResourceStatus } from './types.ts'

/** The bridge's condition of a Reconciler: whether its resources reach EVENTS and its keys reach its queue. */
export interface SyncedCondition {
  type: 'Synced'
  status: 'True' | 'False'
  reason: string
  message: string
  observedGeneration?: number
}

/** The condition that another Reconciler for the same objects owns the same kinds. Absent if there is none. */
export interface OverlappingCondition extends Omit<SyncedCondition, 'type'> {
  type: 'Overlapping'
}

/** The conditions of a Reconciler that the bridge writes. */
export type BridgeCondition = SyncedCondition | OverlappingCondition

type StoredCondition = BridgeCondition & { lastTransitionTime: string }

export function refusedCondition({ reason, message, object }: RefusedReconciler): SyncedCondition {
  return { type: 'Synced', status: 'False', reason, message, ...generationOf(object) }
}

export const unpreparedCondition = (
  { object }: Pick<Reconciler, 'object'>,
  { reason, message }: AdmissionFailure,
): SyncedCondition => ({
  type: 'Synced',
  status: 'False',
  reason,
  message: `nothing is watched or queued for it: ${message}`,
  ...generationOf(object),
})

/**
 * Returns the condition Synced. It names the missing definition or permission. It ignores a watch that was interrupted
 * and is about to continue.
 */
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
    const statuses = statusesOf(ref).filter(({ namespace }) => isIn(namespace, spec.for.namespaces))
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

/** Returns the status of a Reconciler that `shard` no longer serves, and the shard of its label does not serve yet. */
export function releasedStatus(object: KubeObject, shard: string, now: Date): object {
  const message = `${nameOfShard(shard)} has released it, and ${nameOfShard(shardOf(object))} has not taken it up yet`
  const reasons: Record<string, string> = { Synced: RELEASED, Ready: 'NotServed' }
  const { conditions = [] } = (object.status ?? {}) as { conditions?: StoredCondition[] }
  const released = conditions
    .filter(({ type }) => type !== 'Overlapping')
    .map((before) => {
      const reason = reasons[before.type]
      return reason === undefined
        ? before
        : withTransition({ ...before, status: 'False', reason, message }, before, now)
    })
  return { shard: null, conditions: released }
}

/** Whether a watch concerns the Reconciler: others may ask for the same resource in other namespaces. */
const isIn = (namespace: string | undefined, namespaces: readonly string[] | undefined): boolean =>
  namespaces === undefined || namespace === undefined || namespaces.includes(namespace)

const inNamespace = (namespace: string | undefined): string => (namespace === undefined ? '' : ` in ${namespace}`)

/** Returns the conditions that the object has. */
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
