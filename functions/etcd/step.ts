import type { TlsState } from './authorities.ts'
import type { PodObject } from './parts.ts'
import type { EtcdEffect } from './seen.ts'

/** What is done next, or waited for. */
export interface Step {
  /** The condition that is True meanwhile, beside Progressing. Left out: that of the rule. */
  condition?: 'Recovering' | 'Scaling' | 'Upgrading' | 'Maintaining'
  /** CamelCase. */
  reason: string
  message: string
  effect?: EtcdEffect
  /** Pods to create, with their claims, or to change. */
  put?: readonly PodObject[]
  /** Names of pods to delete; their claims stay. */
  drop?: readonly string[]
  /** By what the cluster begins once more, as the status records it. */
  begins?: { restoring: string } | { recovering: string }
  /** What is recorded of the function's own authorities. */
  tls?: TlsState
  /** Look again after so many seconds, because no event will tell. */
  after?: number
  /** Nothing goes on before somebody else has acted. */
  isStuck?: boolean
  /** Not even what exists is touched. */
  touchesNothing?: boolean
}

/** Before somebody else has acted, not even what exists is touched. */
export const refuse = (reason: string, message: string): Step => ({
  reason,
  message,
  isStuck: true,
  touchesNothing: true,
})

/** The step is not made yet. */
export const wait = (step: Step, why: string): Step => ({ ...step, message: `${step.message}; ${why}`, after: 2 })

export const said = (members: readonly { name: string }[]): string => members.map(({ name }) => name).join(', ')
