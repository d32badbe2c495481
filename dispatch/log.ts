import { ConflictError, RetryAfterError, type RunLog, TerminalError } from '#contracts'
import { ApiConnectionError, ApiError } from '#kube'
import {
  ExternalError,
  FunctionError,
  NamespaceTerminatingError,
  RefusedError,
  RunTimeoutError,
  UnsettledError,
} from '#reconcile'

/** The same log with these fields in each line. */
export const withFields = (log: RunLog, fields: object): RunLog => ({
  debug: (more, message) => log.debug({ ...fields, ...more }, message),
  info: (more, message) => log.info({ ...fields, ...more }, message),
  warn: (more, message) => log.warn({ ...fields, ...more }, message),
  error: (more, message) => log.error({ ...fields, ...more }, message),
})

/** Their message says what is wrong and where; a stack would only lead into the dispatcher. */
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

/** What is behind the failure of an external system; of other failures, themselves. */
export const causeOf = (error: unknown): unknown => (error instanceof ExternalError ? error.cause : error)

/** What a log tells of a failure: `shown` is the error as it may be shown. */
export function failureFields(error: unknown, shown: unknown): object {
  const cause = causeOf(error)
  if (!(shown instanceof Error && EXPLAINED.some((explained) => cause instanceof explained))) return { err: shown }
  const { name, message } = shown
  return { err: { type: name, message } }
}
