import type { Status, StatusDetails } from './types.ts'

const LONGEST_WAIT_S = 300

/** The API server answered with an error. The message has the request, and then the server's message. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  /** HTTP status. */
  readonly code: number
  /** metav1.StatusReason, e.g. `NotFound`; empty if the answer was not a Status. */
  readonly reason: string
  readonly details: StatusDetails
  /**
   * The wait that the server asks for, in Retry-After or in the details of its Status: five minutes at most, because a webhook
   * may ask for any.
   */
  readonly retryAfterSeconds: number | undefined
  /** Of a list that is expired between two pages: the position of those that are left, as they are now. */
  readonly continue: string | undefined
  /** The request, e.g. `GET /api/v1/pods`. */
  readonly request: string
  /** The server's message. */
  readonly said: string

  constructor(request: string, status: Status, retryAfterSeconds?: number) {
    const said = status.message ?? status.reason ?? 'failed'
    super(`${request}: ${said} (${status.code ?? 0})`)
    this.request = request
    this.said = said
    this.code = status.code ?? 0
    this.reason = status.reason ?? ''
    this.details = status.details ?? {}
    this.continue = status.metadata?.continue
    const asked = retryAfterSeconds ?? status.details?.retryAfterSeconds
    this.retryAfterSeconds = asked && Math.min(asked, LONGEST_WAIT_S)
  }
}

/** The name or namespace cannot be part of an API path. No request is sent. */
export class ApiPathError extends Error {
  override readonly name = 'ApiPathError'
}

/** No complete answer came. */
export class ApiConnectionError extends Error {
  override readonly name: string = 'ApiConnectionError'
  /** `host:port`. */
  readonly server: string
  /** The request may have reached the server, so a write may have been done. False: there was no connection for it. */
  readonly wasSent: boolean

  constructor(message: string, options: ErrorOptions & { server: string; wasSent: boolean }) {
    super(message, options)
    this.server = options.server
    this.wasSent = options.wasSent
  }
}

/**
 * The answer does not come from an API server or is broken: a proxy's page, a line of a watch that is not JSON, an
 * answer without an end.
 */
export class ApiAnswerError extends Error {
  override readonly name: string = 'ApiAnswerError'
}

/** The answer has more bytes than the request admits. */
export class AnswerTooLargeError extends ApiAnswerError {
  override readonly name = 'AnswerTooLargeError'
}

/** A kubeconfig, certificate or service account cannot be used. The message names the file and the fix. */
export class ClusterAccessError extends Error {
  override readonly name = 'ClusterAccessError'
}

const api = (error: unknown): ApiError | undefined => (error instanceof ApiError ? error : undefined)

/** The object does not exist, or the path is wrong and the resource type does not exist. */
export const isNotFound = (error: unknown): boolean => api(error)?.code === 404

/** The name is taken. */
export const isAlreadyExists = (error: unknown): boolean =>
  api(error)?.code === 409 && api(error)?.reason === 'AlreadyExists'

/** The object has changed or was replaced, or another manager owns a field: read it again, and decide again. */
export const isConflict = (error: unknown): boolean => api(error)?.code === 409 && !isAlreadyExists(error)

/** The server no longer has the history from this resourceVersion or continue token: list again. */
export const isExpired = (error: unknown): boolean => api(error)?.code === 410

/** The server refuses the object or the request itself: sending it again is pointless. */
export const isInvalid = (error: unknown): boolean => [400, 405, 413, 415, 422].includes(api(error)?.code ?? 0)

/** The server does not accept the credentials. */
export const isUnauthorized = (error: unknown): boolean => api(error)?.code === 401

/** The user is known, but the request is not allowed (RBAC, admission, quota, a namespace that is being deleted). */
export const isForbidden = (error: unknown): boolean => api(error)?.code === 403

/** The same request may succeed later: overload, a server that starts or stops, a broken connection. */
export const isRetriable = (error: unknown): boolean =>
  error instanceof ApiConnectionError || [408, 429, 500, 502, 503, 504].includes(api(error)?.code ?? 0)
