import { type Core, measured } from './core.ts'

/** After that it may have been given up itself. */
const PATIENCE_MS = 30_000
/** Twice that: what has fired is read, and goes by itself. */
const TTL = '60s'

/**
 * A schedule that is due at once. nats-server carries out schedules in rounds, each of them everything that is due, in the
 * order in which it was stored. When this one has fired, all that were stored before and due before have been tried,
 * however late the server is.
 */
export class Probe {
  readonly #core: Core
  readonly #fired: string
  readonly #armedAt = performance.now()

  private constructor(core: Core, fired: string) {
    this.#core = core
    this.#fired = fired
  }

  static async arm(core: Core, reconciler: string): Promise<Probe> {
    const { schedule, fired } = core.names.probe(reconciler, core.nonce())
    const at = new Date(Math.ceil(await measured(core)))
    await core.js.publish(schedule, '', {
      'Nats-Schedule': `@at ${at.toISOString()}`,
      'Nats-Schedule-Target': fired,
      'Nats-Schedule-TTL': TTL,
      'Nats-TTL': TTL,
    })
    return new Probe(core, fired)
  }

  async look(): Promise<'waiting' | 'fired' | 'lost'> {
    const { js, names } = this.#core
    if ((await js.lastOf(names.stream, this.#fired)) !== undefined) return 'fired'
    return performance.now() - this.#armedAt > PATIENCE_MS ? 'lost' : 'waiting'
  }
}
