import type { KubeObject } from '#contracts'
import type { ReconcilerSpec } from '#spec'

/** The condition Ready of a Reconciler. */
export interface Ready {
  status: 'True' | 'False'
  reason: string
  message?: string
}

export const ready = ({ dryRun }: ReconcilerSpec): Ready =>
  dryRun
    ? { status: 'True', reason: 'DryRun', message: 'spec.dryRun: runs write nothing, and log what they would' }
    : { status: 'True', reason: 'Serving' }

export const PAUSED: Ready = {
  status: 'False',
  reason: 'Paused',
  message: 'spec.paused: nothing runs until it is false',
}

export const NOT_IN_EVENTS: Ready = {
  status: 'False',
  reason: 'NotInEvents',
  message: 'EVENTS does not have this Reconciler: nothing runs until a bridge has stored it again',
}

export const identityTaken = (identity: string, holder: string): Ready => ({
  status: 'False',
  reason: 'IdentityTaken',
  message: `nothing runs: the older Reconciler ${holder} has the identity ${identity} too. If this one replaces it: kubectl delete reconciler ${holder}. If not, give this one another spec.identity`,
})

const UNREACHABLE = 'FunctionUnreachable'

export const unreachable = (message: string): Ready => ({ status: 'False', reason: UNREACHABLE, message })

/**
 * Whether the Reconciler shows an unreachable function for its present generation. A changed specification may have
 * another address.
 */
export function showsUnreachable({ metadata, status }: Pick<KubeObject, 'metadata' | 'status'>): boolean {
  const { conditions = [] } = (status ?? {}) as { conditions?: { reason?: string; observedGeneration?: number }[] }
  return conditions.some((one) => one.reason === UNREACHABLE && one.observedGeneration === metadata.generation)
}
