import type { Outbox } from '#nats'
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
  /** The number of tokens that may be on their way to a lane of which nothing is known. */
  fair: number
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
export function allowances({ slots, free, fair, high, low, lastLane }: Load): Allowances {
  const share = Math.max(1, Math.floor(slots / 4))
  const turn = slots > 1 || lastLane === 'high' ? share : 0
  const lowest = high.backlog > 0 ? turn : slots > 1 ? slots - share : 1
  const forLow = Math.max(0, Math.min(free, low.backlog, lowest - low.busy))
  const forHigh = Math.max(0, free - forLow)
  // Slots that the low lane or other workers use: no end of a run of this lane would ask for its tokens.
  const isUnheard = high.busy < slots
  return {
    low: low.backlog > 0 ? forLow : Number(low.busy < lowest),
    high: high.backlog > 0 ? forHigh : Math.max(Number(isUnheard), Math.min(fair, forHigh)),
    direct: forHigh,
  }
}

/** One worker among those of a process. */
export interface Sharer {
  readonly busy: number
  /** The number of existing tokens that are on their way to this worker. */
  readonly promised: number
  /** The number of tokens that are known to wait for this worker. */
  readonly backlog: number
  /** Requests tokens at the end of this turn of the event loop. */
  poke(): void
  /** Requests tokens before it returns. */
  pull(): void
}

interface Share {
  busy: number
  promised: number
}

/**
 * The keys that a process holds at once, of all Reconcilers together. A slot that becomes free costs the same however
 * many workers there are: only those are asked that have tokens and no slot for them.
 */
export class ProcessSlots {
  readonly #limit: number
  readonly #outbox: Pick<Outbox, 'atEndOfTurn'>
  readonly #shares = new Map<Sharer, Share>()
  /** The workers whose share may have changed since it was counted. */
  readonly #changed = new Set<Sharer>()
  /** The workers whose tokens wait for a slot of the process, in the order in which they are offered one. */
  readonly #waiting = new Set<Sharer>()
  #used = 0
  #isOffering = false

  constructor(limit: number, outbox: Pick<Outbox, 'atEndOfTurn'>) {
    this.#limit = limit
    this.#outbox = outbox
  }

  /** Whether tokens wait for a slot of the process. */
  get areScarce(): boolean {
    return this.#waiting.size > 0
  }

  join(sharer: Sharer): void {
    this.#shares.set(sharer, { busy: 0, promised: 0 })
    this.#changed.add(sharer)
  }

  leave(sharer: Sharer): void {
    this.#count(sharer, { busy: 0, promised: 0 })
    this.#shares.delete(sharer)
    this.#changed.delete(sharer)
    this.#waiting.delete(sharer)
    this.#offer()
  }

  /** Notes that a worker has more or fewer busy slots or promised tokens. */
  changed(sharer: Sharer): void {
    if (this.#shares.has(sharer)) this.#changed.add(sharer)
  }

  /** Returns how many of `wanted` slots this worker can have now. */
  free(wanted: number, asker: Sharer): number {
    const free = Math.max(0, Math.min(wanted, this.#unused + (this.#shares.get(asker)?.promised ?? 0)))
    if (free < Math.min(wanted, asker.backlog)) this.#waiting.add(asker)
    return free
  }

  /** The part of the slots that each worker has if all have the same. 0: there are more workers than slots. */
  get fair(): number {
    return Math.floor(this.#limit / Math.max(1, this.#shares.size))
  }

  /** Releases a slot. When slots are scarce, the other workers are offered the slot before the worker that had it. */
  released(by: Sharer): void {
    this.changed(by)
    if (this.#waiting.delete(by)) this.#waiting.add(by)
    this.#offer()
    by.poke()
  }

  get #unused(): number {
    for (const sharer of this.#changed) this.#count(sharer, sharer)
    this.#changed.clear()
    return this.#limit - this.#used
  }

  #offer(): void {
    if (this.#isOffering || !this.areScarce) return
    this.#isOffering = true
    this.#outbox.atEndOfTurn(() => {
      this.#isOffering = false
      this.#offerOnce()
    })
  }

  /** Offers the free slots to each waiting worker once. A worker that gets too few of them waits again. */
  #offerOnce(): void {
    let left = this.#waiting.size
    for (const sharer of this.#waiting) {
      if (left-- === 0 || this.#unused <= 0) return
      this.#waiting.delete(sharer)
      sharer.pull()
    }
  }

  #count(sharer: Sharer, { busy, promised }: Share): void {
    const share = this.#shares.get(sharer)
    if (share === undefined) return
    this.#used += busy + promised - share.busy - share.promised
    share.busy = busy
    share.promised = promised
  }
}
