import { ApiError, isConflict, isForbidden, isInvalid, isNotFound } from '#kube'
import type { Plan } from './plan.ts'
import type { Failure } from './status.ts'
import { called } from './world.ts'

/** A write is refused as things are. Shown on the primary object, and tried again later. */
export class RefusedError extends Error implements Failure {
  override readonly name = 'RefusedError'
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { reason: string }) {
    super(message, options)
    this.reason = options.reason
  }
}

/** Nothing can be created any more where the object lives: it is about to go itself. */
export class NamespaceTerminatingError extends Error {
  override readonly name = 'NamespaceTerminatingError'
}

/** The primary object does not exist any more. */
export class GoneError extends Error {
  override readonly name = 'GoneError'
}

/** The Reconciler is another one by now: nothing that this run would do is asked for any more. */
export class SupersededError extends Error {
  override readonly name = 'SupersededError'
}

/** A function over HTTP gave no outcome, which may pass. */
export class FunctionError extends Error {
  override readonly name = 'FunctionError'
  /** When it wants to be asked again; left out: by backoff. */
  readonly afterSeconds: number | undefined
  /** Nothing answered, or a proxy said so: the function is starting or gone, whatever the object is. */
  readonly isAway: boolean
  constructor(message: string, options: ErrorOptions & { afterSeconds?: number | undefined; isAway: boolean }) {
    super(message, options)
    this.afterSeconds = options.afterSeconds
    this.isAway = options.isAway
  }
}

/** The function did not come back in time. */
export class RunTimeoutError extends Error {
  override readonly name = 'RunTimeoutError'
}

/** It asks for another change after each of its changes: it would write without end. */
export class UnsettledError extends Error {
  override readonly name = 'UnsettledError'
  constructor(rounds: number, last: Plan) {
    const asked = askedFor(last)
    super(`the function asks for a change after each of its changes, ${rounds} times in a row; the last: ${asked}`)
  }
}

/** By name: values may be confidential. */
function askedFor({ stages, metadata, status }: Plan): string {
  const [first, ...others] = stages.flat()
  if (first === undefined && metadata !== undefined) return 'labels and annotations'
  if (first === undefined) return `status ${Object.keys(status?.status ?? {}).join(', ')}`
  return `${first.verb} ${called(first.object)}${others.length === 0 ? '' : ` and ${others.length} more`}`
}

/** What the API server's refusal of a write means; anything that may pass by itself is returned as it is. */
export function refusalOf(error: unknown, what: string): unknown {
  if (!(error instanceof ApiError)) return error
  const { message } = error
  if (error.details.causes?.some((cause) => cause.reason === 'NamespaceTerminating'))
    return new NamespaceTerminatingError(message, { cause: error })
  if (isForbidden(error) || isInvalid(error) || isNotFound(error) || isUntyped(error) || isTooLarge(error))
    return new RefusedError(`${what}: ${message}`, { reason: reasonFor(error), cause: error })
  return error
}

/** Who refuses is only said in the message (Kubernetes 1.36: plugin/resourcequota, validating admission, podsecurity). */
function reasonFor(error: ApiError): string {
  const { reason, message } = error
  if (message.includes('exceeded quota')) return 'QuotaExceeded'
  if (/ denied (?:the )?request|violates PodSecurity/.test(message)) return 'AdmissionDenied'
  if (isTooLarge(error)) return 'TooLarge'
  return reason === '' ? 'Invalid' : reason
}

/** Server-side apply without force: which fields other managers have changed, in the server's words; no values. */
export const fieldsOfOthers = (error: unknown): string[] =>
  isConflict(error) && error instanceof ApiError
    ? (error.details.causes ?? [])
        .filter(({ reason }) => reason === 'FieldManagerConflict')
        .map(({ field, message }) => `${field}: ${message}`)
    : []

/** The object that was observed is not there any more, or is another one by now, or has changed. */
export const isStale = (error: unknown): boolean => isConflict(error) || isOtherUid(error)

/** Server-side apply with the uid of an object that was deleted and created again (Kubernetes 1.36). */
const isOtherUid = (error: unknown): boolean =>
  error instanceof ApiError &&
  error.code === 422 &&
  error.details.causes?.some(({ field }) => field === 'metadata.uid') === true

/** Server-side apply of a field that the schema does not have is answered with a bare 500 (Kubernetes 1.36). */
const isUntyped = (error: ApiError): boolean =>
  error.code === 500 && error.message.includes('failed to create typed patch object')

/** What etcd does not take is answered with a bare 500 (Kubernetes 1.36: its client's limit, or its server's). */
const isTooLarge = ({ code, message }: ApiError): boolean =>
  code === 500 && /trying to send message larger than max|request is too large/.test(message)

export function undefinedIfGone(error: unknown): undefined {
  if (!isNotFound(error)) throw error
}
