import { pause } from './abort.ts'

export interface RetryPolicy {
  /** Ends the attempts: retry() rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  /** Returns the pause before the next attempt in milliseconds, or undefined to reject with the error. */
  pauseMs: (error: unknown) => number | undefined
}

/** Repeats an attempt, after a pause, until it succeeds or the policy gives up. */
export async function retry<T>(attempt: () => Promise<T>, { signal, pauseMs }: RetryPolicy): Promise<T> {
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      signal?.throwIfAborted()
      const ms = pauseMs(error)
      if (ms === undefined) throw error
      await pause(ms, signal)
      signal?.throwIfAborted()
    }
  }
}

/** Returns pauses that double, for one call of retry(). */
export function doubling(firstMs: number, lastMs: number): () => number {
  let next = firstMs
  return () => {
    const ms = next
    next = Math.min(next * 2, lastMs)
    return ms
  }
}

export interface RepeatPolicy {
  signal: AbortSignal
  everyMs: number
  /** Reports that an action has failed. The next action follows all the same. Not called after the signal. */
  failed: (error: unknown) => void
}

/** Repeats an action until the signal is aborted. Pauses after each action, whether it has succeeded or failed. */
export async function repeat(act: () => Promise<unknown>, { signal, everyMs, failed }: RepeatPolicy): Promise<void> {
  while (!signal.aborted) {
    try {
      await act()
    } catch (error) {
      if (!signal.aborted) failed(error)
    }
    await pause(everyMs, signal)
  }
}
