import { url as debuggerUrl } from 'node:inspector'
import { Worker } from 'node:worker_threads'
import type { RunLog } from '#contracts'
import { EXIT } from '../exit.ts'
import type { CallTracker } from './exits.ts'

/** The data that both threads share: the count of turns of the event loop, and whether the process is about to end. */
export interface WatchdogData {
  shared: Int32Array
  limitMs: number
  /** The number of samples of the event loop in that time. */
  looks: number
  /** The event that the process logs, with the innermost frames of the stack. */
  event: string
}
export const TURNS = 0
export const ENDING = 1

const LOOKS = 20
const EVENT = 'fairlead:stalled'

/**
 * Ends the process when a function blocks its event loop: the loop cannot be interrupted from within, and all keys of
 * the process would lose their leases. A second thread detects the block, and its debugger logs the place. After the
 * restart, the key backs off as after a run that never ended. Inactive with a debugger attached, which blocks the event
 * loop too.
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
    // The exit code for a process that ends by itself before the exit below.
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
