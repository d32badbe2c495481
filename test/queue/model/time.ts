import type { Terms } from '../../../streams/queue/machine.ts'
import type { KeyRecord } from '../../../streams/queue/record.ts'

const LEASE_MS = 100

/** Terms, keyed by the stream's replicas. */
export const TERMS: Record<1 | 3, Terms> = {
  1: { leaseMs: LEASE_MS, replicated: false },
  3: { leaseMs: LEASE_MS, replicated: true },
}

/**
 * Time as the machines may see it, in a world where every lease ends at LEASE_MS: the delivery is stale, the lease is
 * nearly over, its holder must stop, the server's watchdog is due.
 */
export const CLOCKS = {
  inTime: 0,
  stale: LEASE_MS * 0.6,
  nearlyOver: LEASE_MS * 0.85,
  leaseEnd: LEASE_MS * 0.97,
  overdue: LEASE_MS * 10,
} as const

export const AFTER_THE_LEASE = LEASE_MS * 5

/** Brings what a machine wrote at another time back to the world where every lease ends at LEASE_MS. */
export function onCoarseClock<T>(value: T, now: number): T {
  return now === CLOCKS.inTime ? value : (shifted(value, new Map()) as T)
}

/** Keeps which parts are shared, on which the canonical form relies. */
function shifted(value: unknown, done: Map<object, object>): unknown {
  if (typeof value !== 'object' || value === null) return value
  const known = done.get(value)
  if (known) return known
  const copy: Record<string, unknown> = {}
  done.set(value, copy)
  for (const [name, part] of Object.entries(value)) copy[name] = shifted(part, done)
  if (isRunning(copy)) copy.at = LEASE_MS
  if ('since' in copy) copy['since'] = 0
  return copy
}

const isRunning = (value: Record<string, unknown>): value is Record<string, unknown> & Pick<KeyRecord, 'at'> =>
  value['state'] === 'running' && 'at' in value
