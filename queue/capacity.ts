/**
 * The number of keys that a worker holds at once. A process that is short of CPU loses the leases of runs that wait for
 * CPU time. With fewer runs at once, each run ends sooner, so the process makes progress instead of repeating runs.
 */
export interface Capacity {
  readonly slots: number
  /** The number of slots that may be in use, at most `slots`. */
  readonly limit: number
  /** The moment of the last cut, in milliseconds. */
  readonly cutAt: number
}

/**
 * The smallest share of slots that stays allowed, so that functions that never return cannot occupy all allowed slots.
 */
const LEAST_SHARE = 1 / 8

export const fullCapacity = (slots: number): Capacity => ({ slots, limit: slots, cutAt: Number.NEGATIVE_INFINITY })

/** Returns the capacity after a lost lease: half, once for all leases that expire within one lease period. */
export function afterLoss(capacity: Capacity, now: number, leaseMs: number): Capacity {
  const { slots, limit, cutAt } = capacity
  if (now - cutAt < leaseMs) return capacity
  return { slots, limit: Math.max(Math.ceil(slots * LEAST_SHARE), Math.floor(limit / 2)), cutAt: now }
}

/** Returns the capacity after a run that ended within its lease: one more slot. */
export const afterRun = (capacity: Capacity): Capacity =>
  capacity.limit === capacity.slots ? capacity : { ...capacity, limit: capacity.limit + 1 }
