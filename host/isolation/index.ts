import type { Invoke, RunLog } from '#contracts'
import { type Reconciler, toInvoke } from '#sdk'
import { CallTracker } from './call-tracker.ts'
import { exitWhenBlocked } from './event-loop-watchdog.ts'
import { reportExits } from './exits.ts'
import { isolation } from './isolation.ts'
import { catchUnhandledErrors } from './unhandled-errors.ts'

export interface GuardOptions {
  /** The modules of the functions, which threads load again. */
  files: readonly string[]
  leaseMs: number
  log: RunLog
  /** Called with an error that does not come from a function. */
  fatal: (error: unknown) => void
}

export interface Guard extends Disposable {
  invoke: (reconciler: Reconciler) => Invoke
}

/** Restricts failures of functions to the runs that cause them, until disposed. */
export function guardFunctions({ files, leaseMs, log, fatal }: GuardOptions): Guard {
  const calls = new CallTracker()
  const isolated = isolation(files)
  const resources = new DisposableStack()
  resources.use(catchUnhandledErrors(calls, log, fatal))
  resources.use(reportExits(calls, log))
  resources.use(exitWhenBlocked(calls, leaseMs, log))
  return {
    invoke(reconciler) {
      const here = toInvoke(reconciler)
      const apart = isolated(reconciler.name, here)
      const either: Invoke = (input, context) => (context.suspect ? apart : here)(input, context)
      return calls.around(reconciler.name, either)
    },
    [Symbol.dispose]: () => resources.dispose(),
  }
}
