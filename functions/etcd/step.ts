import type { TlsState } from './authorities.ts'
import type { ClaimObject, PodObject } from './parts.ts'
import type { EtcdEffect } from './seen.ts'

/** What is done next, or waited for. */
export interface Step {
  /** The condition that is True meanwhile, beside Progressing. */
  condition?: 'Recovering' | 'Scaling' | 'Upgrading' | 'Maintaining'
  /** CamelCase. */
  reason: string
  message: string
  effect?: EtcdEffect
  /** Pods to create, or to change. */
  put?: readonly PodObject[]
  /** Claims to create. */
  claims?: readonly ClaimObject[]
  /** Names of pods to delete; their claims stay. */
  drop?: readonly string[]
  /** The EtcdRestore, by UID, by which the cluster begins once more. */
  begins?: string
  /** The lost quorum, by its time, from which the cluster begins to be recovered. */
  recovers?: string
  /** What is recorded of the function's own authorities. */
  tls?: TlsState
  /** Look again after so many seconds, because no event will tell. */
  after?: number
  /** Nothing goes on before somebody else has acted. */
  isStuck?: boolean
  /** Not even what exists is touched. */
  touchesNothing?: boolean
}
