import { harmless } from './terminal.ts'

/** Exit codes, also in `fairlead --help` and docs/cli.md. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  kubernetes: 3,
  nats: 4,
  byFunction: 5,
  interrupted: 130,
} as const

/** Wrong arguments or configuration. The message names the value and the fix. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** A change of a schema that would break stored objects. */
export class IncompatibleError extends Error {
  override readonly name = 'IncompatibleError'
}

/** Calls of functions have ignored their signal: only the end of the process ends them. */
export class IgnoredSignalError extends Error {
  override readonly name = 'IgnoredSignalError'
}

const codeByName: Record<string, number> = {
  UsageError: EXIT.usage,
  IncompatibleError: EXIT.failed,
  IgnoredSignalError: EXIT.byFunction,
  ClusterAccessError: EXIT.usage,
  DeclarationMismatchError: EXIT.usage,
  ApiError: EXIT.kubernetes,
  ApiConnectionError: EXIT.kubernetes,
  ApiAnswerError: EXIT.kubernetes,
  NatsUnreachableError: EXIT.nats,
  NoEventsError: EXIT.nats,
  NoRunsError: EXIT.nats,
  StreamLostError: EXIT.nats,
  PermissionViolationError: EXIT.nats,
  JetStreamApiError: EXIT.nats,
  JetStreamError: EXIT.nats,
  UnknownOutcomeError: EXIT.nats,
}

/** Returns the exit code of the outermost error in the chain of causes that has one. */
export function exitCodeOf(error: unknown): number {
  if (!(error instanceof Error)) return EXIT.failed
  return codeByName[error.name] ?? exitCodeOf(error.cause)
}

type Env = Readonly<Record<string, string | undefined>>

/** Whether errors are printed with their stacks, whatever the level of the log is. */
export const showsStacks = ({ FAIRLEAD_DEBUG = '' }: Env): boolean => FAIRLEAD_DEBUG !== ''

/** Returns a handler that prints the error and ends the process at once. */
export const dieBecause =
  (env: Env) =>
  (error: unknown): never => {
    console.error(describe(error, showsStacks(env)))
    process.exit(exitCodeOf(error))
  }

/** Returns the error as one line; with the stack only under FAIRLEAD_DEBUG. */
export const describe = (error: unknown, debug: boolean): string => harmless(described(error, debug))

function described(error: unknown, debug: boolean): string {
  if (!(error instanceof Error)) return `fairlead: ${String(error)}`
  if (debug)
    return `fairlead: ${error.stack ?? error.message}${error.cause === undefined ? '' : `\ncaused by ${described(error.cause, true)}`}`
  return `fairlead: ${error.message}`
}
