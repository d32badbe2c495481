/** One operation on one register, by one client. */
export interface Operation {
  kind: 'write' | 'read'
  /** Each write of a register has a value of its own. null: what the register holds before any write. */
  value: string | null
  /** When it was sent, by any clock that all clients share. */
  calledAt: number
  /** When its answer came. Left out for a write without an answer: it may have been done, at any later time, or not. */
  returnedAt?: number
}

/** From the first answer to the last call among a write and the reads that saw it. */
interface Zone {
  value: string | null
  firstReturn: number
  lastCall: number
}

/**
 * Returns the reason why no order of the operations explains the reads; undefined if the register was linearizable. Two
 * operations have an order if one returned before the other was called.
 *
 * Values are unique, so each read names its write. Then the zones decide: two of them that each span time (the first
 * answer is before the last call) must not overlap, and none that spans no time may lie within one that does (Gibbons
 * and Korach, "Testing Shared Memories", 1997). Time: n log n.
 */
export function violationOf(operations: readonly Operation[]): string | undefined {
  const writes = new Map<string | null, Operation>([
    [null, { kind: 'write', value: null, calledAt: Number.NEGATIVE_INFINITY, returnedAt: Number.NEGATIVE_INFINITY }],
  ])
  for (const write of operations.filter(({ kind }) => kind === 'write')) {
    if (writes.has(write.value)) throw new Error(`two writes of ${write.value}: each needs a value of its own`)
    writes.set(write.value, write)
  }
  const zones = new Map<string | null, Zone>()
  for (const { value, calledAt, returnedAt } of writes.values())
    zones.set(value, { value, firstReturn: returnedAt ?? Number.POSITIVE_INFINITY, lastCall: calledAt })
  for (const { kind, value, calledAt, returnedAt } of operations) {
    if (kind === 'write' || returnedAt === undefined) continue
    const write = writes.get(value)
    const zone = zones.get(value)
    if (write === undefined || zone === undefined) return `${value} was read, and never written`
    if (returnedAt < write.calledAt) return `${value} was read before it was written`
    zone.firstReturn = Math.min(zone.firstReturn, returnedAt)
    zone.lastCall = Math.max(zone.lastCall, calledAt)
  }
  return conflictAmong([...zones.values()].filter(({ firstReturn }) => firstReturn !== Number.POSITIVE_INFINITY))
}

/** A write without an answer that no read saw takes part in nothing. */
function conflictAmong(zones: readonly Zone[]): string | undefined {
  const spans = zones.filter(isSpan).sort((a, b) => a.firstReturn - b.firstReturn)
  let reach: Zone | undefined
  for (const span of spans) {
    if (reach && span.firstReturn < reach.lastCall) return inTurn(reach, span)
    if (reach === undefined || span.lastCall > reach.lastCall) reach = span
  }
  const moments = zones.filter((zone) => !isSpan(zone)).sort((a, b) => a.lastCall - b.lastCall)
  let next = 0
  for (const span of spans) {
    while ((moments[next]?.lastCall ?? Number.POSITIVE_INFINITY) <= span.firstReturn) next++
    for (let at = next; (moments[at]?.lastCall ?? Number.POSITIVE_INFINITY) < span.lastCall; at++) {
      const moment = moments[at]
      if (moment && moment.firstReturn < span.lastCall) return inTurn(span, moment)
    }
  }
  return undefined
}

const isSpan = ({ firstReturn, lastCall }: Zone): boolean => firstReturn < lastCall

const inTurn = (one: Zone, other: Zone): string =>
  `${one.value} and ${other.value} were each the latest value before and after the other: one of two reads was stale, or a write was lost`
