import { ConflictError, type Effect, RetryAfterError } from '#contracts'
import { type Finish, messageOf } from '#queue/terms'
import { sameJson } from './compare.ts'
import { scrubberOf } from './confidential.ts'
import { EffectError, ExternalError } from './errors.ts'
import { fail } from './failure.ts'
import { performInput, readInput } from './input.ts'
import { after, finish, lookAgain, type Pass, type PerformedEffect, type Step, step, tell } from './progress.ts'
import type { FeasiblePlan } from './refusals.ts'
import type { Answer, Ask, Failed, Note } from './vocabulary.ts'

type PerformAsk = Ask & { do: 'perform' }

/** The limit of the state that a function may read before a decision, as JSON. */
const MAX_EXTERNAL_BYTES = 1024 * 1024
const TOO_LARGE_RETRY_S = 300
/** The limit of the result of an effect, as JSON. */
const MAX_RESULT_BYTES = 64 * 1024
/** The limit of an effect in a log, and of an error in the function's input, in characters. */
const LONGEST_TOLD = 1000
/** The pause after a pass that has performed effects in all its rounds. */
const PAUSE_MS = 1000

/** Reads the external system once after each observation. All decisions until the next observation use this state. */
export const read = (pass: Pass): Step => step({ at: 'reading', pass }, { do: 'read', input: readInput(pass) })

/** Returns the state as plain JSON. Throws a RetryAfterError if it is too large. */
export function stateIn(value: unknown): unknown {
  const text = JSON.stringify(value) ?? 'null'
  const bytes = Buffer.byteLength(text)
  if (bytes <= MAX_EXTERNAL_BYTES) return JSON.parse(text)
  const message = `what "read" of the external system returned has ${bytes} bytes as JSON, and may have ${MAX_EXTERNAL_BYTES}: return less`
  throw new RetryAfterError(message, { afterSeconds: TOO_LARGE_RETRY_S, reason: 'ExternalTooLarge' })
}

export const unreadable = (pass: Pass, failure: Failed): Step => fail(pass, failureAs(failure, ExternalError))

/** Ends the run, because the rate limit allows no read now. */
export function limited(pass: Pass, afterMs: number): Step {
  const failure = pass.performed.at(-1)?.failure
  if (failure !== undefined || pass.standing.length > 0) return fail(pass, failure)
  // No run has succeeded, so the count of failures stays.
  const how: Finish =
    pass.attempt === 0
      ? { kind: 'requeue', at: { afterMs } }
      : { kind: 'error', message: 'the rate limit is reached', retryAt: { afterMs }, isCounted: false }
  return finish(pass, how, { mayLookAgain: false })
}

/** Performs the effect after all other writes of the decision. A run performs an effect once. */
export function perform(pass: Pass, plan: FeasiblePlan, effect: Effect): Step {
  const before = pass.performed.find((one) => sameJson(one.effect, effect))
  if (before === undefined) {
    const shown = scrubberOf(pass)(JSON.stringify(effect)).slice(0, LONGEST_TOLD)
    return step({ at: 'performing', pass, plan }, { do: 'perform', input: performInput(pass, effect), shown })
  }
  const [told, notes] = tell(pass, pass.world.object, plan.events)
  return after(notes, fail(told, before.failure ?? { failed: new EffectError(new Error(UNSEEN), effect) }))
}

const UNSEEN = 'it was performed, but the function asks for it again, because "read" does not show it'

/**
 * Continues after an effect, which may have failed or have an unknown result: the external system is read again. After
 * a conflict the run begins again.
 */
export function performed(pass: Pass, plan: FeasiblePlan, { input, shown }: PerformAsk, answer: Answer): Step {
  if ('did' in answer && answer.did === 'skip') return leaveUnperformed(pass, plan)
  const { effect } = input
  const done = whatCameOf(pass, effect, answer)
  const notes: Note[] = [{ note: 'performed', kind: effect.kind, effect: shown, error: done.error }]
  if (done.failure?.failed instanceof ConflictError) return after(notes, fail(pass, done.failure))
  return after(notes, lookAgain({ ...pass, performed: [...pass.performed, done] }, plan))
}

function whatCameOf(pass: Pass, effect: Effect, answer: Answer): PerformedEffect {
  if ('failed' in answer) {
    const error = scrubberOf(pass)(messageOf(answer.failed)).slice(0, LONGEST_TOLD)
    return { effect, error, failure: failureAs(answer, EffectError, effect) }
  }
  const text = 'result' in answer ? JSON.stringify(answer.result) : undefined
  if (text === undefined || text === 'null') return { effect }
  const bytes = Buffer.byteLength(text)
  if (bytes <= MAX_RESULT_BYTES) return { effect, result: JSON.parse(text) }
  const error = `its result has ${bytes} bytes as JSON, and may have ${MAX_RESULT_BYTES}: return less`
  return { effect, error, failure: { failed: new EffectError(new Error(error), effect) } }
}

/** Ends the run for a driver that performs no effects: the next decision would depend on the result. */
function leaveUnperformed(pass: Pass, { events, requeue }: FeasiblePlan): Step {
  const [told, notes] = tell(pass, pass.world.object, events)
  const how: Finish = requeue === undefined ? { kind: 'done' } : { kind: 'requeue', at: requeue }
  return after(notes, finish(told, how, { mayLookAgain: false }))
}

/** Continues a pass that has performed effects in another run. Returns undefined if it has performed none. */
export function goesOnLater(pass: Pass): Step | undefined {
  const last = pass.performed.at(-1)
  if (last === undefined) return undefined
  if (last.failure !== undefined) return fail(pass, last.failure)
  return finish(pass, { kind: 'requeue', at: { afterMs: PAUSE_MS } }, { mayLookAgain: false })
}

/** Wraps an error, except a conflict, which always begins the run again. */
function failureAs<Effects extends Effect[]>(
  { failed }: Failed,
  Wrapping: new (cause: unknown, ...effect: Effects) => Error,
  ...effect: Effects
): Failed {
  return { failed: failed instanceof ConflictError ? failed : new Wrapping(failed, ...effect) }
}
