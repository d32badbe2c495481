import { ConflictError, type Effect, type KubeObject, placeOf, RetryAfterError, TerminalError } from '#contracts'
import { backoffMs, type Finish, messageOf } from '#queue/terms'
import { type Backoff, kindNotGranted, type ReconcilerSpec } from '#spec'
import type { TakenField } from './brake.ts'
import { inMib, REASON } from './outcome.ts'
import type { Plan } from './plan.ts'
import type { Failure } from './status.ts'
import type { Failed } from './vocabulary.ts'
import { called } from './world.ts'

/**
 * The API server refuses a write in the present state of the cluster. The primary object shows the refusal, and the
 * write is tried again later.
 */
export class RefusedError extends Error implements Failure {
  override readonly name = 'RefusedError'
  readonly reason: string
  /** The fields that other managers have, if that is why. */
  readonly taken: readonly TakenField[]
  constructor(message: string, options: ErrorOptions & { reason: string; taken?: readonly TakenField[] }) {
    super(message, options)
    this.reason = options.reason
    this.taken = options.taken ?? []
  }
}

/** The object's namespace is being deleted, so the API server refuses new objects in it. */
export class NamespaceTerminatingError extends Error {
  override readonly name = 'NamespaceTerminatingError'
}

/** The primary object no longer exists. */
export class GoneError extends Error {
  override readonly name = 'GoneError'
}

/** A function over HTTP, or one that waits for a process of its own, returned no outcome. The error may pass. */
export class FunctionError extends Error {
  override readonly name = 'FunctionError'
  /** The delay before the next request that the function asks for. Left out: the backoff applies. */
  readonly afterSeconds: number | undefined
  /**
   * No server of the function answered, or a proxy reported that: the function is starting or gone. Or no process was
   * free. The object is not the cause.
   */
  readonly isAway: boolean
  /** The answer names the function, so that no proxy has made it. */
  readonly isSigned: boolean
  constructor(message: string, options: ErrorOptions & { afterSeconds?: number; isAway: boolean; isSigned?: boolean }) {
    super(message, options)
    this.isSigned = options.isSigned ?? false
    this.afterSeconds = options.afterSeconds
    this.isAway = options.isAway
  }
}

/**
 * Returns the message of an error after the place where the function has thrown it: `TypeError at src/website.ts:12:5:
 * …`. An error whose words are for the users of the object has the words alone.
 */
function toldBy(error: unknown): string {
  const place = error instanceof TerminalError || error instanceof RetryAfterError ? undefined : placeOf(error)
  return place === undefined ? messageOf(error) : `${place}: ${messageOf(error)}`
}

/** The external system could not be read. The class of the cause decides the consequence. */
export class ExternalError extends Error implements Failure {
  override readonly name: string = 'ExternalError'
  readonly reason: string
  constructor(cause: unknown, what = 'the external system cannot be read', reason = 'ExternalReadFailed') {
    super(`${what}: ${toldBy(cause)}`, { cause })
    this.reason = (cause as Partial<Failure> | undefined)?.reason ?? reason
  }
}

/** An effect failed. The class of the cause decides the consequence. */
export class EffectError extends ExternalError {
  override readonly name = 'EffectError'
  constructor(cause: unknown, { kind }: Effect) {
    super(cause, `effect ${kind}`, 'EffectFailed')
  }
}

/** These begin the messages of runs whose function blocks or ends its process, or waits for a process of its own. */
export const BLOCKED_AT = 'Blocked at '
export const ENDED_PROCESS = 'the function ended its process: '
export const NOT_CALLED = 'the function is not called yet: '
/** This begins the message of a run whose request was not handled, because the API server is away. */
export const SERVER_AWAY = 'the API server is away: '
/** This begins it while the API server answers, and refuses every write. */
export const STORE_FULL = 'the API server cannot write, because its store is full: '

/** The function did not return in time. */
export class RunTimeoutError extends Error {
  override readonly name = 'RunTimeoutError'
}

/** The function returns another change after each of its changes. The run would never stop writing. */
export class UnsettledError extends Error {
  override readonly name = 'UnsettledError'
  constructor(rounds: number, last: Plan) {
    const asked = askedFor(last)
    super(`the function asks for a change after each of its changes, ${rounds} times in a row; the last: ${asked}`)
  }
}

/** Names the first write without values, which may be confidential. */
function askedFor({ stages, fields, acts, metadata, status }: Plan): string {
  const [first, ...others] = [...stages.flat(), ...fields, ...acts]
  if (first === undefined && metadata !== undefined) return 'labels and annotations'
  if (first === undefined) return `status ${Object.keys(status?.status ?? {}).join(', ')}`
  return `${first.verb} ${called(first.object)}${others.length === 0 ? '' : ` and ${others.length} more`}`
}

/** The number of failures in a row before the object shows an error that may pass. Most such errors pass earlier. */
const FAILURES_SHOWN_FROM = 5
/**
 * The failures of the function in a row at which its object does not count as ready any more: 2, 4, 8, … Whoever sets
 * Ready to True meanwhile, as another function of the object may, is contradicted less and less often.
 */
const makesReadyUnknown = (failures: number): boolean => failures > 1 && Number.isInteger(Math.log2(failures))
/** The deletion of a namespace takes seconds, or is blocked for days: frequent retries are useless. */
const TERMINATING_RETRY_MS = 60_000
/** Each attempt reads objects up to the limit. A change of one of these objects runs the key at once. */
const TOO_MUCH_STATE_RETRY_MS = 300_000

/** The next run waits until the API server answers. The dispatcher looks for it every two seconds. */
const AWAY_RETRY_MS = 1000

/** The number of refusals that one message lists. */
const REFUSALS_TOLD = 8
const LONGEST_TOLD = 1000

interface Failing {
  attempt: number
  backoff: Backoff
  /** 0 ≤ x < 1 */
  random: () => number
  server?: Failed['server']
}

/** The consequence of a failed run: when the key runs again, and what its object shows in the meantime. */
export interface Consequence {
  finish: Finish
  report: Failure | undefined
  /** The function fails again and again, so Ready is Unknown instead of True. */
  readyUnknown?: Failure | undefined
}

export function consequenceOf(error: unknown, failing: Failing): Consequence {
  const message = toldBy(error)
  if (error instanceof ExternalError) {
    const { finish, report, readyUnknown } = consequenceOf(error.cause, failing)
    return {
      finish: 'message' in finish ? { ...finish, message } : finish,
      report: report && failure(error),
      readyUnknown: readyUnknown && failure(error),
    }
  }
  const { attempt, backoff, random, server } = failing
  const after = (afterMs: number) => ({ kind: 'error' as const, message, retryAt: { afterMs } })
  const backedOff = () => after(backoffMs(attempt, backoff, random))
  const unknownBy = (lasting: Error) => (makesReadyUnknown(attempt + 1) ? failure(lasting) : undefined)
  const reported = (lasting: Error) => (attempt + 1 < FAILURES_SHOWN_FROM ? undefined : failure(lasting))
  const ofFunction = (lasting: Error) => ({ report: reported(lasting), readyUnknown: unknownBy(lasting) })
  const asError = error instanceof Error ? error : new Error(message)

  if (error instanceof TerminalError) return { finish: { kind: 'terminal', message }, report: failure(error) }
  if (error instanceof RetryAfterError)
    return { finish: after(error.afterSeconds * 1000), report: failure(error), readyUnknown: unknownBy(error) }
  if (error instanceof FunctionError) {
    const finish = error.afterSeconds === undefined ? backedOff() : after(error.afterSeconds * 1000)
    const shown = error.isSigned ? ofFunction(error) : { report: reported(error) }
    return { finish: { ...finish, isCounted: !error.isAway }, ...(error.isAway ? SILENT : shown) }
  }
  if (error instanceof RefusedError) return { finish: backedOff(), report: failure(error) }
  if (error instanceof TooMuchStateError) return { finish: after(TOO_MUCH_STATE_RETRY_MS), report: failure(error) }
  if (error instanceof KindNotListedError)
    return attempt === 0
      ? { finish: after(FIRST_UNLISTED_RETRY_MS), ...SILENT }
      : { finish: after(UNLISTED_RETRY_MS), report: failure(error) }
  if (error instanceof NamespaceTerminatingError) return { finish: after(TERMINATING_RETRY_MS), ...SILENT }
  if (server?.isAway === true)
    return { finish: { ...after(AWAY_RETRY_MS * (1 + random())), isCounted: false }, ...SILENT }
  if (server?.retryAfterSeconds !== undefined) return { finish: after(server.retryAfterSeconds * 1000), ...SILENT }
  return { finish: backedOff(), ...(server === undefined ? ofFunction(asError) : SILENT) }
}

/** What the object shows of a failure that is not about it. */
const SILENT = { report: undefined }

/**
 * Returns the failure that decides how the run continues: a conflict first, then an error that may pass, then all
 * refusals together.
 */
export function gravest(failures: readonly Failed[]): Failed {
  const isRefused = ({ failed }: Failed): boolean => failed instanceof RefusedError
  const transient = failures.find((failure) => !isRefused(failure))
  if (transient !== undefined) return failures.find(({ failed }) => failed instanceof ConflictError) ?? transient
  const refused = failures.map(({ failed }) => failed).filter((error) => error instanceof RefusedError)
  const [first] = refused
  if (first === undefined || refused.length === 1) return { failed: first }
  const told = refused.slice(0, REFUSALS_TOLD).map(({ message }) => message.slice(0, LONGEST_TOLD))
  const others = refused.length - told.length
  const message = [...told, ...(others > 0 ? [`and ${others} more`] : [])].join('; ')
  return { failed: new RefusedError(message, { reason: first.reason, cause: first }) }
}

/**
 * Shortens and corrects a reason or message that metav1.Condition would refuse, so that the object shows the failure.
 */
function failure(error: Error & Partial<Failure>): Failure {
  const { reason = '' } = error
  return { reason: REASON.test(reason) ? reason.slice(0, 1024) : error.name, message: toldBy(error).slice(0, 32_768) }
}

/** Nothing is told of the first failure: most lists take less than a second. */
const FIRST_UNLISTED_RETRY_MS = 5000
/** At the end of the list a bridge runs the object at once. */
const UNLISTED_RETRY_MS = 60_000

/**
 * Returns the error of an object that names a kind that its Reconciler does not have. A change of one of both runs it, also
 * while it is being deleted.
 */
export function notGranted(spec: ReconcilerSpec, object: KubeObject): TerminalError | undefined {
  const fault = kindNotGranted(spec, object)
  if (fault === undefined) return undefined
  const isGoing = object.metadata.deletionTimestamp !== undefined
  const wait = isGoing ? '. Its deletion waits for this, or until the object names a kind that is granted, or none' : ''
  return new TerminalError(`${fault}${wait}`, { reason: 'KindNotGranted' })
}

/** The object names a kind whose objects a bridge has not listed completely. */
export class KindNotListedError extends Error implements Failure {
  override readonly name = 'KindNotListedError'
  readonly reason = 'KindNotListed'
  constructor(kind: string, path: string, why = 'its objects are not listed completely yet') {
    super(`${path} names ${kind}, and the function is not called: ${why}`)
  }
}

/** The objects of one resource that a run reads. */
export interface Read {
  /** `configmaps.v1` */
  resource: string
  count: number
  /** The size as JSON. */
  bytes: number
}

/** The process does not have enough memory for the objects of the run. The primary object shows the error. */
export class TooMuchStateError extends Error implements Failure {
  override readonly name = 'TooMuchStateError'
  readonly reason = 'TooMuchState'
  constructor(read: readonly Read[], maxBytes: number) {
    const largest = read.filter(({ bytes }) => bytes * 100 > maxBytes).toSorted((a, b) => b.bytes - a.bytes)
    const found = largest.map(({ resource, count, bytes }) => `${count} ${resource} (${inMib(bytes)})`).join(', ')
    super(
      `the function is not called, because the objects that it would be given are larger than ${inMib(maxBytes)} ` +
        `together: ${found} were read before the limit was reached. Reduce the objects that spec.owns and spec.related ` +
        `of the Reconciler select, or raise FAIRLEAD_MAX_STATE_MIB`,
    )
  }
}
