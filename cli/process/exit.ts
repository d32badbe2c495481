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
  ValidateError: EXIT.byFunction,
  ClusterAccessError: EXIT.usage,
  DeclarationMismatchError: EXIT.usage,
  ApiError: EXIT.kubernetes,
  ApiConnectionError: EXIT.kubernetes,
  ApiAnswerError: EXIT.kubernetes,
  AnotherClusterError: EXIT.kubernetes,
  NatsUnreachableError: EXIT.nats,
  NatsUrlError: EXIT.nats,
  NoEventsError: EXIT.nats,
  NoRunsError: EXIT.nats,
  NoUsageError: EXIT.nats,
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

/** Errors of a definition, which every start repeats until its module is edited. Their exit codes do not tell. */
const HEALED_BY_EDIT = new Set(['DefinitionError', 'IncompatibleError', 'RefusedDefinitionError'])

/** Tells `fairlead dev`, which has started this process, that another start needs an edit. Others do not listen. */
export async function tellIfEditHeals(error: unknown): Promise<void> {
  if (!process.connected || !(error instanceof Error) || !HEALED_BY_EDIT.has(error.name)) return
  await new Promise((resolve) => process.send?.({ needsEdit: true }, resolve))
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
  const fix = FIXES[error.name]
  return `fairlead: ${error.message}${fix === undefined ? '' : `; ${fix}`}`
}

/** What helps against errors whose message cannot know it. */
const FIXES: Record<string, string> = {
  NatsUnreachableError: 'start nats-server there, or give another address by NATS_URL or --nats',
}

/** A signal that ends the command. The message is the signal's name. */
class StopRequest extends Error {
  override readonly name = 'AbortError'
}

/** A signal has come. */
let isStopping = false

/** Returns a controller that the first SIGINT, SIGTERM or SIGHUP aborts; a second signal ends the process at once. */
export function untilStopped(): AbortController {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(name, () => {
      if (controller.signal.aborted) process.exit(EXIT.interrupted)
      isStopping = true
      controller.abort(new StopRequest(name))
    })
  return controller
}

const SHELL_LOOK_MS = 500

/**
 * npm and npx start a command through a shell, and pass a signal on to the shell only, which ends without passing it on
 * (npm 11, dash). Sends this process the signal when the shell has ended.
 */
export function endWithShell({ npm_lifecycle_event: event }: Env): void {
  if (event === undefined) return
  const shell = process.ppid
  const look = setInterval(() => {
    if (process.ppid === shell) return
    clearInterval(look)
    if (!isStopping) process.kill(process.pid, 'SIGTERM')
  }, SHELL_LOOK_MS).unref()
}

/** Time after the grace period of runs in flight. Handing back the remaining keys takes 4 s at most. */
const AFTER_GRACE_SECONDS = 5

/**
 * Ends the process after the grace period even if a server does not answer. This loses no more than `kill -9` would.
 */
export function endInTime(stop: AbortSignal, graceSeconds: number, fatal: (error: Error) => void): void {
  const late = () =>
    fatal(
      new Error(
        `stopped without NATS or the API server, which did not answer within ${AFTER_GRACE_SECONDS} s after the grace of ${graceSeconds} s: keys in hand are run again when their leases end`,
      ),
    )
  const wait = () => setTimeout(late, (graceSeconds + AFTER_GRACE_SECONDS) * 1000).unref()
  stop.addEventListener('abort', wait, { once: true })
}

/**
 * Returns columns padded to their widest cell, two spaces apart; the last column is not padded. Each row is one line:
 * line breaks and control characters in a cell become spaces.
 */
export function table(head: string[], unsafeRows: string[][]): string {
  const rows = unsafeRows.map((row) => row.map((cell) => oneLine(cell)))
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)))
  const line = (cells: string[]) =>
    cells
      .map((cell, column) => (column === head.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd()
  return [head, ...rows].map(line).join('\n')
}

/** Formats a duration in milliseconds as kubectl formats ages: `850ms`, `12s`, `3m10s`, `5h2m`, `41d`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`
  const seconds = Math.floor(ms / 1000)
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 10) return `${minutes}m${seconds % 60}s`
  if (minutes < 180) return `${minutes}m`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d`
}

/**
 * Returns the text without line breaks and control characters, which could manipulate a terminal, cut to `chars`
 * characters.
 */
export function oneLine(text: string, chars = Number.POSITIVE_INFINITY): string {
  const line = text.replaceAll(/[\p{Cc}\s]+/gu, ' ').trim()
  return line.length > chars ? `${line.slice(0, chars - 1)}…` : line
}

// oxlint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

/**
 * Escapes control characters and characters that change the direction of text, as JSON does, so that JSON remains
 * valid. Names, statuses and messages come from other users and could otherwise manipulate the terminal. Line breaks
 * and tabs remain.
 */
export const harmless = (text: string): string => text.replaceAll(CONTROLS, escaped)

const escaped = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
