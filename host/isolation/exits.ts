import type { RunLog } from '#contracts'
import { EXIT } from '#host/exit'
import type { CallTracker } from './call-tracker.ts'

const MAX_NAMES = 20

/**
 * Reports functions that call process.exit(), which ends all runs of the process. The exit code becomes
 * EXIT.byFunction, so that a supervisor restarts the process, and a log line names the function. A call outside of a
 * function's asynchronous context (such as in a listener of its module) is detected by the exit code 0: Fairlead's own
 * exits have other codes, and have logged their reason.
 */
export function reportExits(calls: CallTracker, log: RunLog): Disposable {
  const exiting = (code: number) => {
    const { current } = calls
    if (current === undefined && code !== EXIT.ok) return
    const by = current && { reconciler: current.reconciler, object: current.object }
    const names = Array.from(calls.underWay, ({ reconciler, object }) => `${reconciler} ${object}`)
    log.error(
      { ...by, code, calls: names.length, underWay: names.slice(0, MAX_NAMES) },
      'a function has ended the process, all keys of the process are lost: let it throw an error instead',
    )
    // Node.js reads the code of process.exit() only after its listeners.
    process.exitCode = EXIT.byFunction
  }
  process.on('exit', exiting)
  return { [Symbol.dispose]: () => void process.off('exit', exiting) }
}
