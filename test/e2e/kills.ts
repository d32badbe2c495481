import { setTimeout as sleep } from 'node:timers/promises'
import type { RunInterval } from '../support/runs.ts'
import type { Replica } from './chaos.ts'

/** The time for which all processes serve before the next one is killed. */
const SERVES_MS = 4000
const SUCCESSES = ['success', 'requeue_after']

/**
 * Kills one process after the other with SIGKILL, and starts it again, until the end of the block. Then all of them serve. The
 * next one is killed some seconds after the one before serves again, when each key whose run was cut short has had a run
 * that succeeded: a key whose runs are cut short again and again waits longer each time, up to a quarter of an hour.
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
    while (!signal.aborted && !cut.every((run) => hasSucceeded(run, replicas))) await sleep(200)
  }
}

/** Since the run was cut short, or by it: the last lines of a process are read after its end. */
const hasSucceeded = ({ key, from }: RunInterval, replicas: readonly Replica[]): boolean =>
  replicas.some(({ logs }) =>
    logs.some(
      (line) =>
        line.step === 'finished' &&
        `${line.reconciler}/${line.key}` === key &&
        SUCCESSES.includes(line.result ?? '') &&
        Date.parse(line.time) >= from,
    ),
  )
