/**
 * How many keys a worker holds at once. A process that is short of CPU loses leases of runs that wait for their turn. With
 * fewer at once each run ends sooner, so the process does useful work instead of the same work again.
 */
export interface Capacity {
  readonly slots: number
  /** Of the slots. */
  readonly limit: number
  /** Moment of the last cut, in milliseconds. */
  readonly cutAt: number
}

/** So that functions that never return cannot take all that is left. */
const LEAST_SHARE = 1 / 8

export const fullCapacity = (slots: number): Capacity => ({ slots, limit: slots, cutAt: Number.NEGATIVE_INFINITY })

/** A lease was lost: half as many, once for all leases that end in the same period. */
export function afterLoss(capacity: Capacity, now: number, leaseMs: number): Capacity {
  const { slots, limit, cutAt } = capacity
  if (now - cutAt < leaseMs) return capacity
  return { slots, limit: Math.max(Math.ceil(slots * LEAST_SHARE), Math.floor(limit / 2)), cutAt: now }
}

/** A run has ended within its lease: one more. */
export const afterRun = (capacity: Capacity): Capacity =>
  capacity.limit === capacity.slots ? capacity : { ...capacity, limit: capacity.limit + 1 }
