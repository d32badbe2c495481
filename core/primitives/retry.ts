import { setTimeout as sleep } from 'node:timers/promises'

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

/** Rejects with the signal's reason as soon as the signal is aborted. The work itself goes on. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error)
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
    work.then(
      (value) => {
        signal.removeEventListener('abort', abort)
        resolve(value)
      },
      (error: unknown) => {
        signal.removeEventListener('abort', abort)
        reject(error)
      },
    )
  })
}

/** Resolves after this time, or as soon as the signal is aborted. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal })
  } catch (error) {
    if (signal?.aborted !== true) throw error
  }
}

/** Resolves when the work has ended, well or not, after this time, or as soon as the signal is aborted. */
export function endedWithin(ms: number, work: Promise<unknown>, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, ms)
    work.then(end, end)
    if (signal?.aborted) end()
    else signal?.addEventListener('abort', end, { once: true })
  })
}

/**
 * Behaves as Promise.all(), but rejects only when all promises have settled. A caller that cleans up after the failure
 * can rely on it that no work continues in the background.
 */
export async function allEnded<const Work extends readonly unknown[]>(
  work: Work,
): Promise<{ -readonly [Index in keyof Work]: Awaited<Work[Index]> }> {
  await Promise.allSettled(work)
  return Promise.all(work)
}
