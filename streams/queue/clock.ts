/**
 * The local clocks and a request for the server's clock. Values are milliseconds: since the epoch for `wall` and
 * `server`, since any fixed moment for `monotonic`.
 */
export interface ClockSources {
  wall: () => number
  /** A clock that never goes back. */
  monotonic: () => number
  server: () => Promise<number>
}

const MAX_SAMPLES = 10
const WALL_STEP_MS = 1000
/** How far two clocks may drift apart, in milliseconds per millisecond. */
const DRIFT = 2e-4

/**
 * An estimate of the server's clock for leases and timers, because the server compares their times with its own clock.
 * Between measurements it advances with the local clock that is ahead: a user can set the wall clock back, and the
 * monotonic clock stands still while the machine sleeps. Neither may prolong a lease.
 */
export class ServerClock {
  readonly #sources: ClockSources
  /** The difference between epoch milliseconds and the monotonic clock. */
  #base: number
  readonly #toleranceMs: number
  #offset = 0
  /** Half of the round trip of the measurement that gave the offset. */
  #error = Number.POSITIVE_INFINITY
  #measuredAt = 0
  #measuring: Promise<void> | undefined

  constructor(sources: ClockSources, toleranceMs: number) {
    this.#sources = sources
    this.#toleranceMs = toleranceMs
    this.#base = sources.wall() - sources.monotonic()
  }

  /**
   * Returns the server's time. After a step of the local clock, until the next measurement, the result errs on the late
   * side: it may end a lease, but it must not begin or prolong one.
   */
  now(): number {
    return this.timeOf(this.moment())
  }

  /**
   * Returns the server's time for values that are stored. Undefined after a step of the local clock, until the next
   * measurement.
   */
  sure(): number | undefined {
    const time = this.now()
    return this.#error === Number.POSITIVE_INFINITY ? undefined : time
  }

  /** Returns two times between which the server's clock is. Undefined: as sure(). */
  range(): { earliest: number; latest: number } | undefined {
    const moment = this.moment()
    if (this.#error === Number.POSITIVE_INFINITY) return undefined
    const error = this.#error + DRIFT * (moment - this.#measuredAt)
    return { earliest: this.timeOf(moment) - error, latest: this.timeOf(moment) + error }
  }

  /** Returns a moment that timeOf() converts to the server's time later, when the offset may be known better. */
  moment(): number {
    const moment = this.#local()
    // The local clock made a step: the machine slept, or a user set the clock.
    if (this.#error === Number.POSITIVE_INFINITY) this.measure().catch(() => undefined)
    return moment
  }

  timeOf(moment: number): number {
    return moment + this.#offset
  }

  /** Returns the server's time at a moment of the wall clock. */
  at(date: Date): number {
    return date.getTime() - this.#sources.wall() + this.now()
  }

  /** Returns the wall clock's time at a moment of the server's clock. */
  dateOf(serverTime: number): Date {
    return new Date(serverTime - this.now() + this.#sources.wall())
  }

  /**
   * Asks the server for its time until the error, half a round trip, is tolerable. Keeps the older offset if its error
   * is smaller.
   */
  measure(): Promise<void> {
    this.#measuring ??= this.#sample().finally(() => {
      this.#measuring = undefined
    })
    return this.#measuring
  }

  async #sample(): Promise<void> {
    for (let sample = 0; sample < MAX_SAMPLES; sample++) {
      const sent = this.#local()
      const base = this.#base
      const server = await this.#sources.server()
      const error = (this.#local() - sent) / 2
      if (base !== this.#base) continue
      if (error <= this.#error + DRIFT * (sent - this.#measuredAt)) {
        this.#offset = server - (sent + error)
        this.#error = error
        this.#measuredAt = sent
      }
      if (error <= this.#toleranceMs) return
    }
  }

  #local(): number {
    const { wall, monotonic } = this.#sources
    const time = monotonic() + this.#base
    const behind = wall() - time
    if (behind < WALL_STEP_MS) return time
    this.#base += behind
    this.#error = Number.POSITIVE_INFINITY
    return time + behind
  }
}
