import { ApiConnectionError, ApiError, isExpired, isForbidden, isInvalid, isNotFound, isUnauthorized } from '#kube'

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
  if (isExpired(error) || isTooLarge(error)) return 'expired'
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
