export interface BackoffTerms {
  initialSeconds: number
  maxSeconds: number
  /** Share of the delay by which it is spread to both sides, 0 to 1. */
  jitter: number
}

export const DEFAULT_BACKOFF: BackoffTerms = { initialSeconds: 0.25, maxSeconds: 1000, jitter: 0.1 }

/** Delay after the failure of a run that `attempt` failed runs preceded. `random` gives 0 ≤ x < 1. */
export function backoffMs(attempt: number, terms: BackoffTerms, random: () => number): number {
  const doubled = terms.initialSeconds * 2 ** Math.min(attempt, 64)
  const spread = 1 + terms.jitter * (2 * random() - 1)
  return Math.round(1000 * Math.min(doubled, terms.maxSeconds) * spread)
}
