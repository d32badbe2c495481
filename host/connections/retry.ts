import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { NatsUnreachableError } from '#jetstream'
import { ApiConnectionError } from '#kube'

const PAUSE_MS = 500

/** Calls `open` until the servers that it needs answer: for so many seconds, and at least once. */
export async function retryWhileUnreachable<T>(seconds: number, log: Logger, open: () => Promise<T>): Promise<T> {
  const end = performance.now() + seconds * 1000
  for (;;) {
    try {
      return await open()
    } catch (error) {
      const isAway = error instanceof NatsUnreachableError || error instanceof ApiConnectionError
      if (!isAway || performance.now() + PAUSE_MS > end) throw error
      log.warn({ because: error.message }, 'not there yet, trying again')
      await sleep(PAUSE_MS)
    }
  }
}
