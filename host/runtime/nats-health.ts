import { setTimeout as sleep } from 'node:timers/promises'
import { StreamLostError } from '#jetstream'

/** A change may wait for NATS as long as this. */
const UNHEALTHY_AFTER_MS = 30_000
const ASK_EVERY_MS = 5000

export interface NatsHealth {
  /** Asks until the signal. */
  run(signal: AbortSignal): Promise<void>
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
    async run(signal) {
      while (!signal.aborted) {
        await ask().then(
          () => {
            answeredAt = now()
          },
          // Other failures show as the age of the last answer.
          (error: unknown) => (error instanceof StreamLostError ? lost(error) : undefined),
        )
        await sleep(ASK_EVERY_MS, undefined, { signal }).catch(() => undefined)
      }
    },
    troubles() {
      const isHealthy = now().getTime() - answeredAt.getTime() <= UNHEALTHY_AFTER_MS
      return isHealthy ? [] : [`NATS has not answered since ${answeredAt.toISOString()}`]
    },
  }
}
