import { destination, type Logger, pino, stdSerializers, stdTimeFunctions } from 'pino'
import type { Config } from '#host/config'
import { textLine } from './text-line.ts'

const LONGEST = 20_000

/** What the API server says, or that it says nothing, is no fault of the code that asked. */
const WITHOUT_STACK = new Set(['ApiError', 'ApiConnectionError', 'ApiAnswerError'])

/**
 * An error as a log shows it, with as much of its texts as people read: a function over HTTP may answer with megabytes.
 * What is told of one instead stays as it is.
 */
export function errorFields(err: unknown): unknown {
  if (!(err instanceof Error)) return err
  const fields = WITHOUT_STACK.has(err.name) ? { type: err.name, message: err.message } : stdSerializers.err(err)
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, cut(value)]))
}

const cut = (value: unknown): unknown =>
  typeof value === 'string' && value.length > LONGEST ? `${value.slice(0, LONGEST)}…` : value

/** JSON lines in a pipe, readable lines on a terminal; always on standard error, which leaves standard output to results. */
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
