import { ApiConnectionError, ApiError, isExpired, isForbidden, isInvalid, isNotFound, isUnauthorized } from '#kube'

/**
 * The reason for a list: there is no cursor, the history is gone, NATS may have lost messages, the routes have changed,
 * or objects were swept.
 */
export type Relist = 'initial' | 'expired' | 'store-restarted' | 'routes' | 'swept'

interface Try {
  /** The number of failures since the last healthy period, or since the server began to answer again. */
  attempt: number
  /** The attempt before was not answered. */
  unanswered?: true
}
type Starting = { phase: 'starting' } & Try
/** `stream`: lists as a stream, until an attempt of this list has failed. */
export type Listing = { phase: 'listing'; because: Relist; stream: boolean } & Try
/** `lists`: a list begins beside the watch, so that changes do not wait for it. */
export type Watching = { phase: 'watching'; resourceVersion: string; lists?: Relist } & Try
type Waiting = { phase: 'waiting'; ms: number; failure: Failure; next: Starting | Listing | Watching }

export type State = Starting | Listing | Watching | Waiting

export type Input =
  /**
   * The cursor was read. A list comes first if there is no cursor, or if it does not cover all keys. `mayWatch`: it may
   * be watched during a list.
   */
  | { type: 'resumed'; resourceVersion: string | undefined; relist: Relist | undefined; mayWatch?: boolean }
  | { type: 'listed'; resourceVersion: string }
  /** The server ended the watch normally. resourceVersion is the newest that it sent. */
  | { type: 'ended'; resourceVersion: string; events: number; openMs: number }
  | { type: 'failed'; failure: Failure; resourceVersion?: string; openMs: number }
  | { type: 'waited' }
  | { type: 'demanded'; because: Relist; mayWatch?: boolean }
  /** Confirmed messages may be lost. Only the cursor proves progress. */
  | { type: 'recheck' }

const HEALTHY_MS = 10_000
const VERY_SHORT_MS = 1000
const FIRST_DELAY_MS = 800
const LAST_DELAY_MS = 30_000
/**
 * The longest delay if a definition or a permission is missing, or the server does not answer. An administrator may be
 * about to correct that, so it is short.
 */
const LAST_DELAY_OF_THE_MISSING_MS = 5000
const LAST_DELAY_OF_THE_UNREACHABLE_MS = 10_000

/** Returns the state after `input`. `random` is a number in [0, 1). */
export function step(state: State, input: Input, random: number): State {
  switch (input.type) {
    case 'resumed':
      if (input.resourceVersion === undefined) return listing('initial')
      if (input.relist === undefined) return watching(input.resourceVersion)
      return isBeside(input.relist, input)
        ? { ...watching(input.resourceVersion), lists: input.relist }
        : listing(input.relist)
    case 'listed':
      return watching(input.resourceVersion, state.phase === 'listing' && !wasUnanswered(state) ? state.attempt : 0)
    case 'demanded':
      return state.phase === 'watching' && isBeside(input.because, input)
        ? { ...state, lists: input.because }
        : listing(input.because)
    case 'recheck':
      return { phase: 'starting', attempt: 0 }
    case 'waited':
      return state.phase === 'waiting' ? state.next : state
    case 'ended':
      return afterEnd(input, attemptOf(state), random)
    case 'failed':
      return afterFailure(state, input, random)
  }
}

/** A loss in NATS leaves the position in the history of the API server: the watch continues there during the list. */
const isBeside = (because: Relist, { mayWatch = false }: { mayWatch?: boolean }): boolean =>
  mayWatch && because === 'store-restarted'

/** Delays a watch that ends at once without data. Otherwise it would be requested in a hot loop. */
function afterEnd(end: Input & { type: 'ended' }, attempt: number, random: number): State {
  if (end.events > 0 || end.openMs >= VERY_SHORT_MS) {
    return watching(end.resourceVersion, end.openMs >= HEALTHY_MS ? 0 : attempt)
  }
  const failure: Failure = { kind: 'other', message: 'the watch ended within a second, without an event' }
  return waiting(failure, watching(end.resourceVersion, attempt + 1), attempt, random)
}

function afterFailure(state: State, input: Input & { type: 'failed' }, random: number): State {
  const { failure, openMs, resourceVersion } = input
  // After a long time without an answer, a server that starts may refuse the watch or report an expired history. Such
  // an answer begins a new count of failures.
  const answersAgain = wasUnanswered(state) && failure.kind !== 'unreachable'
  const attempt = openMs >= HEALTHY_MS || answersAgain ? 0 : attemptOf(state)
  const again = retried(state, attempt + 1, resourceVersion)
  switch (failure.kind) {
    case 'expired': {
      const relist: Listing = again.phase === 'listing' ? again : listing('expired', attempt + 1)
      return attempt === 0 ? relist : waiting(failure, relist, attempt, random)
    }
    case 'rejected':
      return waiting(failure, again.phase === 'listing' ? again : listing('expired', attempt + 1), attempt, random)
    case 'busy':
    case 'unreachable':
    case 'forbidden':
    case 'absent':
    case 'other':
      return waiting(failure, again, attempt, random)
  }
}

/** Returns the same state for another attempt. A watch continues after the changes that it has received. */
function retried(state: State, attempt: number, resourceVersion: string | undefined): Waiting['next'] {
  switch (state.phase) {
    case 'starting':
      return { phase: 'starting', attempt }
    case 'listing':
      return { phase: 'listing', because: state.because, attempt, stream: false }
    case 'watching':
      return watching(resourceVersion ?? state.resourceVersion, attempt)
    case 'waiting':
      return { ...state.next, attempt }
  }
}

const lastTry = (state: State): Try => (state.phase === 'waiting' ? state.next : state)
const attemptOf = (state: State): number => lastTry(state).attempt
const wasUnanswered = (state: State): boolean => lastTry(state).unanswered === true

const listing = (because: Relist, attempt = 0): Listing => ({ phase: 'listing', because, attempt, stream: true })

const watching = (resourceVersion: string, attempt = 0): Watching => ({ phase: 'watching', resourceVersion, attempt })

const waiting = (failure: Failure, next: Waiting['next'], attempt: number, random: number): Waiting => ({
  phase: 'waiting',
  ms: delayMs(failure, attempt, random),
  failure,
  next: failure.kind === 'unreachable' ? { ...next, unanswered: true } : next,
})

/**
 * Returns a delay of 800 ms, doubling to 30 s at most, times a random factor from 1 to 2. It is never shorter than the
 * server asked for.
 */
function delayMs(failure: Failure, attempt: number, random: number): number {
  const backoff = Math.min(FIRST_DELAY_MS * 2 ** attempt, lastDelayMs(failure)) * (1 + random)
  return Math.round(Math.max(backoff, failure.retryAfterMs ?? 0))
}

function lastDelayMs({ kind }: Failure): number {
  if (kind === 'absent' || kind === 'forbidden') return LAST_DELAY_OF_THE_MISSING_MS
  return kind === 'unreachable' ? LAST_DELAY_OF_THE_UNREACHABLE_MS : LAST_DELAY_MS
}

/** The reason why a list or watch stopped, by the condition for its continuation. */
export type FailureKind =
  /** The requested history is gone, or does not exist yet: list again. */
  | 'expired'
  /** The server is overloaded or starting: repeat the same watch later. */
  | 'busy'
  /** The server gave no complete answer: repeat the same watch later. */
  | 'unreachable'
  /** The permission is missing. The watch continues as soon as it is granted. */
  | 'forbidden'
  /** The resource does not exist. The watch continues as soon as its definition is installed. */
  | 'absent'
  /**
   * The server refuses this request, or its objects cannot be watched. To repeat the request is pointless: list again
   * later.
   */
  | 'rejected'
  | 'other'

export interface Failure {
  kind: FailureKind
  message: string
  /** The shortest delay before the next attempt, if the server asked for one. */
  retryAfterMs?: number
}

/** The resource does not consist of stored objects: its items have no identity and cannot be compared with EVENTS. */
export class UnwatchableError extends Error {
  override readonly name = 'UnwatchableError'
}

/** The history of the API server ends before the position of a watch. */
export class RestoredError extends Error {
  override readonly name = 'RestoredError'
}

export function classify(error: unknown): Failure {
  const message = error instanceof Error ? error.message : String(error)
  const retryAfterSeconds = error instanceof ApiError ? error.retryAfterSeconds : undefined
  return {
    kind: kindOf(error),
    message,
    ...(retryAfterSeconds === undefined ? {} : { retryAfterMs: retryAfterSeconds * 1000 }),
  }
}

function kindOf(error: unknown): FailureKind {
  if (isExpired(error) || isTooLarge(error) || error instanceof RestoredError) return 'expired'
  if (error instanceof ApiConnectionError) return 'unreachable'
  if (isForbidden(error) || isUnauthorized(error)) return 'forbidden'
  if (isNotFound(error)) return 'absent'
  if (isInvalid(error) || error instanceof UnwatchableError) return 'rejected'
  return error instanceof ApiError && error.code === 429 ? 'busy' : 'other'
}

/** The number of attempts for which a refused watch counts as starting. */
const STARTING_ATTEMPTS = 2

/**
 * Whether the storage of a resource is starting. That is normal for a second or two after its definition, or the API
 * server, has come into being. `attempt` counts from 1.
 */
export const isStarting = ({ kind, message }: Failure, attempt: number): boolean =>
  kind === 'busy' && attempt <= STARTING_ATTEMPTS && message.includes('storage is (re)initializing')

/**
 * Whether the server does not know this resourceVersion yet: it lags behind another server, or was restored from a
 * backup.
 */
const isTooLarge = (error: unknown): boolean =>
  error instanceof ApiError && (error.details.causes ?? []).some(({ reason }) => reason === 'ResourceVersionTooLarge')
