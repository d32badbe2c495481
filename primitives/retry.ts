import { pause } from './abort.ts'

export interface RetryPolicy {
  /** Ends the attempts: the caller gets its reason. */
  signal?: AbortSignal | undefined
  /** The pause before the next attempt, in milliseconds. Undefined: the error goes to the caller. */
  pauseMs: (error: unknown) => number | undefined
}

/** Attempts again, after a pause, until an attempt succeeds or the policy gives up. */
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

/** Pauses that double, for one call of retry(). */
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
  /** An action has failed. The next one follows all the same. Not called after the signal. */
  failed: (error: unknown) => void
}

/** Acts until the signal, with a pause after each action, whether it has succeeded or failed. */
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
