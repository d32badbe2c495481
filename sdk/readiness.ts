import type { Deployment, ObservedBy } from './kinds.ts'

/** How far a Deployment is with what it was last told. */
export interface Rollout {
  /** Replicas that are ready, old ones included. */
  ready: number
  /** All replicas are ready, and of the latest template. */
  isComplete: boolean
  /** Its controller has given up: nothing has come of it within its progress deadline. */
  isStuck: boolean
}

export function rolloutOf(deployment: ObservedBy<typeof Deployment> | undefined): Rollout {
  const { metadata, spec, status } = deployment ?? {}
  const replicas = spec?.replicas ?? 1
  const ready = status?.readyReplicas ?? 0
  const isSeen = metadata !== undefined && (status?.observedGeneration ?? 0) >= (metadata.generation ?? 0)
  const isUpdated = (status?.updatedReplicas ?? 0) >= replicas && (status?.replicas ?? 0) <= replicas
  const progressing = status?.conditions?.find(({ type }) => type === 'Progressing')
  return {
    ready,
    isComplete: isSeen && isUpdated && ready >= replicas,
    isStuck: progressing?.reason === 'ProgressDeadlineExceeded',
  }
}
