import { ConflictError, type Effect, RetryAfterError, type Scrub } from '#contracts'
import { messageOf } from '#queue/terms'
import { sameJson } from './compare.ts'
import { scrubberOf } from './confidential.ts'
import { EffectError, ExternalError } from './errors.ts'
import { performInput, readInput } from './input.ts'
import {
  type Asking,
  attempt,
  type End,
  endsNow,
  FailedPass,
  failed,
  type Pass,
  type PerformedEffect,
  tellReports,
} from './progress.ts'
import type { Failed } from './vocabulary.ts'

/** The limit of the state that a function may read before a decision, as JSON. */
const MAX_EXTERNAL_BYTES = 1024 * 1024
const TOO_LARGE_RETRY_S = 300
/** The limit of the result of an effect, as JSON. */
const MAX_RESULT_BYTES = 64 * 1024
/** The limit of an effect in a log, and of an error in the function's input, in characters. */
const LONGEST_TOLD = 1000

/**
 * Reads the external system once after each observation. All decisions until the next observation use this state.
 * Returns the end of the pass if the rate limit allows no read now.
 */
export function* read(pass: Pass): Asking<End | undefined> {
  const answer = yield* attempt({ do: 'read', input: readInput(pass) })
  if ('failed' in answer) throw new FailedPass(failureAs(answer, ExternalError))
  if ('limitedMs' in answer) return limited(pass, answer.limitedMs)
  pass.external = { state: stateIn(answer.external) }
  return undefined
}

/** Returns the state as plain JSON. Fails the pass if it is too large. */
function stateIn(value: unknown): unknown {
  let text: string
  try {
    text = JSON.stringify(value) ?? 'null'
  } catch (error) {
    throw failed(error)
  }
  const bytes = Buffer.byteLength(text)
  if (bytes <= MAX_EXTERNAL_BYTES) return JSON.parse(text)
  const message = `what "read" of the external system returned has ${bytes} bytes as JSON, and may have ${MAX_EXTERNAL_BYTES}: return less`
  throw failed(new RetryAfterError(message, { afterSeconds: TOO_LARGE_RETRY_S, reason: 'ExternalTooLarge' }))
}

function limited({ run, unresolved }: Pass, afterMs: number): End {
  const failure = run.performed.at(-1)?.failure
  if (failure !== undefined || unresolved.length > 0) throw new FailedPass(failure)
  if (run.attempt === 0 && run.suspect !== true) return endsNow({ kind: 'requeue', at: { afterMs } })
  // No run has succeeded, so the count of failures and the mark of a suspect stay.
  return endsNow({ kind: 'error', message: 'the rate limit is reached', retryAt: { afterMs }, isCounted: false })
}

const UNSEEN = 'it was performed, but the function asks for it again, because "read" does not show it'

/**
 * Performs the effect of an outcome with these Events, once in a run. Its failure does not fail the pass, except a
 * conflict: the function decides on the result. Returns false if the driver performs no effects.
 */
export function* perform(pass: Pass, effect: Effect, reports: Parameters<typeof tellReports>[1]): Asking<boolean> {
  const { run } = pass
  const before = run.performed.find((one) => sameJson(one.effect, effect))
  if (before !== undefined) {
    tellReports(pass, reports)
    throw new FailedPass(before.failure ?? { failed: new EffectError(new Error(UNSEEN), effect) })
  }
  const scrub = scrubberOf(run)
  const shown = scrub(JSON.stringify(effect)).slice(0, LONGEST_TOLD)
  const answer = yield* attempt({ do: 'perform', input: performInput(pass, effect), shown })
  if ('isSkipped' in answer) return false
  const performed = performedBy(answer, effect, scrub)
  run.tell({ note: 'performed', kind: effect.kind, effect: shown, error: performed.error })
  if (performed.failure?.failed instanceof ConflictError) throw new FailedPass(performed.failure)
  run.performed.push(performed)
  return true
}

function performedBy(answer: { result: unknown } | Failed, effect: Effect, scrub: Scrub): PerformedEffect {
  if ('failed' in answer) {
    const error = scrub(messageOf(answer.failed)).slice(0, LONGEST_TOLD)
    return { effect, error, failure: failureAs(answer, EffectError, effect) }
  }
  const text = JSON.stringify(answer.result)
  if (text === undefined || text === 'null') return { effect }
  const bytes = Buffer.byteLength(text)
  if (bytes <= MAX_RESULT_BYTES) return { effect, result: JSON.parse(text) }
  const error = `its result has ${bytes} bytes as JSON, and may have ${MAX_RESULT_BYTES}: return less`
  return { effect, error, failure: { failed: new EffectError(new Error(error), effect) } }
}

/** Wraps an error, except a conflict, which always begins the run again. */
function failureAs<Effects extends Effect[]>(
  { failed, ...server }: Failed,
  Wrapping: new (cause: unknown, ...effect: Effects) => Error,
  ...effect: Effects
): Failed {
  return { ...server, failed: failed instanceof ConflictError ? failed : new Wrapping(failed, ...effect) }
}
