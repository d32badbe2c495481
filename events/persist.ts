import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog } from '#contracts'
import { ERR, JetStreamError, UnknownOutcomeError } from '#jetstream'

export interface Persistence {
  signal?: AbortSignal | undefined
  log: RunLog
}

const FIRST_PAUSE_MS = 25
const LONGEST_PAUSE_MS = 1000
const IN_FLIGHT_PAUSE_MS = 2

/** Repeats a request that is harmless to repeat until the server has given a definite answer, or the signal ends it. */
export async function persist<T>(request: () => Promise<T>, { signal, log }: Persistence): Promise<T> {
  let pause = FIRST_PAUSE_MS
  for (;;) {
    try {
      return await request()
    } catch (error) {
      signal?.throwIfAborted()
      if (isInFlight(error)) {
        await sleep(IN_FLIGHT_PAUSE_MS)
        continue
      }
      if (!isPassing(error)) throw error
      if (pause === LONGEST_PAUSE_MS) log.warn({ err: error }, 'JetStream gives no definite answer, trying again')
    }
    await unlessAborted(sleep(pause), signal)
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS)
  }
}

/** Rejects with the signal's reason as soon as it is given; the work itself goes on. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const abort = () => aborted.reject(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([work, aborted.promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** R3: another publish to the same subject is under way. */
const isInFlight = (error: unknown): boolean => error instanceof JetStreamError && error.errCode === ERR.publishInFlight

/** No answer, or no leader just now. */
const isPassing = (error: unknown): boolean => error instanceof UnknownOutcomeError || isUnanswered(error)

/** There is no leader, no room, or no such stream. */
export const isUnanswered = (error: unknown): boolean => error instanceof JetStreamError && error.code === 503
