import type { Invoke } from '#contracts'
import type { DeadMessage } from '#events'
import type { TokenBucket } from '#primitives'
import type { Reconciled, SettledWrites } from '#reconcile'
import type { EventRecorder } from '../apply/event-recorder.ts'
import type { WritersDependencies } from '../apply/writers.ts'
import type { Adoptions } from '../observe/adoptions.ts'
import type { ReconcilerVersion } from '../observe/reconciler-version.ts'
import type { StateBudget } from '../observe/state-budget.ts'
import type { RunObserver } from '../run-steps.ts'
import type { FunctionCalls } from './function-calls.ts'
import type { EndedRun } from './trail.ts'

export interface ReconciliationDependencies extends WritersDependencies {
  settled: SettledWrites
  state: StateBudget
  adoptions: Adoptions
  recorder: Pick<EventRecorder, 'record'>
  calls: FunctionCalls
  now: () => Date
  random: () => number
  /** Text that cannot be guessed. */
  seed: () => string
  observe: RunObserver
  /** Told of each run that has ended, once its end is stored. Nothing waits for it. Left out: nobody keeps the history. */
  ended?: ((run: EndedRun) => void) | undefined
  /** Traces are collected. */
  sampled: boolean
  /** Told of each effect, which is then not performed. Left out: effects are performed. */
  skipEffect?: (effect: string) => void
  deadLetter: ((dead: DeadMessage) => Promise<void>) | undefined
}

/** A reconciler and the function that is called for it. */
export interface ServedReconciler extends Reconciled {
  invoke: Invoke
  /** Undefined: no other version of the Reconciler comes. */
  reconcilerVersion: ReconcilerVersion | undefined
  /** Of calls that read or change the external system of the function. Left out: no limit. */
  rateLimit?: TokenBucket | undefined
  /** Told which revision has decided on an object; returns when the object has to run again for that. */
  ranBy?: (revision: string | undefined) => Date | undefined
}
