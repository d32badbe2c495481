import type { Invoke, Outcome, RunContext, RunInput } from '#contracts'
import { RunTimeoutError } from '#reconcile'

/**
 * Calls a function and stops waiting for it at its time-out or when the signal is aborted, whether it listens to its
 * own signal or not. An endless loop without an await is out of reach here: it stops the whole process.
 */
export async function callWithin(
  timeoutSeconds: number,
  invoke: Invoke,
  input: RunInput,
  { signal, ...context }: RunContext,
): Promise<Outcome> {
  const timeout = new AbortController()
  const timer = setTimeout(
    () => timeout.abort(new RunTimeoutError(`the function did not finish within ${timeoutSeconds} s`)),
    timeoutSeconds * 1000,
  )
  const both = AbortSignal.any([signal, timeout.signal])
  try {
    return await Promise.race([invoke(input, { signal: both, ...context }), rejectOnAbort(both)])
  } finally {
    clearTimeout(timer)
  }
}

const rejectOnAbort = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    const abort = () => reject(signal.reason as Error)
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
  })
