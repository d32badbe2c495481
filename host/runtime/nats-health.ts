import { setTimeout as sleep } from 'node:timers/promises'
import { StreamLostError } from '#jetstream'

/** As long as a change may wait for NATS: longer is no passing trouble. */
const PATIENCE_MS = 30_000
const ASK_EVERY_MS = 5000

export interface Pulse {
  /** Asks until the signal. */
  run(signal: AbortSignal): Promise<void>
  /** That NATS has not answered for half a minute, or nothing. */
  troubles(): string[]
}

/**
 * Whether NATS answers, also while there is nothing to do; `ask` fails when it has waited long enough, or with what `lost`
 * is told.
 */
export function createPulse(
  ask: () => Promise<unknown>,
  now: () => Date,
  lost: (error: StreamLostError) => void = () => undefined,
): Pulse {
  let answeredAt = now()
  return {
    async run(signal) {
      while (!signal.aborted) {
        await ask().then(
          () => {
            answeredAt = now()
          },
          // Else the age of the last answer says it.
          (error: unknown) => (error instanceof StreamLostError ? lost(error) : undefined),
        )
        await sleep(ASK_EVERY_MS, undefined, { signal }).catch(() => undefined)
      }
    },
    troubles() {
      const isPatient = now().getTime() - answeredAt.getTime() <= PATIENCE_MS
      return isPatient ? [] : [`NATS has not answered since ${answeredAt.toISOString()}`]
    },
  }
}
