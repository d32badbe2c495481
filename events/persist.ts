import type { RunLog } from '#contracts'
import { ERR, isPassing, JetStreamError } from '#jetstream'
import { doubling, retry } from '#primitives'

export interface Persistence {
  signal?: AbortSignal | undefined
  log: RunLog
}

const FIRST_PAUSE_MS = 25
const LONGEST_PAUSE_MS = 1000
const IN_FLIGHT_PAUSE_MS = 2

/**
 * Repeats a request until the server has given a definite answer, or the signal aborts. The request must be safe to
 * repeat.
 */
export function persist<T>(request: () => Promise<T>, { signal, log }: Persistence): Promise<T> {
  const nextPause = doubling(FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
  const pauseMs = (error: unknown): number | undefined => {
    if (isInFlight(error)) return IN_FLIGHT_PAUSE_MS
    if (!isPassing(error)) return undefined
    const ms = nextPause()
    if (ms === LONGEST_PAUSE_MS) log.warn({ err: error }, 'JetStream gives no definite answer, trying again')
    return ms
  }
  return retry(request, { signal, pauseMs })
}

/** Whether another publish to the same subject is under way, on a stream with replicas. */
const isInFlight = (error: unknown): boolean => error instanceof JetStreamError && error.errCode === ERR.publishInFlight
