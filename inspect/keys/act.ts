import type { RetryOutcome, WithdrawOutcome, WorkQueue } from '#queue'
import { type KeyName, keyFor } from './select.ts'
import type { Act } from './states.ts'

export interface ActResult extends KeyName {
  reconciler: string
  result: RetryOutcome | WithdrawOutcome
}

/** The time-out for the answers of NATS about one batch of keys. */
const TIMEOUT_MS = 10_000
const AT_ONCE = 64

/** Yields the result for each key as soon as it is known. */
export async function* actOn(
  queue: WorkQueue,
  act: Act,
  reconciler: string,
  names: readonly KeyName[],
  signal: AbortSignal,
): AsyncGenerator<ActResult> {
  for (let first = 0; first < names.length; first += AT_ONCE) {
    const either = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)])
    yield* await Promise.all(
      names.slice(first, first + AT_ONCE).map(async (name) => ({
        reconciler,
        ...name,
        result: await queue[act](keyFor(reconciler, name), either),
      })),
    )
  }
}

export const MEANING = {
  queued: 'queued',
  running: 'running',
  parked: 'parked until it is retried or changes',
  purged: 'purged',
}

/** Whether the key has the state that the user requested. */
export const isDone = (result: ActResult['result'], act: Act): boolean =>
  act === 'retry' ? result === 'queued' || result === 'running' : result === 'parked' || result === 'purged'
