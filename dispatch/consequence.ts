import { type Backoff, ConflictError, RetryAfterError, TerminalError } from '#contracts'
import { ApiConnectionError, ApiError } from '#kube'
import { backoffMs, type Finish, messageOf } from '#queue'
import { FunctionError, NamespaceTerminatingError, RefusedError } from './errors.ts'
import { type Failure, REASON } from './status.ts'
import { TooMuchStateError } from './too-much-state.ts'

/** In a row. Before, what may pass by itself is not shown on the object: it mostly does. */
const FAILURES_SHOWN_FROM = 5
/** A namespace takes seconds to go, or hangs for days: nothing is gained by asking often. */
const TERMINATING_RETRY_MS = 60_000
/** Each attempt reads up to the limit. A change of what is read runs the key at once. */
const TOO_MUCH_STATE_RETRY_MS = 300_000

export interface Circumstances {
  attempt: number
  backoff: Backoff
  random: () => number
}

/** What a failed run leads to: when the key runs again, and what its object shows meanwhile. */
export interface Consequence {
  finish: Finish
  report: Failure | undefined
}

export function consequenceOf(error: unknown, { attempt, backoff, random }: Circumstances): Consequence {
  const message = messageOf(error)
  const after = (afterMs: number) => ({ kind: 'error' as const, message, retryAt: { afterMs } })
  const backedOff = () => after(backoffMs(attempt, backoff, random))
  const lasting = (lastingError: Error) => (attempt + 1 < FAILURES_SHOWN_FROM ? undefined : failure(lastingError))
  const asError = error instanceof Error ? error : new Error(message)

  if (error instanceof TerminalError) return { finish: { kind: 'terminal', message }, report: failure(error) }
  if (error instanceof RetryAfterError) return { finish: after(error.afterSeconds * 1000), report: failure(error) }
  if (error instanceof FunctionError) {
    const finish = error.afterSeconds === undefined ? backedOff() : after(error.afterSeconds * 1000)
    return { finish: { ...finish, isCounted: !error.isAway }, report: error.isAway ? undefined : lasting(error) }
  }
  if (error instanceof RefusedError) return { finish: backedOff(), report: failure(error) }
  if (error instanceof TooMuchStateError) return { finish: after(TOO_MUCH_STATE_RETRY_MS), report: failure(error) }
  if (error instanceof NamespaceTerminatingError) return { finish: after(TERMINATING_RETRY_MS), report: undefined }
  if (error instanceof ApiError && error.retryAfterSeconds !== undefined)
    return { finish: after(error.retryAfterSeconds * 1000), report: undefined }
  const isOfTheServer = error instanceof ApiError || error instanceof ApiConnectionError
  return { finish: backedOff(), report: isOfTheServer ? undefined : lasting(asError) }
}

/** Of several failures of one run, the one that decides how it goes on: moved state first, then what is to be shown. */
export function gravest(errors: readonly unknown[]): unknown {
  const refused = errors.filter((error) => error instanceof RefusedError)
  const transient = errors.find((error) => !(error instanceof RefusedError))
  if (transient !== undefined) return errors.find((error) => error instanceof ConflictError) ?? transient
  const [first] = refused
  if (first === undefined || refused.length === 1) return first
  return new RefusedError(refused.map(({ message }) => message).join('; '), { reason: first.reason, cause: first })
}

/** A reason or message that metav1.Condition would refuse must not keep the failure from being shown. */
function failure(error: Error & Partial<Failure>): Failure {
  const { reason = '' } = error
  return { reason: REASON.test(reason) ? reason.slice(0, 1024) : error.name, message: error.message.slice(0, 32_768) }
}
