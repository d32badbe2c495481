import type { Lane } from './record.ts'

/** What a worker knows about one lane. */
export interface LaneLoad {
  /** The number of keys that the worker holds. */
  busy: number
  /** The number of tokens that the server had behind the last delivered one. 0 also if nothing is known. */
  backlog: number
}

export interface Load {
  slots: number
  /** The number of free slots, limited by the free slots of the process. */
  free: number
  high: LaneLoad
  low: LaneLoad
  /** The lane of the token that came last. */
  lastLane: Lane
}

interface Allowances extends Record<Lane, number> {
  /**
   * The number of changes that may take a slot without a token. They leave free the slots that are kept for the low
   * lane.
   */
  direct: number
}

/**
 * Returns how many tokens of each lane may be on their way. While both lanes have work, a quarter of the slots belongs
 * to the low lane, and a worker with one slot serves the lanes in turn. Without low work the high lane takes all slots.
 * The low lane takes at most three quarters, so that a change never waits for the end of a resync.
 *
 * A lane whose backlog is unknown may have one token on its way although no slot is kept for it, because only a
 * delivery shows that it has work. If no slot is free when the token arrives, the worker gives it back, once: from then
 * on, the lane is known to have work.
 */
export function allowances({ slots, free, high, low, lastLane }: Load): Allowances {
  const share = Math.max(1, Math.floor(slots / 4))
  const turn = slots > 1 || lastLane === 'high' ? share : 0
  const lowest = high.backlog > 0 ? turn : slots > 1 ? slots - share : 1
  const forLow = Math.max(0, Math.min(free, low.backlog, lowest - low.busy))
  const forHigh = Math.max(0, free - forLow)
  return {
    low: low.backlog > 0 ? forLow : Number(low.busy < lowest),
    high: high.backlog > 0 || low.busy === 0 ? forHigh : Math.max(1, forHigh),
    direct: forHigh,
  }
}

/** One worker among those of a process. */
export interface Sharer {
  readonly busy: number
  /** The number of existing tokens that are on their way to this worker. */
  readonly promised: number
  poke(): void
}

/** The keys that a process holds at once, of all Reconcilers together. */
export class ProcessSlots {
  readonly #limit: number
  /** The workers, in the order in which they are offered slots. */
  readonly #sharers = new Set<Sharer>()
  #scarce = false

  constructor(limit: number) {
    this.#limit = limit
  }

  join(sharer: Sharer): void {
    this.#sharers.add(sharer)
  }

  leave(sharer: Sharer): void {
    this.#sharers.delete(sharer)
    this.#pokeAll()
  }

  /** Returns how many of `wanted` slots this worker can have now. */
  free(wanted: number, asker: Sharer): number {
    let free = this.#limit
    for (const sharer of this.#sharers) free -= sharer.busy + (sharer === asker ? 0 : sharer.promised)
    if (free < wanted) this.#scarce = true
    return Math.max(0, Math.min(wanted, free))
  }

  /** Releases a slot. When slots are scarce, the other workers are offered the slot before the worker that had it. */
  released(by: Sharer): void {
    if (!this.#scarce) return by.poke()
    if (this.#sharers.delete(by)) this.#sharers.add(by)
    this.#pokeAll()
  }

  #pokeAll(): void {
    this.#scarce = false
    for (const sharer of this.#sharers) sharer.poke()
  }
}
