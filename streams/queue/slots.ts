import type { Outbox } from '#nats'
import type { Lane } from './record.ts'
import type { SlotShare } from './shared-slots.ts'

/** What a worker knows about one lane. */
export interface LaneLoad {
  /** The number of keys that the worker holds. */
  busy: number
  /** The number of tokens that the server had behind the last delivered one. 0 also if nothing is known. */
  backlog: number
}

export interface Load {
  slots: number
  /** The number of free slots for each lane, limited by those of the process. The slots of `low` are among `high`. */
  free: Record<Lane, number>
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
  const forLow = Math.max(0, Math.min(free.low, low.backlog, lowest - low.busy))
  const forHigh = Math.max(0, free.high - forLow)
  // Slots that the low lane or other workers use: no end of a run of this lane would ask for its tokens.
  const isUnheard = high.busy < slots
  return {
    low: low.backlog > 0 ? forLow : Number(low.busy < lowest),
    high: high.backlog > 0 ? forHigh : Math.max(Number(isUnheard), Math.min(fair, forHigh)),
    direct: forHigh,
  }
}

/** What one lane of a worker takes of the slots of a process. */
export interface LaneShare extends LaneLoad {
  /** The number of keys that the worker is taking. They are among the busy ones. */
  readonly taking: number
  /** The number of existing tokens that are on their way to this worker. */
  readonly promised: number
}

/** One worker among those of a process. */
export interface Sharer {
  readonly high: LaneShare
  readonly low: LaneShare
  /** Requests tokens at the end of this turn of the event loop. */
  poke(): void
  /** Requests tokens before it returns. */
  pull(): void
}

/**
 * The keys that a process holds at once, of all Reconcilers together. A slot that becomes free costs the same however
 * many workers there are: only those are asked that have tokens and no slot for them.
 */
export class ProcessSlots {
  readonly #share: SlotShare
  readonly #outbox: Pick<Outbox, 'atEndOfTurn'>
  readonly #lowLimit: LowLimit
  readonly #takeLimit = new TakeLimit()
  readonly #all: Pool
  /** The slots that low work may take. */
  readonly #low: Pool
  /** The keys that may be taken at a time. */
  readonly #takes = new Pool(() => this.#takeLimit.takes)
  readonly #sharers = new Set<Sharer>()
  /** The workers whose share may have changed since it was counted. */
  readonly #changed = new Set<Sharer>()
  #isOffering = false

  constructor(slots: SlotShare, outbox: Pick<Outbox, 'atEndOfTurn'>) {
    this.#share = slots
    this.#outbox = outbox
    this.#lowLimit = new LowLimit(slots.most)
    this.#all = new Pool(() => slots.limit)
    slots.onMore(() => this.#offer())
    this.#low = new Pool(() => Math.min(this.#lowLimit.slots, mostLow(slots.limit)))
  }

  /** Whether tokens wait for a slot of the process. */
  get areScarce(): boolean {
    return this.#all.waiting.size + this.#takes.waiting.size > 0
  }

  join(sharer: Sharer): void {
    this.#sharers.add(sharer)
    this.#changed.add(sharer)
  }

  leave(sharer: Sharer): void {
    this.#sharers.delete(sharer)
    this.#changed.delete(sharer)
    for (const pool of [this.#all, this.#low, this.#takes]) pool.leave(sharer)
    this.#note()
    this.#offer()
  }

  /** Notes that a worker has more or fewer busy slots or promised tokens: another process may have taken these. */
  changed(sharer: Sharer): void {
    if (!this.#sharers.has(sharer)) return
    this.#changed.add(sharer)
    this.#offer()
  }

  /**
   * Notes that a worker has taken a key, or could not, between these moments, in milliseconds. Returns the number of keys
   * that may be taken at a time from now on, if these are fewer than before.
   */
  took(by: Sharer, { from, to, leaseMs }: Take): number | undefined {
    this.#lowLimit.took(from, to)
    const before = this.#takeLimit.takes
    this.#takeLimit.took({ from, to, leaseMs })
    this.changed(by)
    return this.#takeLimit.takes < before ? this.#takeLimit.takes : undefined
  }

  /** Returns how many of `wanted` slots this worker can have now, and how many of them for low work. */
  free(wanted: number, asker: Sharer): Record<Lane, number> {
    this.#count()
    const { high, low } = asker
    const forLow = this.#low.free(wanted, asker, low)
    const promised = high.promised + low.promised
    const load = { promised, backlog: high.backlog + Math.min(low.backlog, forLow) }
    const slots = this.#all.free(wanted, asker, load)
    this.#note()
    const all = this.#takes.free(slots, asker, load)
    return { high: all, low: Math.min(all, forLow) }
  }

  /** The part of the slots that each worker has if all have the same. 0: there are more workers than slots. */
  get fair(): number {
    return Math.floor(this.#share.limit / Math.max(1, this.#sharers.size))
  }

  /** Releases a slot. When slots are scarce, the other workers are offered the slot before the worker that had it. */
  released(by: Sharer): void {
    for (const { waiting } of [this.#all, this.#low, this.#takes]) if (waiting.delete(by)) waiting.add(by)
    this.changed(by)
    by.poke()
  }

  #count(): void {
    for (const sharer of this.#changed) {
      const { high, low } = sharer
      const ofLow = low.busy + low.promised
      this.#all.count(sharer, high.busy + high.promised + ofLow)
      this.#low.count(sharer, ofLow)
      this.#takes.count(sharer, high.taking + high.promised + low.taking + low.promised)
    }
    this.#changed.clear()
  }

  #note(): void {
    this.#share.note(this.#all.used, this.#all.waiting.size > 0)
  }

  #offer(): void {
    if (this.#isOffering || (!this.areScarce && this.#low.waiting.size === 0)) return
    this.#isOffering = true
    this.#outbox.atEndOfTurn(() => {
      this.#isOffering = false
      this.#offerOnce(this.#all)
      this.#offerOnce(this.#low)
      this.#offerOnce(this.#takes)
    })
  }

  /**
   * Offers the free slots to each waiting worker once. A worker that gets too few of them waits again. Where low work may
   * have more slots and the process has none, as many workers go on to wait for those of the process, among changes.
   */
  #offerOnce(pool: Pool): void {
    let left = pool.waiting.size
    let moves = pool.unused
    for (const sharer of pool.waiting) {
      this.#count()
      if (left-- === 0 || pool.unused <= 0) return
      if (this.#all.unused <= 0 && moves-- <= 0) return
      pool.waiting.delete(sharer)
      sharer.pull()
    }
  }
}

/** The slots of a process, or those for low work, as its workers share them. */
class Pool {
  readonly #limit: () => number
  readonly #shares = new Map<Sharer, number>()
  /** The workers whose tokens wait for a slot, in the order in which they are offered one. */
  readonly waiting = new Set<Sharer>()
  #used = 0

  constructor(limit: () => number) {
    this.#limit = limit
  }

  get used(): number {
    return this.#used
  }

  get unused(): number {
    return this.#limit() - this.#used
  }

  /** Returns how many of `wanted` slots a worker can have. It waits if these are too few for its `backlog`. */
  free(wanted: number, asker: Sharer, { promised, backlog }: { promised: number; backlog: number }): number {
    const own = this.#shares.has(asker) ? promised : 0
    const free = Math.max(0, Math.min(wanted, this.unused + own))
    if (free < Math.min(wanted, backlog)) this.waiting.add(asker)
    return free
  }

  count(sharer: Sharer, share: number): void {
    this.#used += share - (this.#shares.get(sharer) ?? 0)
    this.#shares.set(sharer, share)
  }

  leave(sharer: Sharer): void {
    this.count(sharer, 0)
    this.#shares.delete(sharer)
    this.waiting.delete(sharer)
  }
}

/** The most keys that a process takes at a time. If it needs 0.1 s for each, it takes more than a thousand a second. */
const MOST_TAKES = 128
const LEAST_TAKES = 16
/** A take that is no longer than this part of a lease is in time. */
const IN_TIME = 1 / 20
/** A take that is longer than this part of a lease is late. */
const LATE = 1 / 5

/** A key that was taken, or could not be. Times are in milliseconds. */
interface Take {
  from: number
  to: number
  leaseMs: number
}

/**
 * The number of keys that a process takes at a time. A key that is taken so late that its lease is nearly over comes back,
 * and is taken again: without a limit, a NATS that is late because of many takes stays late because of them. Runs in
 * progress keep their slots.
 */
export class TakeLimit {
  #takes = MOST_TAKES
  #cutAt = Number.NEGATIVE_INFINITY

  get takes(): number {
    return Math.floor(this.#takes)
  }

  /** Takes that began before the limit was cut do not cut it again. Each take ends, so the limit recovers with NATS. */
  took({ from, to, leaseMs }: Take): void {
    const isLate = to - from > leaseMs * LATE
    if (isLate && from >= this.#cutAt) {
      this.#takes = Math.max(LEAST_TAKES, this.#takes / 2)
      this.#cutAt = to
    }
    // One more for each take that is in time, otherwise for as many as the limit: the way to NATS may be long.
    if (!isLate)
      this.#takes = Math.min(MOST_TAKES, this.#takes + (to - from <= leaseMs * IN_TIME ? 1 : 1 / this.#takes))
  }
}

/** A change has a slot that no low work takes, if there are two. */
const mostLow = (slots: number): number => Math.max(1, Math.min(slots - 1, Math.ceil((slots * 3) / 4)))

/** A key that is taken within this time shows that more runs at once do not make each other slower. */
const QUICK_MS = 50
/** A key that takes this many times longer shows that they do. */
const SLOW = 5
/** How long the shortest time counts at least, and until the next key that was taken alone. */
const PERIOD_MS = 120_000

/**
 * The number of slots that low work of a process may have. Where NATS or the CPU has too much to do, each run in progress
 * makes all others slower, so that a change waits for as many low runs as are in progress, although it has a slot. The
 * limit follows from the time in which keys are taken. Functions that are slow for another reason do not lower it.
 */
export class LowLimit {
  readonly #least: number
  readonly #most: number
  #slots: number
  #cutAt = Number.NEGATIVE_INFINITY
  /** The shortest times in which a key was taken, in this period and in the one before: the way to NATS may be long. */
  #quickestMs = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY] as const
  #periodEndsAt = Number.NEGATIVE_INFINITY
  #tookAt = Number.NEGATIVE_INFINITY

  /** `slots`: those of the process. */
  constructor(slots: number) {
    this.#least = Math.max(1, Math.floor(slots / 64))
    this.#most = mostLow(slots)
    this.#slots = this.#least
  }

  get slots(): number {
    return this.#slots
  }

  /** Notes that a key was taken between these moments. Keys that came before the limit was cut do not cut it again. */
  took(from: number, to: number): void {
    const ms = to - from
    this.#measured(from, to)
    const quickMs = Math.max(QUICK_MS, 2 * Math.min(...this.#quickestMs))
    if (ms <= quickMs) this.#slots = Math.min(this.#most, this.#slots + 1)
    if (ms <= SLOW * quickMs || from < this.#cutAt) return
    this.#slots = Math.max(this.#least, Math.floor(this.#slots / 2))
    this.#cutAt = to
  }

  /**
   * Only a key that was taken alone begins a new period: the way to NATS may have become longer. Keys that are taken at
   * once may be slow because of each other, however long that lasts.
   */
  #measured(from: number, to: number): void {
    const [shortest, before] = this.#quickestMs
    const isSoleTake = from >= this.#tookAt
    this.#tookAt = to
    if (isSoleTake && to > this.#periodEndsAt) {
      this.#quickestMs = [to - from, shortest]
      this.#periodEndsAt = to + PERIOD_MS
    } else this.#quickestMs = [Math.min(shortest, to - from), before]
  }
}
