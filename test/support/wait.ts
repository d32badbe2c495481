import { setTimeout as sleep } from 'node:timers/promises'

/** What is waited for may not last. */
const LONGEST_MS = 300

/** Before a condition is looked at again: those that take long to look at shall not be what the machine is busy with. */
const pause = (lookedSince: number, leastMs: number): Promise<void> =>
  sleep(Math.max(leastMs, Math.min(3 * (performance.now() - lookedSince), LONGEST_MS)))

interface Patience {
  /** Between two looks. */
  leastMs: number
  /** Left out: the test's own time-out bounds it. */
  timeoutMs?: number
  what?: string
}

/** Returns when it holds. */
export async function untilHolds(
  holds: () => boolean | Promise<boolean>,
  { leastMs, timeoutMs = Number.POSITIVE_INFINITY, what = holds.toString() }: Patience,
): Promise<void> {
  const deadline = performance.now() + timeoutMs
  for (let began = performance.now(); !(await holds()); began = performance.now()) {
    if (performance.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`)
    await pause(began, leastMs)
  }
}

/** Returns what it returns when it throws no more; its last error if that takes too long. */
export async function untilPasses<T>(condition: () => T | Promise<T>, timeoutMs = 20_000): Promise<T> {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const began = performance.now()
    try {
      return await condition()
    } catch (error) {
      if (performance.now() > deadline) throw error
      await pause(began, 40)
    }
  }
}
