import type { TlsState } from './authorities.ts'
import type { PodObject } from './parts.ts'
import type { EtcdEffect } from './seen.ts'

/** The next change, or the reason to wait. */
export interface Step {
  /** The condition that is True meanwhile, besides Progressing. Left out: that of the rule. */
  condition?: 'Recovering' | 'Scaling' | 'Upgrading' | 'Maintaining'
  /** The reason in CamelCase. */
  reason: string
  message: string
  effect?: EtcdEffect
  /** Pods to create, with their claims, or to change. */
  put?: readonly PodObject[]
  /** The names of pods to delete. Their claims stay. */
  drop?: readonly string[]
  /** The data with which the cluster begins again, recorded in the status. */
  begins?: { restoring: string } | { recovering: string }
  /** The recorded state of the function's own authorities. */
  tls?: TlsState
  /** Reconcile again after this many seconds, because no event will report the change. */
  after?: number
  /** True: no step is possible until a user has acted. */
  isStuck?: boolean
  /** True: existing objects stay unchanged as well. */
  touchesNothing?: boolean
}

/** Returns a step that changes nothing, not even existing objects, until a user has acted. */
export const refuse = (reason: string, message: string): Step => ({
  reason,
  message,
  isStuck: true,
  touchesNothing: true,
})

/** Returns the step with a reason to wait, without its change. */
export const wait = (step: Step, why: string): Step => ({ ...step, message: `${step.message}; ${why}`, after: 2 })

export const said = (members: readonly { name: string }[]): string => members.map(({ name }) => name).join(', ')
