/** The local clocks, and how to ask the server for its own; all in epoch or relative milliseconds. */
export interface ClockSources {
  wall: () => number
  /** Never stands still or goes back. */
  monotonic: () => number
  server: () => Promise<number>
}

const SAMPLES = 3
const WALL_STEP_MS = 1000

/**
 * The server's clock as far as it can be known here, for leases and timers: the server compares with its own. It runs on
 * between measurements by whichever local clock is ahead: the wall clock may be set back, and the monotonic one stands
 * still while a machine sleeps; a lease must not live longer for either.
 */
export class ServerClock {
  readonly #sources: ClockSources
  /** What makes epoch milliseconds of the monotonic clock. */
  #base: number
  #offset = 0

  constructor(sources: ClockSources) {
    this.#sources = sources
    this.#base = sources.wall() - sources.monotonic()
  }

  now = (): number => this.#local() + this.#offset

  /** The server's time at a moment that the wall clock gives. */
  at(date: Date): number {
    return date.getTime() - this.#sources.wall() + this.now()
  }

  /** The wall clock's time at a moment of the server's. */
  dateOf(serverTime: number): Date {
    return new Date(serverTime - this.now() + this.#sources.wall())
  }

  /** Half of the fastest round trip is the error. */
  async measure(): Promise<void> {
    let best = Number.POSITIVE_INFINITY
    for (let sample = 0; sample < SAMPLES; sample++) {
      const sent = this.#local()
      const server = await this.#sources.server()
      const roundTrip = this.#local() - sent
      if (roundTrip >= best) continue
      best = roundTrip
      this.#offset = server - (sent + roundTrip / 2)
    }
  }

  #local(): number {
    const { wall, monotonic } = this.#sources
    const time = monotonic() + this.#base
    const behind = wall() - time
    if (behind < WALL_STEP_MS) return time
    this.#base += behind
    return time + behind
  }
}
