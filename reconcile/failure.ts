import { ConflictError, RetryAfterError } from '#contracts'
import { backoffMs, type Due, dueDate, type Finish } from '#queue/terms'
import { keepsStatus } from '#spec'
import { withheld } from './confidential.ts'
import { type Consequence, consequenceOf, ExternalError, GoneError, gravest, UnsettledError } from './errors.ts'
import { type Asking, attempt, type End, endsNow, isLastPass, type Pass, type Run, tellEvents } from './progress.ts'
import { type Failure, failurePatch } from './status.ts'
import type { Failed } from './vocabulary.ts'

/** The shortest pause after a failed run whose outcome asks for an earlier run than the failure. */
const SHORTEST_PAUSE_MS = 60_000
const OWN_TIMES = [ExternalError, UnsettledError, RetryAfterError] as const
/** The longest time for which a run that never settles keeps its key. */
const LONGEST_WAIT_MS = 10_000

/**
 * Ends a pass after an error and the refusals before it: shows the failure on the object, if it lasts. `pass` is
 * undefined if the run has not observed its object.
 */
export function* fail(run: Run, pass: Pass | undefined, given: Failed | undefined): Asking<End> {
  const failure = gravest([...(given === undefined ? [] : [given]), ...refusalsIn(pass)])
  const { failed: error } = failure
  const soon = soonAfter(run, error)
  if (soon !== undefined) return soon
  const { finish: due, report: own, readyUnknown, shown } = withheld(run, error, consequenceIn(run, failure))
  const finish = atRequeue(pass, [failure], due)
  run.tell({ note: 'failed', error, shown, finish })
  const refusal = refusalOf(pass)
  const report = own ?? refusal
  if ((report ?? readyUnknown) !== undefined && pass !== undefined) {
    const { object } = pass.world
    tellEvents(pass, report === undefined ? [] : [{ type: 'Warning', ...report }])
    const also = { refusal, readyUnknown, isTerminal: due.kind === 'terminal' }
    const patch = keepsStatus(run.of.spec) && failurePatch(object, report, pass.now, also)
    if (patch) {
      const answer = yield* attempt({ do: 'writeStatus', object, patch, mayBeDropped: false })
      if ('failed' in answer) return unreported(run, pass, answer, failure)
    }
  }
  if (error instanceof UnsettledError) yield { do: 'wait', ms: waitMs(run) }
  return endsNow(finish)
}

/** Returns the failure that the object shows for all refused writes of its outcome. */
export function refusalOf(pass: Pass | undefined): Failure | undefined {
  const refusals = refusalsIn(pass)
  if (pass === undefined || refusals.length === 0) return undefined
  const failure = gravest(refusals)
  return withheld(pass.run, failure.failed, consequenceIn(pass.run, failure)).report
}

const refusalsIn = (pass: Pass | undefined): Failed[] => pass?.unresolved.map(({ error }) => ({ failed: error })) ?? []

/** Ends a pass in which the failure `cause` could not be written to the object, because of `failure`. */
function unreported(run: Run, pass: Pass, failure: Failed, cause: Failed): End {
  const { failed: error } = failure
  const soon = soonAfter(run, error)
  if (soon !== undefined) return soon
  const { finish, shown } = withheld(run, error, consequenceIn(run, failure))
  run.tell({ note: 'unreported', error, shown })
  return endsNow(atRequeue(pass, [cause, failure], finish))
}

/**
 * Returns the end at the time that the outcome asks for, if that is earlier: what is planned for this time does not wait for the
 * failed write. It is no sooner than a minute after the run, so that a failed run is never repeated more often than with the
 * backoff alone, up to one that waits a minute. An outcome that is not valid writes nothing,
 * and is not counted.
 */
function atRequeue(pass: Pass | undefined, failures: readonly Failed[], finish: Finish): Finish {
  if (pass?.requeue === undefined || !('message' in finish) || failures.some(hasOwnTime)) return finish
  const { requeue, now } = pass
  const inMs = (due: Due) => dueDate(due, now).getTime() - now.getTime()
  // A delay counts from the end of the run. A date could have come by then.
  const retryAt = { afterMs: Math.max(inMs(requeue), SHORTEST_PAUSE_MS) }
  if (finish.kind === 'terminal')
    return { kind: 'error', message: finish.message, retryAt, isCounted: false, isTimer: true }
  return retryAt.afterMs < inMs(finish.retryAt) ? { ...finish, retryAt, isTimer: true } : finish
}

/** Whether the time of the next run follows from the failure alone. */
const hasOwnTime = ({ failed, server }: Failed): boolean =>
  server?.retryAfterSeconds !== undefined || OWN_TIMES.some((error) => failed instanceof error)

/** Returns the end of a pass whose error is no failure: its object is gone, or has changed. */
function soonAfter(run: Run, error: unknown): End | undefined {
  if (error instanceof GoneError) return endsNow({ kind: 'done' })
  return error instanceof ConflictError && !isLastPass(run) ? 'again' : undefined
}

const consequenceIn = ({ attempt, random, of }: Run, { failed, server }: Failed): Consequence =>
  consequenceOf(failed, { attempt, backoff: of.spec.backoff, random: () => random, server })

/**
 * A run that never settles keeps its key for a while. The bridge does not recognise a write as the run's own if the
 * watch reports it after the run, or if bridge and dispatcher are different processes. It then runs the key at once, in
 * spite of the backoff.
 */
const waitMs = ({ attempt, random, of }: Run): number =>
  Math.min(
    backoffMs(attempt, of.spec.backoff, () => random),
    LONGEST_WAIT_MS,
  )
