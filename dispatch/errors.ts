import type { KubeObject } from '#contracts'
import { ApiConnectionError, ApiError, ApiPathError, isConflict, isForbidden, isInvalid, isNotFound } from '#kube'
import { type Failed, NamespaceTerminatingError, RefusedError, type TakenField } from '#reconcile'
import { ApiServerAwayError } from './gate.ts'

/** The Reconciler has changed, so the results of this run are no longer wanted. */
export class SupersededError extends Error {
  override readonly name = 'SupersededError'
}

/**
 * Translates the API server's refusal of a write. An error that may pass is returned unchanged. `object`: the object to
 * be written.
 */
export function refusalOf(error: unknown, what: string, object?: KubeObject): unknown {
  if (error instanceof ApiPathError)
    return new RefusedError(`${what}: ${error.message}`, { reason: 'Invalid', cause: error })
  if (!(error instanceof ApiError)) return error
  const message = (object && (escalationIn(error.said, object) ?? misplacedIn(error, object))) ?? error.said
  if (error.details.causes?.some((cause) => cause.reason === 'NamespaceTerminating'))
    return new NamespaceTerminatingError(message, { cause: error })
  const isRefused = [isForbidden, isInvalid, isNotFound, isUntyped, isTooLarge, isUnadmitted].some((is) => is(error))
  if (isRefused) return new RefusedError(`${what}: ${message}`, { reason: reasonFor(error), cause: error })
  return error
}

/** Explains a path that does not exist. Its answer has no object name. */
function misplacedIn(error: ApiError, { kind, metadata }: KubeObject): string | undefined {
  if (!isNotFound(error) || error.details.name !== undefined) return undefined
  const cure =
    metadata.namespace === undefined
      ? `${kind} is not served outside of namespaces: give the object metadata.namespace`
      : `${kind} is not served in namespaces: an object in a namespace cannot own it, a cluster-scoped one can`
  return `${error.said}. ${cure}`
}

/**
 * Returns the reason of a refusal. Only the message shows which plugin refused (Kubernetes 1.36: plugin/resourcequota,
 * validating admission, podsecurity).
 */
function reasonFor(error: ApiError): string {
  const { reason, message } = error
  if (message.includes('exceeded quota')) return 'QuotaExceeded'
  if (/ denied (?:the )?request|violates PodSecurity/.test(message)) return 'AdmissionDenied'
  if (isTooLarge(error)) return 'TooLarge'
  if (isUnadmitted(error)) return 'AdmissionFailed'
  return reason === '' ? 'Invalid' : reason
}

/**
 * Returns the fields that other managers have changed, after an apply without force, in the server's text. It has no
 * values.
 */
export const fieldsOfOthers = (error: unknown): string[] =>
  fieldConflicts(error).map(({ field, message }) => `${field}: ${message}`)

/**
 * Returns the same fields with their managers, except `own`: a webhook changes a request under the name of its sender.
 */
export const takenFrom = (error: unknown, own: string): TakenField[] =>
  fieldConflicts(error)
    .map(({ field = '', message = '' }) => ({ field, manager: quotedIn(message) }))
    .filter(({ manager }) => manager !== own)

/** Returns the quoted name in a message. The API server quotes names as Go does. */
function quotedIn(message: string): string | undefined {
  const [quoted] = /"(?:[^"\\]|\\.)*"/.exec(message) ?? []
  try {
    return quoted && String(JSON.parse(quoted))
  } catch {
    return quoted?.slice(1, -1)
  }
}

const fieldConflicts = (error: unknown): { field?: string; message?: string }[] =>
  isConflict(error) && error instanceof ApiError
    ? (error.details.causes ?? []).filter(({ reason }) => reason === 'FieldManagerConflict')
    : []

/** Whether the observed object is gone, was replaced, or has changed. */
export const isStale = (error: unknown): boolean => isConflict(error) || isOtherUid(error)

/** Server-side apply with the uid of an object that was deleted and created again (Kubernetes 1.36). */
const isOtherUid = (error: unknown): boolean =>
  error instanceof ApiError &&
  error.code === 422 &&
  error.details.causes?.some(({ field }) => field === 'metadata.uid') === true

/**
 * Server-side apply of a field that the schema does not have, or of a value that the field's type does not accept (a
 * quantity `lots`). The API server answers with a 500 without a reason (Kubernetes 1.36).
 */
const isUntyped = ({ code, message }: ApiError): boolean =>
  code === 500 && /failed to (?:create typed patch object|convert new object)/.test(message)

/**
 * An object that is too large for the API server (413: a request over 3 MiB), or for etcd. Then the API server answers
 * with a 500 without a reason (Kubernetes 1.36: the limit of its etcd client, or of etcd itself).
 */
const isTooLarge = ({ code, message }: ApiError): boolean =>
  code === 413 || (code === 500 && /trying to send message larger than max|request is too large/.test(message))

/** A webhook for this kind does not answer (a 500 without a reason, Kubernetes 1.36). Other kinds can be written. */
const isUnadmitted = ({ code, message }: ApiError): boolean =>
  code === 500 && message.includes('failed calling webhook')

export function undefinedIfGone(error: unknown): undefined {
  if (!isNotFound(error)) throw error
}

/** Returns a failure in the form of a run's answer. */
export function failedBy(error: unknown): Failed {
  if (error instanceof ApiServerAwayError)
    return { failed: error, server: { retryAfterSeconds: undefined, isAway: true } }
  if (error instanceof ApiError) return { failed: error, server: { retryAfterSeconds: error.retryAfterSeconds } }
  return error instanceof ApiConnectionError
    ? { failed: error, server: { retryAfterSeconds: undefined } }
    : { failed: error }
}

/** Kubernetes 1.36, pkg/registry/rbac/validation: one line for each rule that the account lacks. */
const ESCALATION = /user "([^"]*)" \(groups=.*?\) is attempting to grant RBAC permissions not currently held:\n(.*)/s

/**
 * Explains a refusal because the account grants more than it has. Returns the lacking permissions and the fix in two
 * sentences, or undefined if the message is a different refusal.
 */
function escalationIn(message: string, { kind, metadata, roleRef }: KubeObject): string | undefined {
  const [, user, lines] = ESCALATION.exec(message) ?? []
  if (user === undefined || lines === undefined) return undefined
  const [first, ...others] = lines.split('\n').map((line) => line.slice(0, line.lastIndexOf('}') + 1))
  const more = others.length === 0 ? '' : ` and ${others.length} more`
  const lacking = `${user} would grant rights that it does not have: ${first}${more}`
  const role = roleRef as { kind: string; name: string } | undefined
  if (role === undefined)
    return `${lacking}. Give it these rights, or the verb escalate on ${kind.toLowerCase()}s ${metadata.name}`
  return (
    `${lacking}. Add { kind: '${role.kind}', name: '${role.name}' } to "binds" of the function and install it again, so ` +
    'that it has the verb bind on this role, or give it these rights'
  )
}
