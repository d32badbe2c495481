/** The local clocks, and how to ask the server for its own; all in epoch or relative milliseconds. */
export interface ClockSources {
  wall: () => number
  /** Never stands still or goes back. */
  monotonic: () => number
  server: () => Promise<number>
}

const MAX_SAMPLES = 10
const WALL_STEP_MS = 1000
/** How far two clocks may drift apart in a millisecond. */
const DRIFT = 2e-4

/**
 * The server's clock as far as it can be known here, for leases and timers: the server compares with its own. It runs on
 * between measurements by whichever local clock is ahead: the wall clock may be set back, and the monotonic one stands
 * still while a machine sleeps; a lease must not live longer for either.
 */
export class ServerClock {
  readonly #sources: ClockSources
  /** What makes epoch milliseconds of the monotonic clock. */
  #base: number
  readonly #toleranceMs: number
  #offset = 0
  /** Half of the round trip that the offset was measured by. */
  #error = Number.POSITIVE_INFINITY
  #measuredAt = 0
  #measuring: Promise<void> | undefined

  constructor(sources: ClockSources, toleranceMs: number) {
    this.#sources = sources
    this.#toleranceMs = toleranceMs
    this.#base = sources.wall() - sources.monotonic()
  }

  /** After a step, until the server was asked: rather too late. That ends a lease; it must not begin or prolong one. */
  now(): number {
    return this.timeOf(this.moment())
  }

  /** For what is written. Undefined after a step, until a measurement. */
  sure(): number | undefined {
    const time = this.now()
    return this.#error === Number.POSITIVE_INFINITY ? undefined : time
  }

  /** To be told in the server's time later, when that is better known. */
  moment(): number {
    const moment = this.#local()
    // The machine slept, or somebody set its clock.
    if (this.#error === Number.POSITIVE_INFINITY) this.measure().catch(() => undefined)
    return moment
  }

  timeOf(moment: number): number {
    return moment + this.#offset
  }

  /** The server's time at a moment that the wall clock gives. */
  at(date: Date): number {
    return date.getTime() - this.#sources.wall() + this.now()
  }

  /** The wall clock's time at a moment of the server's. */
  dateOf(serverTime: number): Date {
    return new Date(serverTime - this.now() + this.#sources.wall())
  }

  /** Half a round trip is the error: asks until it is tolerable, and keeps an older offset if that is the surer one. */
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
