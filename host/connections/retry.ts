import type { Logger } from 'pino'
import { NatsUnreachableError } from '#jetstream'
import { ApiConnectionError } from '#kube'
import { retry } from '#primitives'

const PAUSE_MS = 500

/** Calls `open` until the servers that it needs answer: at least once, and for this number of seconds. */
export function retryWhileUnreachable<T>(seconds: number, log: Logger, open: () => Promise<T>): Promise<T> {
  const end = performance.now() + seconds * 1000
  const pauseMs = (error: unknown): number | undefined => {
    const isAway = error instanceof NatsUnreachableError || error instanceof ApiConnectionError
    if (!isAway || performance.now() + PAUSE_MS > end) return undefined
    log.warn({ because: error.message }, 'not there yet, trying again')
    return PAUSE_MS
  }
  return retry(open, { pauseMs })
}
