import { ApiConnectionError, ApiError, isExpired, isForbidden, isInvalid, isNotFound, isUnauthorized } from '#kube'

/** Why a list or watch stopped, by what it takes to go on. */
export type FailureKind =
  /** The history that was asked for is gone, or not there yet: list again. */
  | 'expired'
  /** The server asks for patience: the same watch again, later. */
  | 'busy'
  /** No (whole) answer from the server: the same watch again, later. */
  | 'unreachable'
  /** Not allowed: heals when somebody grants it. */
  | 'forbidden'
  /** No such resource: heals when somebody installs its definition. */
  | 'absent'
  /** The server refuses this very request, or what it gives cannot be watched, so repeating is pointless: list again, later. */
  | 'rejected'
  | 'other'

export interface Failure {
  kind: FailureKind
  message: string
  /** At least so long before the next try, when the server said so. */
  retryAfterMs?: number
}

/** The resource is no store of objects: nothing of it could be told apart, or compared with what was there before. */
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

/** Who refuses watches once more than that does not merely start. */
const STARTING_ATTEMPTS = 2

/** Normal for a second or two after a resource, or the API server, has come into being; `attempt` counts from 1. */
export const isStarting = ({ kind, message }: Failure, attempt: number): boolean =>
  kind === 'busy' && attempt <= STARTING_ATTEMPTS && message.includes('storage is (re)initializing')

/** The server knows no such resourceVersion yet: it lags behind another one, or was restored from a backup. */
const isTooLarge = (error: unknown): boolean =>
  error instanceof ApiError && (error.details.causes ?? []).some(({ reason }) => reason === 'ResourceVersionTooLarge')
