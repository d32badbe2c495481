import { setTimeout as sleep } from 'node:timers/promises'

/** The longest pause, since a condition may hold only for a short time. */
const LONGEST_MS = 300

/** Before a condition is looked at again: those that take long to look at shall not be what the machine is busy with. */
const pause = (lookedSince: number, leastMs: number): Promise<void> =>
  sleep(Math.max(leastMs, Math.min(3 * (performance.now() - lookedSince), LONGEST_MS)))

export interface Patience {
  /**
   * The time-out in milliseconds, after which the last error of the condition is thrown, or an error that names the
   * condition.
   */
  timeoutMs?: number
  /** Between two looks, at least. */
  leastMs?: number
  /** Throws when the condition cannot come true any more: that ends the wait at once. */
  unless?: () => void
  what?: string
}

/** Returns what the condition gives, once it neither throws nor gives false. */
export async function until<T>(
  condition: () => T | Promise<T>,
  { timeoutMs = 240_000, leastMs = 40, unless, what = condition.toString() }: Patience = {},
): Promise<T> {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const began = performance.now()
    unless?.()
    try {
      const given = await condition()
      if (given !== false) return given
      if (began > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`)
    } catch (error) {
      if (began > deadline) throw error
    }
    await pause(began, leastMs)
  }
}
