import type { Lane } from './record.ts'

/** What a worker knows of one lane. */
export interface LaneLoad {
  /** Keys in hand. */
  busy: number
  /** Tokens that the server had behind the last one that it delivered; 0 also when nothing is known. */
  backlog: number
}

export interface Load {
  slots: number
  /** Of the slots, as far as the process has room at all. */
  free: number
  high: LaneLoad
  low: LaneLoad
  /** Of the token that came last. */
  lastLane: Lane
}

interface Allowances extends Record<Lane, number> {
  /** Changes that may take a slot without a token, so that they do not take those that are kept for the low lane. */
  direct: number
}

/**
 * How many tokens of each lane may be on their way. While both lanes have work, a quarter of the slots is the low
 * lane's, and a worker with one slot serves them in turn; the high lane takes all slots when there is no low work, and the
 * low lane all but a quarter, so that a change never waits for the end of a resync.
 *
 * A lane of which nothing is known may have a token on its way although no slot is kept for it: there is no other way
 * to learn that it has work. If no slot is free when it comes it is given back, once: from then on the lane has work.
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
  /** Tokens on their way that are known to exist. */
  readonly promised: number
  poke(): void
}

/** The keys that a process holds at once, of all Reconcilers together. */
export class ProcessSlots {
  readonly #limit: number
  /** In the order in which they are asked. */
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

  /** How many of `wanted` slots there are for this worker now. */
  free(wanted: number, asker: Sharer): number {
    let free = this.#limit
    for (const sharer of this.#sharers) free -= sharer.busy + (sharer === asker ? 0 : sharer.promised)
    if (free < wanted) this.#scarce = true
    return Math.max(0, Math.min(wanted, free))
  }

  /** When slots are scarce, the other workers are asked before the one that had this slot. */
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
