import { destination, type Logger, pino, stdSerializers, stdTimeFunctions } from 'pino'
import type { Config } from '#host/config'
import { textLine } from './text-line.ts'

const LONGEST = 20_000

/**
 * Errors that are logged without a stack: answers of the API server, and missing answers, are not errors of the calling
 * code.
 */
const WITHOUT_STACK = new Set(['ApiError', 'ApiConnectionError', 'ApiAnswerError'])

/**
 * Returns an error as a log shows it, with its texts cut: a function over HTTP may answer with megabytes. A value that
 * is not an Error stays as it is.
 */
export function errorFields(err: unknown): unknown {
  if (!(err instanceof Error)) return err
  const fields = WITHOUT_STACK.has(err.name) ? { type: err.name, message: err.message } : stdSerializers.err(err)
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, cut(value)]))
}

const cut = (value: unknown): unknown =>
  typeof value === 'string' && value.length > LONGEST ? `${value.slice(0, LONGEST)}…` : value

/**
 * Logs JSON lines to a pipe and readable lines to a terminal; always to standard error, since standard output is for
 * results.
 */
export async function createLogger(config: Pick<Config, 'LOG_LEVEL' | 'LOG_FORMAT'>): Promise<Logger> {
  const format = config.LOG_FORMAT ?? (process.stderr.isTTY ? 'text' : 'json')
  const options = {
    level: config.LOG_LEVEL,
    base: null,
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { err: errorFields },
  }
  if (format === 'json') return pino(options, destination({ dest: 2, sync: true }))
  const stream = destination({ dest: 2, sync: true })
  const colors = process.stderr.isTTY && process.stderr.hasColors()
  return pino(options, { write: (line) => stream.write(textLine(line, { colors })) })
}
