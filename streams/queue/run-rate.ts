import { setImmediate as endOfTurn } from 'node:timers/promises'
import { Serial } from '#primitives'
import { answerTo, measured, type QueueDeps } from './core.ts'
import type { RunRate } from './types.ts'
import { limitedMessage, type RateState, rateFrom, rateMessage } from './wire.ts'

/** The least time within which a run begins after its permit. */
export const VALID_MS = 200
/** The most such time, when NATS is slow. */
const MOST_VALID_MS = 2000
/** No run begins later than this after its permit, whatever the errors of the clocks. */
export const MOST_LATE_MS = 5000
/** Permits are taken for this time at most, so that the other processes get some. */
const SHARE_MS = 500
/** A process asks not more often than this while no run is permitted. */
const LEAST_WAIT_MS = 25
/** How long a message shows that a worker waits for its rate. */
const SHOWN_MS = 30_000

export interface Ask {
  wanted: number
  /** The server's time, or an earlier one. */
  now: number
  /** The server's time after which none of the runs begins, or a later one. */
  beginBy: number
}

export type Permission = { permitted: number; state: RateState } | { againMs: number }

/**
 * Permits up to `wanted` runs, so that in any W seconds at most perSecond × W + burst runs begin, whenever each of them
 * begins between `now` and `beginBy`: for the runs that follow it counts as late as possible, and for those before as
 * early as possible. Returns the state that has to be stored before they begin.
 */
export function permit(
  { usedUntil, storedAt }: RateState,
  { wanted, now, beginBy }: Ask,
  { perSecond, burst = Math.max(2, Math.ceil(perSecond)) }: Pick<RunRate, 'perSecond' | 'burst'>,
): Permission {
  const each = 1000 / perSecond
  const capacity = burst * each
  // More was used only if the rate was another one. If the server's clock was set back since, nothing is known.
  const most = storedAt > now + MOST_LATE_MS ? now : storedAt + capacity + MOST_LATE_MS
  const used = Math.max(now, Math.min(usedUntil, most))
  const room = now + capacity - used
  const share = Math.max(1, Math.floor(SHARE_MS / each))
  // Rounding errors must not cost a run of the burst.
  const permitted = Math.min(wanted, share, Math.floor(room / each + 1e-6))
  if (permitted < 1) return { againMs: Math.max(LEAST_WAIT_MS, each - room) }
  return { permitted, state: { usedUntil: Math.max(used, beginBy) + permitted * each, storedAt: now } }
}

interface Terms {
  validMs: number
  signal: AbortSignal
}

/** Runs that were charged for in one step. */
interface Charge {
  /** The number of them that do not begin and that the stored state still has. */
  unused: number
}

/** One rate, as a process uses it. Each change is a compare-and-set of one message in the queue's stream. */
class SharedRate {
  readonly #deps: QueueDeps
  readonly #rate: RunRate
  /** The message, as this process has seen it last, and the charge that it was stored for, if that was here. */
  #known: (RateState & { sequence: number; charge?: Charge }) | undefined
  readonly #changes = new Serial()

  constructor(deps: QueueDeps, rate: RunRate) {
    this.#deps = deps
    this.#rate = rate
  }

  /** The number of runs that are permitted now, as far as this process knows. */
  get expected(): number {
    if (this.#known === undefined) return 1
    const now = this.#deps.clock.now()
    const answer = permit(this.#known, { wanted: Number.POSITIVE_INFINITY, now, beginBy: now }, this.#rate)
    return 'againMs' in answer ? 0 : answer.permitted
  }

  /** Returns what is permitted now. Charges nothing. */
  async ask(wanted: number, { validMs, signal }: Terms): Promise<Permission> {
    const known = (this.#known ??= await this.#read(signal))
    const { clock } = this.#deps
    let range = clock.range()
    for (; range === undefined; range = clock.range()) await measured(this.#deps, { signal })
    return permit(known, { wanted, now: range.earliest, beginBy: range.latest + validMs }, this.#rate)
  }

  /** Charges for so many runs. Undefined: fewer are permitted by now. */
  charge(runs: number, terms: Terms): Promise<Charge | undefined> {
    return this.#changes.run(async () => {
      for (;;) {
        const answer = await this.ask(runs, terms)
        if ('againMs' in answer || answer.permitted < runs) return undefined
        const charge = { unused: 0 }
        if (await this.#store(answer.state, charge)) return charge
      }
    })
  }

  /** Takes back what was charged for runs that do not begin. Does nothing if anything was charged for since. */
  giveBack(charge: Charge, runs: number): Promise<void> {
    charge.unused += runs
    return this.#changes.run(async () => {
      const known = this.#known
      const usedMs = (charge.unused * 1000) / this.#rate.perSecond
      charge.unused = 0
      if (known?.charge !== charge || usedMs === 0) return
      // What cannot be given back is lost.
      await this.#store({ ...known, usedUntil: known.usedUntil - usedMs }, charge).catch(() => false)
    })
  }

  /** Returns whether the state was stored. An unknown end counts as if the runs had begun. */
  async #store(state: RateState, charge: Charge): Promise<boolean> {
    const { js, names, random } = this.#deps
    const after = this.#known?.sequence ?? 0
    const { subject, payload, headers } = rateMessage(this.#rate.name, { ...state, after }, names)
    try {
      const { sequence } = await js.publish(subject, payload, headers)
      this.#known = { ...state, sequence, charge }
      return true
    } catch (error) {
      this.#known = undefined
      await answerTo(error, random)
      return false
    }
  }

  async #read(signal: AbortSignal): Promise<RateState & { sequence: number }> {
    const { js, names, random } = this.#deps
    for (;;) {
      signal.throwIfAborted()
      try {
        const message = await js.lastOf(names.stream, names.rate(this.#rate.name))
        return message
          ? { ...rateFrom(message), sequence: message.sequence }
          : { usedUntil: 0, storedAt: 0, sequence: 0 }
      } catch (error) {
        await answerTo(error, random)
      }
    }
  }
}

/** The right to begin one run. */
export interface Permit {
  readonly askedAt: number
  /** The server's time until which the run may begin. */
  readonly until: number
  /** What each rate has charged for it and for the other runs of the same step. */
  readonly charges: readonly Charge[]
}

/**
 * The permits of one worker. It asks when keys are in its hand, for as many as there are, so that no permit is taken
 * without a key. If none is permitted, it takes no keys for the time that the rate needs. A permit that is not used is
 * given back, unless another process has got a permit since or this process dies.
 */
export class RunPermits {
  readonly #deps: QueueDeps
  readonly #reconciler: string
  readonly #rates: readonly SharedRate[]
  readonly #opens: () => void
  readonly #ended = new AbortController()
  readonly #granted: Permit[] = []
  /** The number of keys in hand that wait for a permit. */
  #waiting = 0
  #asking: Promise<void> | undefined
  /** By the monotonic clock: that of the server may be set back. */
  #closedUntil = 0
  #timer: NodeJS.Timeout | undefined
  #shownAt = Number.NEGATIVE_INFINITY
  /** The sequence of the message that shows the wait. */
  #shown: Promise<number | undefined> = Promise.resolve(undefined)
  /** The time that the last runs needed from the request for a permit until they began. */
  #neededMs = 0
  #begun = 0

  /** `opens` is called when keys may be taken again. */
  constructor(deps: QueueDeps, reconciler: string, rates: readonly RunRate[], opens: () => void) {
    this.#deps = deps
    this.#reconciler = reconciler
    this.#rates = rates.map((rate) => new SharedRate(deps, rate))
    this.#opens = opens
  }

  /** The number of further keys to take now, of which low ones if changes wait too: a quarter. */
  get free(): { all: number; low: number } {
    const expected = Math.max(1, Math.min(...this.#rates.map((rate) => rate.expected)))
    const all = this.#isClosed ? 0 : Math.max(0, expected - this.#waiting)
    return { all, low: Math.floor((all + (this.#begun % 4)) / 4) }
  }

  /** Undefined: no run may begin now. */
  async take(): Promise<Permit | undefined> {
    this.#waiting++
    try {
      for (;;) {
        const permit = this.#granted.shift()
        if (permit !== undefined) {
          this.#begun++
          return permit
        }
        if (this.#ended.signal.aborted || this.#isClosed) return undefined
        this.#asking ??= this.#ask().finally(() => {
          this.#asking = undefined
        })
        await this.#asking
      }
    } finally {
      this.#waiting--
    }
  }

  isInTime({ until }: Permit): boolean {
    return this.#deps.clock.now() <= until
  }

  /** Returns the permit, or another one if it is too late. Undefined: no run may begin now. */
  inTime(permit: Permit): Permit | undefined | Promise<Permit | undefined> {
    const needed = this.#deps.clock.now() - permit.askedAt
    this.#neededMs = Math.max(Math.min(needed, MOST_VALID_MS), this.#neededMs / 2)
    return this.isInTime(permit) ? permit : this.#exchange(permit)
  }

  async #exchange(late: Permit): Promise<Permit | undefined> {
    const fields = { reconciler: this.#reconciler, neededMs: Math.round(this.#neededMs) }
    this.#deps.log.debug(fields, 'the permit of a run came too late: asking for another one')
    await this.giveBack(late)
    // The error of a request shows at the next key. This one is leased, and goes back to the queue.
    const permit = await this.take().catch(() => undefined)
    return permit && this.inTime(permit)
  }

  /** Gives back a permit whose run does not begin. */
  giveBack({ charges }: Permit): Promise<void> {
    return this.#takeBack(charges, 1)
  }

  /** Call when no key is taken any more. */
  async end(): Promise<void> {
    this.#ended.abort(new Error('the worker has drained'))
    clearTimeout(this.#timer)
    const sequence = await this.#shown
    if (sequence !== undefined) await this.#deps.js.remove(this.#deps.names.stream, sequence).catch(() => undefined)
  }

  get #isClosed(): boolean {
    return performance.now() < this.#closedUntil
  }

  async #ask(): Promise<void> {
    // Keys that arrive in the same turn are asked for together.
    await endOfTurn()
    try {
      await this.#grant()
    } catch (error) {
      if (!this.#ended.signal.aborted) throw error
    }
  }

  async #grant(): Promise<void> {
    const validMs = Math.min(MOST_VALID_MS, Math.max(VALID_MS, 2 * this.#neededMs))
    const terms = { validMs, signal: this.#ended.signal }
    let runs = this.#waiting
    // Nothing is charged before all rates permit it.
    for (const rate of this.#rates) {
      const answer = await rate.ask(runs, terms)
      if ('againMs' in answer) return this.#close(answer.againMs)
      runs = answer.permitted
    }
    const askedAt = this.#deps.clock.now()
    const charges: Charge[] = []
    for (const rate of this.#rates) {
      const charge = await rate.charge(runs, terms)
      if (charge === undefined) return this.#takeBack(charges, runs)
      charges.push(charge)
    }
    for (let run = 0; run < runs; run++) this.#granted.push({ askedAt, until: askedAt + validMs, charges })
    this.#opens()
  }

  async #takeBack(charges: readonly Charge[], runs: number): Promise<void> {
    for (const [index, charge] of charges.entries()) await this.#rates[index]?.giveBack(charge, runs)
  }

  #close(ms: number): void {
    if (this.#ended.signal.aborted) return
    this.#closedUntil = performance.now() + ms
    this.#wait()
  }

  #wait(): void {
    this.#show()
    clearTimeout(this.#timer)
    const leftMs = Math.ceil(this.#closedUntil - performance.now())
    const next = () => (this.#isClosed ? this.#wait() : this.#opens())
    this.#timer = setTimeout(next, Math.min(leftMs, SHOWN_MS / 2)).unref()
  }

  /** Shows that a worker is there, although it has no request for keys in NATS. */
  #show(): void {
    const now = performance.now()
    if (now - this.#shownAt < SHOWN_MS / 3) return
    this.#shownAt = now
    const { js, names, worker } = this.#deps
    const { subject, payload, headers } = limitedMessage(names.limited(this.#reconciler, worker), SHOWN_MS)
    this.#shown = js.publish(subject, payload, headers).then(
      ({ sequence }) => sequence,
      () => undefined,
    )
  }
}
