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
  #asking = false

  constructor(sources: ClockSources, toleranceMs: number) {
    this.#sources = sources
    this.#toleranceMs = toleranceMs
    this.#base = sources.wall() - sources.monotonic()
  }

  now = (): number => {
    const time = this.#local() + this.#offset
    if (this.#error === Number.POSITIVE_INFINITY) void this.#measureSoon()
    return time
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
  async measure(): Promise<void> {
    for (let sample = 0; sample < MAX_SAMPLES; sample++) {
      const sent = this.#local()
      const server = await this.#sources.server()
      const error = (this.#local() - sent) / 2
      if (error <= this.#error + DRIFT * (sent - this.#measuredAt)) {
        this.#offset = server - (sent + error)
        this.#error = error
        this.#measuredAt = sent
      }
      if (error <= this.#toleranceMs) return
    }
  }

  /** The machine slept, or somebody set its clock: until the server is asked, timers and leases may be set too late. */
  async #measureSoon(): Promise<void> {
    if (this.#asking) return
    this.#asking = true
    await this.measure().catch(() => undefined)
    this.#asking = false
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
