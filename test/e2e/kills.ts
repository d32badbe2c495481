import { setTimeout as sleep } from 'node:timers/promises'
import type { RunInterval } from '../support/runs.ts'
import type { Replica } from './chaos.ts'

/** For how long all processes serve before the next one is killed. */
const SERVES_MS = 4000
/** For a run that was cut short to be made again. A log may lack its last lines. */
const REPEATED_MS = 60_000

/**
 * Kills one process after the other with SIGKILL, and starts it again, until the end of the block. Then all of them serve. The
 * next one is killed some seconds after the one before serves again, when the runs that were cut short have been made again: a
 * key whose runs are cut short again and again waits longer each time.
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
    const cut = victim.runs().filter((run) => run.cut)
    await victim.start().logged(({ msg }) => msg === 'started')
    const limit = AbortSignal.any([signal, AbortSignal.timeout(REPEATED_MS)])
    while (!limit.aborted && !areRepeated(cut, replicas)) await sleep(200)
  }
}

function areRepeated(cut: readonly RunInterval[], replicas: readonly Replica[]): boolean {
  const whole = replicas.flatMap((replica) => replica.runs()).filter((run) => !run.cut)
  return cut.every(({ key, to }) => whole.some((run) => run.key === key && run.from >= to))
}
