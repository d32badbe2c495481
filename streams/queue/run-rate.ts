import { ERR, isWrongSequence, JetStreamError } from '#nats'
import { measured, type QueueDeps } from './core.ts'
import type { RunRate } from './types.ts'
import { rateFrom, rateMessage } from './wire.ts'

/** A permitted run begins within this time, or it does not begin: its key is queued again. */
export const VALID_MS = 200
/** How far the estimates of the server's clock may be apart in two processes: a round trip to NATS. */
const CLOCKS_MS = 20
const LATE_MS = VALID_MS + CLOCKS_MS
/** Permits are taken for this time at most, so that the other processes get some. */
const SHARE_MS = 500
/** A process asks not more often than this while no run is permitted. */
const LEAST_WAIT_MS = 25

export type Permission = { permitted: number; usedUntil: number } | { againMs: number }

/**
 * Permits up to `wanted` runs to begin within VALID_MS. `usedUntil` is the whole state of a rate: the server's time at
 * which all runs that were permitted are paid for, at perSecond. The time by which a run may begin later than it was
 * permitted counts as if it was used, so that late runs do not meet those that follow.
 */
export function permit(
  { usedUntil, now, wanted }: { usedUntil: number; now: number; wanted: number },
  { perSecond, burst = Math.max(2, Math.ceil(perSecond)) }: Pick<RunRate, 'perSecond' | 'burst'>,
): Permission {
  const each = 1000 / perSecond
  // Only a small burst has no room for late runs: then each request for permits costs time.
  const price = Math.max(0, LATE_MS - (burst - 1) * each)
  const most = burst * each + 2 * price - LATE_MS
  // It is later only if the rate was lower, or the server's clock was set back.
  const used = Math.min(Math.max(usedUntil, now), now + most)
  const room = most - price - (used - now)
  const share = Math.max(1, Math.floor(SHARE_MS / each))
  // Rounding errors must not cost a run of the burst.
  const permitted = Math.min(wanted, share, Math.floor(room / each + 1e-6))
  if (permitted < 1) return { againMs: Math.max(LEAST_WAIT_MS, each - room) }
  return { permitted, usedUntil: used + permitted * each + price }
}

/** One rate, as a process asks for its permits. Each is a compare-and-set of one message in the queue's stream. */
class SharedRate {
  readonly #deps: QueueDeps
  readonly #rate: RunRate
  /** The message, as this process has seen it last. It can only be used for longer by now. */
  #known: { sequence: number; usedUntil: number } | undefined

  constructor(deps: QueueDeps, rate: RunRate) {
    this.#deps = deps
    this.#rate = rate
  }

  async ask(wanted: number, signal: AbortSignal): Promise<{ permitted: number; until: number } | { againMs: number }> {
    const { js, names, clock } = this.#deps
    for (;;) {
      const known = (this.#known ??= await this.#read())
      const now = clock.sure() ?? (await measured(this.#deps, { signal }))
      const answer = permit({ usedUntil: known.usedUntil, now, wanted }, this.#rate)
      if ('againMs' in answer) return answer
      this.#known = undefined
      try {
        const { subject, headers } = rateMessage(
          this.#rate,
          { usedUntil: answer.usedUntil, now, after: known.sequence },
          names,
        )
        const { sequence } = await js.publish(subject, '', headers)
        this.#known = { sequence, usedUntil: answer.usedUntil }
        return { permitted: answer.permitted, until: now + VALID_MS }
      } catch (error) {
        // Another process was first. An unknown end counts as if the runs had begun.
        if (!isWrongSequence(error) && !isInFlight(error)) throw error
        if (signal.aborted) return { againMs: LEAST_WAIT_MS }
      }
    }
  }

  async #read(): Promise<{ sequence: number; usedUntil: number }> {
    const { js, names } = this.#deps
    const message = await js.lastOf(names.stream, names.rate(this.#rate.name))
    return { sequence: message?.sequence ?? 0, usedUntil: message ? rateFrom(message).usedUntil : 0 }
  }
}

const isInFlight = (error: unknown): boolean => error instanceof JetStreamError && error.errCode === ERR.publishInFlight

/**
 * The permits of one worker. It asks for one when a key is in its hand, so that no permit is lost on an idle queue, and
 * for as many more as it knows keys. If none is permitted, it takes no keys for the time that the rate needs. A permit
 * that is not used, because its process died or another one was quicker, is lost after VALID_MS.
 */
export class RunPermits {
  readonly #deps: QueueDeps
  readonly #rates: readonly SharedRate[]
  readonly #known: () => number
  readonly #opens: () => void
  readonly #ended = new AbortController()
  #left = 0
  #until = 0
  #closedUntil = 0
  #asking: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #begun = 0

  /** `known` returns the number of keys that are known to wait. `opens` is called when runs may be permitted again. */
  constructor(
    deps: QueueDeps,
    rates: readonly RunRate[],
    { known, opens }: { known: () => number; opens: () => void },
  ) {
    this.#deps = deps
    this.#rates = rates.map((rate) => new SharedRate(deps, rate))
    this.#known = known
    this.#opens = opens
  }

  /** The number of keys to take now, of which low ones if changes wait too: a quarter. */
  get free(): { all: number; low: number } {
    const all = this.#all
    return { all, low: Math.floor((all + (this.#begun % 4)) / 4) }
  }

  /** Returns the server's time until which one run may begin. Undefined: none may begin now. */
  async take(): Promise<number | undefined> {
    for (;;) {
      const now = this.#deps.clock.now()
      if (this.#isValid(now)) {
        this.#left--
        this.#begun++
        return this.#until
      }
      if (now < this.#closedUntil || this.#ended.signal.aborted) return undefined
      this.#asking ??= this.#ask().finally(() => {
        this.#asking = undefined
      })
      await this.#asking
    }
  }

  end(): void {
    this.#ended.abort(new Error('the worker has drained'))
    clearTimeout(this.#timer)
  }

  get #all(): number {
    const now = this.#deps.clock.now()
    if (this.#isValid(now)) return this.#left
    return now < this.#closedUntil || this.#asking !== undefined ? 0 : 1
  }

  #isValid(now: number): boolean {
    return this.#left > 0 && now < this.#until
  }

  /** Asks one rate after the other for as many as the one before permits. */
  async #ask(): Promise<void> {
    let wanted = 1 + this.#known()
    let end = Number.POSITIVE_INFINITY
    for (const rate of this.#rates) {
      const answer = await rate.ask(wanted, this.#ended.signal)
      if ('againMs' in answer) return this.#close(answer.againMs)
      wanted = answer.permitted
      end = Math.min(end, answer.until)
    }
    this.#left = wanted
    this.#until = end
    if (wanted > 1) this.#opens()
  }

  #close(ms: number): void {
    this.#closedUntil = this.#deps.clock.now() + ms
    clearTimeout(this.#timer)
    this.#timer = setTimeout(this.#opens, Math.ceil(ms)).unref()
  }
}

/** Returns whether a rate keeps a Reconciler from beginning runs, so that its processes ask for no keys. */
export async function isLimited({ js, names, clock }: QueueDeps, reconciler: string): Promise<boolean> {
  for await (const message of js.scan(names.stream, names.rate('*'))) {
    const { usedUntil, limits } = rateFrom(message)
    if (limits.includes(reconciler) && usedUntil > clock.now()) return true
  }
  return false
}
