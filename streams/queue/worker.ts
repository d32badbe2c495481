import { ConnectionClosedError, type Delivery } from '#nats'
import { endedWithin, pause } from '#primitives'
import type { QueueDeps } from './core.ts'
import { dueAt, HandlerRuns, type KeyClaim, OwnTimers, takeKey } from './handler-runs.ts'
import type { Janitor } from './janitor.ts'
import { LaneInHand } from './lane.ts'
import type { HeldKey } from './machine.ts'
import { type Causes, isTriggered, type KeyRecord, type Lane } from './record.ts'
import { type Permit, RunPermits } from './run-rate.ts'
import { allowances, type LaneShare, type Sharer } from './slots.ts'
import type { ServeOptions, Worker } from './types.ts'
import { tokenFrom } from './wire.ts'

/**
 * How long handing back may take. A run that ignores its signal keeps its lease until the run or the process ends. All
 * runs keep their leases in this way when NATS does not answer.
 */
const HANDBACK_MS = 2000

interface TakenKey {
  held: HeldKey
  /** Undefined: no rate limits the runs. */
  permit: Permit | undefined
}

/**
 * Serves one Reconciler: takes tokens of both lanes while slots are free, and runs the handler under a lease.
 *
 *     #receive           a token that the server delivers
 *     #takeOf            a key of a namespace whose turn it is, out of the order
 *     announce           a change that this process has seen: a run notes it, or #takeDirectly
 *     #takeDue           a timer that was set here
 *       → #occupy        counts the slot
 *         → #work        a run of the key notes the token, unless a program has queued it, or
 *           → RunPermits.take   if the Reconciler has a rate: a permit (run-rate.ts). Without one the token goes back
 *           → #take      the lease, by compare-and-set (take.ts)
 *           → HandlerRuns.run   the handler, renewals and the end of the run (handler-runs.ts, finish.ts)
 *     drain              hands back what has not begun, and waits for the rest
 *
 * How many keys: slots and takes of the process (slots.ts), slots of the lanes (allowances), after lost leases (Capacity), and permits.
 */
export class QueueWorker implements Worker, Sharer {
  readonly #deps: QueueDeps
  readonly #options: ServeOptions
  readonly #lanes: Record<Lane, LaneInHand>
  readonly #leaveJanitor: () => void
  readonly #runs: HandlerRuns
  readonly #timers: OwnTimers
  /** Undefined: no rate limits the runs. */
  readonly #permits: RunPermits | undefined
  /** Keys that are about to run here; the run reads state when it begins. Resolves to false if no run began. */
  readonly #arriving = new Map<string, Promise<boolean>>()
  readonly #inHand = new Set<Promise<void>>()
  readonly #abandon = new AbortController()
  readonly #beganAt: number
  #capacity: Capacity
  #lastLane: Lane = 'low'
  readonly #graceOver = Promise.withResolvers<void>()
  #drained: Promise<void> | undefined

  constructor(deps: QueueDeps, options: ServeOptions, janitor: Janitor) {
    this.#deps = deps
    this.#options = options
    this.#beganAt = deps.clock.moment()
    this.#capacity = fullCapacity(options.slots)
    const onFinished: ServeOptions['onFinished'] = (lease, result) => {
      this.#adapt(result)
      options.onFinished?.(lease, result)
    }
    this.#timers = new OwnTimers(deps.clock, (key, record) => this.#takeDue(key, record))
    this.#runs = new HandlerRuns(deps, { ...options, onFinished }, this.#timers)
    const { reconciler, rates = [] } = options
    if (rates.length > 0) this.#permits = new RunPermits(deps, reconciler, rates, () => this.poke())
    this.#lanes = { high: this.#openLane('high'), low: this.#openLane('low') }
    this.#leaveJanitor = janitor.enter(reconciler)
    deps.slots.join(this)
  }

  get running(): number {
    return this.#runs.size
  }

  get busy(): number {
    return this.#lanes.high.busy + this.#lanes.low.busy
  }

  get high(): LaneShare {
    return this.#lanes.high
  }

  get low(): LaneShare {
    return this.#lanes.low
  }

  poke(): void {
    this.#lanes.high.puller.poke()
    this.#lanes.low.puller.poke()
  }

  pull(): void {
    this.#lanes.high.puller.pull()
    this.#lanes.low.puller.pull()
  }

  drain(graceMs: number): Promise<void> {
    const timer = setTimeout(this.#graceOver.resolve, graceMs)
    this.#drained ??= this.#drain()
    return this.#drained.finally(() => clearTimeout(timer))
  }

  /**
   * Accepts a change that this process observed, for a run of its key here or for one that a free slot can begin at
   * once. `safe` resolves to false if the change must still be queued. Undefined: neither is possible.
   */
  announce(key: string, lane: Lane, causes?: Causes): { noted: boolean; safe: Promise<boolean> } | undefined {
    if (this.#drained) return undefined
    const safe = this.#runs.of(key)?.note(causes)
    if (safe) return { noted: true, safe }
    const arrival = this.#arriving.get(key) ?? (lane === 'high' ? this.#takeDirectly(key, causes) : undefined)
    return arrival && { noted: false, safe: arrival }
  }

  #openLane(lane: Lane): LaneInHand {
    const { reconciler, slots } = this.#options
    const inHand: LaneInHand = new LaneInHand(this.#deps, {
      reconciler,
      lane,
      slots,
      allowed: () => this.#allowances[lane],
      free: () => this.#free[lane],
      onLoad: () => this.#loadChanged(),
      onMessage: (delivery) => this.#receive(inHand, delivery),
      onTurn: (namespace) => this.#occupy(inHand, this.#takeOf(namespace, inHand)),
    })
    return inHand
  }

  get #free(): Record<Lane, number> {
    const slots = this.#capacity.limit - this.busy
    const permitted = this.#permits?.free
    if (permitted === undefined) return this.#deps.slots.free(slots, this)
    const { high, low } = this.#deps.slots.free(Math.min(slots, permitted.all), this)
    return { high, low: this.high.backlog > 0 ? Math.min(low, permitted.low) : low }
  }

  #loadChanged(): void {
    this.#deps.slots.changed(this)
    // A lane that turns out to be empty leaves its share of the permits to the other one.
    if (this.#permits) this.poke()
  }

  get #allowances(): ReturnType<typeof allowances> {
    const { fair } = this.#deps.slots
    return allowances({ slots: this.#capacity.limit, free: this.#free, fair, ...this.#lanes, lastLane: this.#lastLane })
  }

  #adapt(result: 'finished' | 'fenced'): void {
    const { clock, terms } = this.#deps
    this.#capacity =
      result === 'fenced' ? afterLoss(this.#capacity, clock.moment(), terms.leaseMs) : afterRun(this.#capacity)
  }

  #receive(inHand: LaneInHand, delivery: Delivery): void {
    // This token counts until it has a slot, so that the worker waits for one if there is none.
    inHand.backlog = delivery.pending + 1
    if (this.#drained || this.#free[inHand.lane] === 0) {
      inHand.puller.giveUp()
      return delivery.nak()
    }
    inHand.backlog--
    const place = this.#deps.names.placeOf(delivery.subject)
    if (place?.kind !== 'token') return
    const { clock, ackWaitMs } = this.#deps
    inHand.delivered(place.key, delivery)
    this.#lastLane = inHand.lane
    const counts = this.#runs.counts(place.key, delivery)
    const claim: KeyClaim = {
      input: { token: tokenFrom(delivery, inHand.lane, counts) },
      counts,
      message: delivery,
      cameAt: clock.moment(),
      freshMs: ackWaitMs / 2,
      delivery,
    }
    this.#occupy(inHand, this.#work(place.key, claim))
  }

  /** Takes a key of this namespace, although other keys are before it in the line. */
  async #takeOf(namespace: string, inHand: LaneInHand): Promise<void> {
    const { clock, ackWaitMs } = this.#deps
    this.#lastLane = inHand.lane
    const found = await inHand.find(namespace)
    if (found === undefined || this.#drained) return
    const { key, message } = found
    const { sequence } = message
    if (this.#runs.of(key) || this.#arriving.has(key)) return inHand.passOver(key)
    const onOccupied = () => inHand.passOver(key, sequence)
    const input = { token: tokenFrom(message, inHand.lane), seen: { sequence } }
    const freshMs = ackWaitMs / 4
    await this.#work(key, { input, message, cameAt: clock.moment(), freshMs, delivery: undefined, onOccupied })
  }

  /**
   * Takes a key without a token, only if this process has nothing else of the key and no waiting token would be
   * overtaken. If a run crashed its process, the token that counts this stays unacknowledged until it is overdue.
   * During that time, a new process looks for that token first.
   */
  #takeDirectly(key: string, causes: Causes | undefined): Promise<boolean> | undefined {
    if (!this.#mayTakeDirectly(key)) return undefined
    const { high } = this.#lanes
    const waiting = this.#timers.take(key)
    const claim = this.#claimWithout({
      token: { lane: high.lane, attempt: 0, ...(causes && { causes }) },
      direct: true,
      waiting,
    })
    const isYoung = claim.cameAt - this.#beganAt < this.#deps.ackWaitMs
    this.#occupy(high, this.#work(key, { ...claim, mayBeQueued: isYoung && waiting === undefined }))
    return this.#arriving.get(key)
  }

  /** Takes a key whose timer was set here. If no slot is free, the server fires the timer. */
  #takeDue(key: string, waiting: KeyRecord): void {
    if (this.#drained || this.#arriving.has(key) || !this.#mayTakeDirectly(key)) return
    const input = { token: { lane: waiting.lane, attempt: 0 }, direct: true, waiting, isDue: true }
    this.#occupy(this.#lanes[waiting.lane], this.#work(key, this.#claimWithout(input)))
  }

  #mayTakeDirectly(key: string): boolean {
    return this.#lanes.high.backlog === 0 && this.#allowances.direct > 0 && this.#runs.of(key) === undefined
  }

  /** Returns a claim without a token. */
  #claimWithout(input: KeyClaim['input']): KeyClaim {
    const { clock, ackWaitMs } = this.#deps
    return { input, message: undefined, cameAt: clock.moment(), freshMs: ackWaitMs / 4, delivery: undefined }
  }

  #occupy(inHand: LaneInHand, working: Promise<void>): void {
    inHand.busy++
    this.#deps.slots.changed(this)
    this.poke()
    const work = working.finally(() => {
      this.#inHand.delete(work)
      inHand.busy--
      this.#deps.slots.released(this)
    })
    this.#inHand.add(work)
  }

  /** Runs the key and never rejects. After a failure, the token is delivered again, or the watchdog queues the key. */
  async #work(key: string, claim: KeyClaim): Promise<void> {
    const { reconciler } = this.#options
    try {
      const { causes } = claim.input.token
      if (claim.delivery && !isTriggered(causes) && (await this.#runs.of(key)?.note(causes, claim.delivery))) return
      if (claim.input.waiting === undefined) this.#timers.take(key)
      const taken = await this.#arrive(key, this.#take(key, claim))
      if (taken === undefined) return
      const isPermitted = () => this.#permitted(taken)
      const mayBegin = () => this.#drained === undefined && this.#isInTime(taken.permit)
      const isCalled = await this.#runs.run(key, taken.held, claim, { isPermitted, mayBegin })
      if (!isCalled) this.#giveBack(taken.permit)
    } catch (error) {
      if (error instanceof ConnectionClosedError || this.#abandon.signal.aborted) return
      this.#deps.log.error({ err: error, reconciler, key }, 'key left to the queue')
    }
  }

  /** Takes the key. If it was taken before its timer is due, resolves when the timer is due. */
  async #take(key: string, claim: KeyClaim): Promise<TakenKey | undefined> {
    const { signal } = this.#abandon
    const { clock } = this.#deps
    const { reconciler } = this.#options
    const permit = this.#permits && (await this.#permits.take())
    if (this.#permits && permit === undefined) return this.#putBack(claim)
    const held = await this.#limited(claim, takeKey(this.#deps, { reconciler, key }, claim, signal))
    if (held === undefined) return this.#giveBack(permit)
    const due = dueAt(claim) ?? 0
    for (let early = due - clock.now(); early > 0; early = due - clock.now()) await pause(Math.ceil(early), signal)
    return { held, permit }
  }

  /** Counts a take while it lasts. */
  async #limited(claim: KeyClaim, taking: Promise<HeldKey | undefined>): Promise<HeldKey | undefined> {
    const { slots, log, terms } = this.#deps
    const inHand = this.#lanes[claim.input.token.lane]
    const from = performance.now()
    inHand.taking++
    slots.changed(this)
    try {
      return await taking
    } finally {
      inHand.taking--
      const takes = slots.took(this, { from, to: performance.now(), leaseMs: terms.leaseMs })
      const { reconciler } = this.#options
      if (takes !== undefined) log.warn({ reconciler, takes }, 'keys are taken late: fewer at a time from now on')
    }
  }

  /** Exchanges a permit that is too late. */
  async #permitted(taken: TakenKey): Promise<boolean> {
    if (taken.permit !== undefined) taken.permit = await this.#permits?.inTime(taken.permit)
    return this.#isInTime(taken.permit)
  }

  #isInTime(permit: Permit | undefined): boolean {
    return this.#permits === undefined || (permit !== undefined && this.#permits.isInTime(permit))
  }

  #giveBack(permit: Permit | undefined): undefined {
    if (permit !== undefined) void this.#permits?.giveBack(permit)
  }

  /** Leaves a key, which may not run now, in the queue, and asks for no more until a run may be permitted. */
  #putBack({ delivery, input, onOccupied }: KeyClaim): undefined {
    onOccupied?.()
    if (delivery === undefined) return
    const inHand = this.#lanes[input.token.lane]
    inHand.backlog++
    inHand.puller.giveUp()
    delivery.nak()
  }

  async #arrive(key: string, taking: Promise<TakenKey | undefined>): Promise<TakenKey | undefined> {
    const arrival = taking.then(
      (taken) => taken !== undefined,
      () => false,
    )
    this.#arriving.set(key, arrival)
    try {
      return await taking
    } finally {
      if (this.#arriving.get(key) === arrival) this.#arriving.delete(key)
    }
  }

  async #drain(): Promise<void> {
    this.#leaveJanitor()
    this.#timers.clear()
    const ending = [this.#lanes.high.drain(), this.#lanes.low.drain()]
    if (this.#permits) ending.push(this.#permits.end())
    await Promise.all(ending.map((ended) => endedWithin(HANDBACK_MS, ended)))
    await Promise.race([Promise.all(this.#inHand), this.#graceOver.promise])
    this.#runs.takeBack()
    await endedWithin(HANDBACK_MS, Promise.all(this.#inHand))
    this.#abandon.abort(new Error('the worker has drained'))
    this.#deps.slots.leave(this)
  }
}

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
