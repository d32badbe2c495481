import type { Status, StatusDetails } from './types.ts'

/** The API server answered, and it is no success. The message is the server's own, after the request it answers. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  /** HTTP status. */
  readonly code: number
  /** metav1.StatusReason, e.g. `NotFound`; empty where the answer was no Status. */
  readonly reason: string
  readonly details: StatusDetails
  /** How long the server asks to wait: Retry-After, or the details of its Status. */
  readonly retryAfterSeconds: number | undefined
  /** What was asked, e.g. `GET /api/v1/pods`. */
  readonly request: string
  /** The server's own words. */
  readonly said: string

  constructor(request: string, status: Status, retryAfterSeconds?: number) {
    const said = status.message ?? status.reason ?? 'failed'
    super(`${request}: ${said} (${status.code ?? 0})`)
    this.request = request
    this.said = said
    this.code = status.code ?? 0
    this.reason = status.reason ?? ''
    this.details = status.details ?? {}
    this.retryAfterSeconds = retryAfterSeconds ?? status.details?.retryAfterSeconds
  }
}

/** No request can name such an object: none is sent. */
export class ApiPathError extends Error {
  override readonly name = 'ApiPathError'
}

/** There was no whole answer. */
export class ApiConnectionError extends Error {
  override readonly name = 'ApiConnectionError'
  /** `host:port`. */
  readonly server: string
  /** The request may have reached the server: a write may be done or not. */
  readonly mayHaveTakenEffect: boolean

  constructor(message: string, options: ErrorOptions & { server: string; mayHaveTakenEffect: boolean }) {
    super(message, options)
    this.server = options.server
    this.mayHaveTakenEffect = options.mayHaveTakenEffect
  }
}

/** The answer is not what an API server says: a proxy's page, a line of a watch that is no JSON, an answer without end. */
export class ApiAnswerError extends Error {
  override readonly name: string = 'ApiAnswerError'
}

/** The answer has more bytes than the request admits. */
export class AnswerTooLargeError extends ApiAnswerError {
  override readonly name = 'AnswerTooLargeError'
}

/** A kubeconfig, certificate or service account cannot be used; the message names the file and what to do. */
export class ClusterAccessError extends Error {
  override readonly name = 'ClusterAccessError'
}

const api = (error: unknown): ApiError | undefined => (error instanceof ApiError ? error : undefined)

/** The object does not exist (nor, for a path that is wrong, the resource type). */
export const isNotFound = (error: unknown): boolean => api(error)?.code === 404

/** The name is taken. */
export const isAlreadyExists = (error: unknown): boolean =>
  api(error)?.code === 409 && api(error)?.reason === 'AlreadyExists'

/** The object has moved on, is another one, or another manager owns a field: read again, decide again. */
export const isConflict = (error: unknown): boolean => api(error)?.code === 409 && !isAlreadyExists(error)

/** The history from that resourceVersion (or continue token) on is gone: list again. */
export const isExpired = (error: unknown): boolean => api(error)?.code === 410

/** The server refuses the object or the request as such: sending the same again is pointless. */
export const isInvalid = (error: unknown): boolean => [400, 405, 413, 415, 422].includes(api(error)?.code ?? 0)

/** The credentials are not accepted. */
export const isUnauthorized = (error: unknown): boolean => api(error)?.code === 401

/** Known, but not allowed (RBAC, admission, quota, a namespace that is being deleted). */
export const isForbidden = (error: unknown): boolean => api(error)?.code === 403

/** The same request may succeed later: overload, a server that starts or stops, a broken connection. */
export const isRetriable = (error: unknown): boolean =>
  error instanceof ApiConnectionError || [408, 429, 500, 502, 503, 504].includes(api(error)?.code ?? 0)
