import type { Deployment, StatefulSet } from './built-in-kinds.ts'
import type { ObservedBy } from './kinds.ts'

/**
 * The progress of a Deployment or a StatefulSet towards its latest spec.
 *
 * @example
 * import { type Rollout, rolloutOf } from 'fairlead'
 * const missing: Rollout = rolloutOf(undefined)
 * missing.isComplete // => false
 */
export interface Rollout {
  /** Ready replicas, those of older templates included. */
  ready: number
  /**
   * All replicas are ready and have the latest template. A StatefulSet with a partition counts from its partition on.
   */
  isComplete: boolean
  /** The Deployment has exceeded its progress deadline. Always false for a StatefulSet, which has no deadline. */
  isStuck: boolean
}

/**
 * Returns the progress of a Deployment or a StatefulSet. `undefined`, an object that does not exist yet, is not
 * complete and has 0 ready replicas.
 *
 * @example
 * import { rolloutOf } from 'fairlead'
 * rolloutOf(undefined) // => { ready: 0, isComplete: false, isStuck: false }
 */
export function rolloutOf(
  workload: ObservedBy<typeof Deployment> | ObservedBy<typeof StatefulSet> | undefined,
): Rollout {
  const { metadata, spec, status } = workload ?? {}
  const replicas = spec?.replicas ?? 1
  const ready = status?.readyReplicas ?? 0
  const isSeen = metadata !== undefined && (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0)
  const updated = (status?.updatedReplicas ?? 0) + partitionOf(spec)
  const isUpdated = updated >= replicas && (status?.replicas ?? 0) <= replicas
  const progressing = status?.conditions?.find(({ type }) => type === 'Progressing')
  return {
    ready,
    isComplete: isSeen && isUpdated && ready >= replicas,
    isStuck: progressing?.reason === 'ProgressDeadlineExceeded',
  }
}

/** The number of replicas that keep the older template. */
const partitionOf = (spec: ObservedBy<typeof Deployment>['spec'] | ObservedBy<typeof StatefulSet>['spec']): number =>
  (spec !== undefined && 'updateStrategy' in spec && spec.updateStrategy?.rollingUpdate?.partition) || 0
