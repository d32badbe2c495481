import type { RunLog } from '#contracts'
import { type Note, RunTimeoutError } from '#reconcile'
import { causeOf, failureFields } from '../log.ts'
import type { ReconciliationDependencies } from './dependencies.ts'

/** Passes a note of the reconcile machine to the component that handles it. */
export function reportNote(
  { recorder, kube, settled, observe }: ReconciliationDependencies,
  of: { reconciler: string; key: string },
  log: RunLog,
  note: Note,
): void {
  switch (note.note) {
    case 'event':
      return recorder.record(kube, of.reconciler, note.object, note.event)
    case 'settled':
      return settled.remember(note.target, note.value)
    case 'dropped':
      return observe({ step: 'dropped', ...of })
    case 'failed':
      log.warn({ ...failureFields(note.error, note.shown), finish: withoutMessage(note.finish) }, 'run failed')
      if (causeOf(note.error) instanceof RunTimeoutError) observe({ step: 'timedOut', ...of })
      return
    case 'performed': {
      const { effect, error } = note
      if (error === undefined) return log.info({ effect }, 'effect performed')
      return log.warn({ effect, err: { message: error } }, 'effect failed')
    }
    case 'unreported':
      return log.warn(failureFields(note.error, note.shown), 'failure not shown on the object')
  }
}

/** Removes the message, which is the same as the error's. */
const withoutMessage = (finish: object): object => ({ ...finish, message: undefined })
