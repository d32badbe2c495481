import { url as debuggerUrl } from 'node:inspector'
import { Worker } from 'node:worker_threads'
import type { RunLog } from '#contracts'
import { EXIT } from '#host/exit'
import type { CallTracker } from './call-tracker.ts'

/** What both threads see: how often the event loop has turned, and whether the process is going to end. */
export interface WatchdogData {
  shared: Int32Array
  limitMs: number
  /** Looks at the event loop during that time. */
  looks: number
  /** Event of the process, with the innermost frames of the stack. */
  event: string
}
export const TURNS = 0
export const ENDING = 1

const LOOKS = 20
const EVENT = 'fairlead:stalled'

/**
 * A function that blocks the event loop cannot be stopped from within, and meanwhile all keys of the process lose their
 * leases. A second thread sees that, has the debugger say where it hangs, and the process ends: it is restarted, and
 * the key backs off as one whose run has never ended. Not with a debugger attached, which blocks as well.
 */
export function exitWhenBlocked(calls: CallTracker, limitMs: number, log: RunLog): Disposable {
  if (debuggerUrl() !== undefined) return { [Symbol.dispose]() {} }
  const shared = new Int32Array(new SharedArrayBuffer(8))
  const watch: WatchdogData = { shared, limitMs, looks: LOOKS, event: EVENT }
  const turning = setInterval(() => Atomics.add(shared, TURNS, 1), limitMs / LOOKS).unref()
  const thread = new Worker(new URL('./event-loop-watchdog-thread.ts', import.meta.url), { workerData: watch })
  thread.unref()
  const stalled = (stack: string[]) => {
    const seconds = limitMs / 1000
    if (calls.current === undefined) return log.warn({ seconds, stack }, 'the event loop is blocked, by no function')
    const { reconciler, object } = calls.current
    log.error(
      { reconciler, object, seconds, stack },
      'a function has blocked the process for longer than the lease, all keys of the process are lost: exiting',
    )
    Atomics.store(shared, ENDING, 1)
    // A command that comes to its own end before ends no other way.
    process.once('exit', () => (process.exitCode = EXIT.byFunction))
    calls.outside(() => setTimeout(() => process.exit(EXIT.byFunction), 0))
  }
  process.on(EVENT, stalled)
  return {
    [Symbol.dispose]() {
      clearInterval(turning)
      process.off(EVENT, stalled)
      void thread.terminate()
    },
  }
}
