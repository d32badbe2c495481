import type { Runnable } from '#contracts'
import { StreamLostError } from '#jetstream'
import { repeat } from '#primitives'

/** A change may wait for NATS as long as this. */
const UNHEALTHY_AFTER_MS = 30_000
const ASK_EVERY_MS = 5000

export interface NatsHealth extends Runnable {
  /** That NATS has not answered for half a minute, or nothing. */
  troubles(): string[]
}

/**
 * Whether NATS answers, also while there is nothing to do; `ask` fails when it has waited long enough, or with what `lost`
 * is told.
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
      // Any other failure shows in the age of the last answer.
      const failed = (error: unknown) => (error instanceof StreamLostError ? lost(error) : undefined)
      return repeat(askOnce, { signal, everyMs: ASK_EVERY_MS, failed })
    },
    troubles() {
      const isHealthy = now().getTime() - answeredAt.getTime() <= UNHEALTHY_AFTER_MS
      return isHealthy ? [] : [`NATS has not answered since ${answeredAt.toISOString()}`]
    },
  }
}
