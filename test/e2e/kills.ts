import { setTimeout as sleep } from 'node:timers/promises'
import type { Replica } from './chaos.ts'

/** The time for which all processes serve before the next one is killed. */
const SERVES_MS = 4000

/**
 * Kills one process after the other with SIGKILL, and starts it again, until the end of the block. Then all of them serve. The
 * next one is killed some seconds after the one before serves again, whatever it was doing.
 */
export function killInTurn(replicas: readonly Replica[]): AsyncDisposable {
  const over = new AbortController()
  const killing = killUntil(over.signal, replicas)
  // Thrown at the end of the block.
  killing.catch(() => undefined)
  return {
    async [Symbol.asyncDispose]() {
      over.abort()
      await killing
    },
  }
}

async function killUntil(signal: AbortSignal, replicas: readonly Replica[]): Promise<void> {
  for (let at = 0; replicas.length > 0; at = (at + 1) % replicas.length) {
    await sleep(SERVES_MS, undefined, { signal }).catch(() => undefined)
    for (const replica of replicas) replica.expectAlive()
    if (signal.aborted) return
    const victim = replicas[at]!
    await victim.kill()
    await victim.start().logged(({ msg }) => msg === 'started')
  }
}
