import type { Runnable } from '#contracts'
import { StreamLostError } from '#jetstream'
import { repeat } from '#primitives'

/** The process is unhealthy after this time without an answer of NATS, for which a change may have to wait. */
const UNHEALTHY_AFTER_MS = 30_000
const ASK_EVERY_MS = 5000

export interface NatsHealth extends Runnable {
  /** Reports that NATS has not answered for half a minute; empty otherwise. */
  troubles(): string[]
}

/**
 * Checks whether NATS answers, even while there are no changes. `ask` rejects after its time-out, or with the error
 * that `lost` receives.
 */
export function createNatsHealth(
  ask: () => Promise<unknown>,
  now: () => Date,
  lost: (error: StreamLostError) => void = () => undefined,
): NatsHealth {
  let answeredAt = now()
  return {
    run(signal) {
      const askOnce = async () => {
        await ask()
        answeredAt = now()
      }
      // Other failures increase the age of the last answer.
      const failed = (error: unknown) => (error instanceof StreamLostError ? lost(error) : undefined)
      return repeat(askOnce, { signal, everyMs: ASK_EVERY_MS, failed })
    },
    troubles() {
      const isHealthy = now().getTime() - answeredAt.getTime() <= UNHEALTHY_AFTER_MS
      return isHealthy ? [] : [`NATS has not answered since ${answeredAt.toISOString()}`]
    },
  }
}
