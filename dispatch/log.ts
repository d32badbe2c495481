import { ConflictError, RetryAfterError, TerminalError } from '#contracts'
import { ApiConnectionError, ApiError } from '#kube'
import {
  ExternalError,
  FunctionError,
  NamespaceTerminatingError,
  RefusedError,
  RunTimeoutError,
  UnsettledError,
} from '#reconcile'

/**
 * Errors that are logged without a stack. Their message states the error and its place, and a stack would only show the
 * dispatcher.
 */
const EXPLAINED = [
  ApiConnectionError,
  ApiError,
  ConflictError,
  FunctionError,
  NamespaceTerminatingError,
  RefusedError,
  RetryAfterError,
  RunTimeoutError,
  TerminalError,
  UnsettledError,
]

/** Returns the cause of an error of the external system, and any other error unchanged. */
export const causeOf = (error: unknown): unknown => (error instanceof ExternalError ? error.cause : error)

/** Returns the log fields of a failure. `shown` is the error as a log may show it. */
export function failureFields(error: unknown, shown: unknown): object {
  const cause = causeOf(error)
  if (!(shown instanceof Error && EXPLAINED.some((explained) => cause instanceof explained))) return { err: shown }
  const { name, message } = shown
  return { err: { type: name, message } }
}
