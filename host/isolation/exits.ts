import type { RunLog } from '#contracts'
import { EXIT } from '#host/exit'
import type { CallTracker } from './call-tracker.ts'

const MAX_NAMES = 20

/**
 * A function that calls process.exit() takes all runs of its process along. That is no good end, whatever code it gives:
 * a supervisor shall start the process again, and people shall know whom to ask. Where it is not called in a function's
 * asynchronous context (a listener of its module, say), the code 0 tells: Fairlead's own exits have another one, and have
 * said why.
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
    // The code that process.exit() was given is read only after its listeners.
    process.exitCode = EXIT.byFunction
  }
  process.on('exit', exiting)
  return { [Symbol.dispose]: () => void process.off('exit', exiting) }
}
