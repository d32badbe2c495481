import { setTimeout as sleep } from 'node:timers/promises'

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
