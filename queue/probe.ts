import { type Core, measured } from './core.ts'

/** After this time, the server may have given up the probe itself. */
const PATIENCE_MS = 30_000
/** Expiry of the probe's messages: twice PATIENCE_MS, so that the firing can be read before it expires. */
const TTL = '60s'

/**
 * A schedule that is due at once. nats-server fires schedules in rounds; each round fires everything that is due, in
 * the order in which it was stored. When the probe has fired, the server has tried all schedules that were stored
 * before it and due before it, however late the server is.
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
