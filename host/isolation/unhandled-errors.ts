import type { RunLog } from '#contracts'
import type { CallTracker } from './call-tracker.ts'

/**
 * Makes an unhandled error (a rejected promise without a handler, a throw in a timer) end only the run that caused it.
 * An error outside of all runs is Fairlead's own and goes to `fatal`.
 */
export function catchUnhandledErrors(calls: CallTracker, log: RunLog, fatal: (error: unknown) => void): Disposable {
  const caught = (error: unknown) => {
    const call = calls.current
    if (call === undefined) return fatal(error)
    if (!call.ended) return call.fail(error)
    const { reconciler, object } = call
    log.error({ err: error, reconciler, object }, 'error left behind by a run of a function that had ended')
  }
  const events = ['unhandledRejection', 'uncaughtException'] as const
  for (const event of events) process.on(event, caught)
  return {
    [Symbol.dispose]() {
      for (const event of events) process.off(event, caught)
    },
  }
}
