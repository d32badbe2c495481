export interface BackoffTerms {
  initialSeconds: number
  maxSeconds: number
  /** The largest share of the delay that is added or subtracted at random, from 0 to 1. */
  jitter: number
}

export const DEFAULT_BACKOFF: BackoffTerms = { initialSeconds: 0.25, maxSeconds: 1000, jitter: 0.1 }

/**
 * Returns the delay in milliseconds after a failed run, when `attempt` failed runs preceded it. `random` returns 0 ≤ x
 * < 1.
 */
export function backoffMs(attempt: number, terms: BackoffTerms, random: () => number): number {
  const doubled = terms.initialSeconds * 2 ** Math.min(attempt, 64)
  const spread = 1 + terms.jitter * (2 * random() - 1)
  return Math.round(1000 * Math.min(doubled, terms.maxSeconds) * spread)
}
