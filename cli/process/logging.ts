import { styleText } from 'node:util'
import { destination, type Logger, pino, stdSerializers, stdTimeFunctions } from 'pino'
import type { Config } from './config.ts'
import { harmless } from './exit.ts'

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

type Style = Parameters<typeof styleText>[0]

/** The fields that pino writes. */
interface Line {
  level: string
  /** ISO 8601. */
  time: string
  msg?: string
  err?: { stack?: string } | string
  [field: string]: unknown
}

const STYLES: Record<string, Style> = { debug: 'blue', info: 'green', warn: 'yellow', error: 'red', fatal: 'red' }

const two = (number: number): string => String(number).padStart(2, '0')

/** Returns the local time of day, to the millisecond. */
function timeOf(text: string): string {
  const time = new Date(text)
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':')
  return `${clock}.${String(time.getMilliseconds()).padStart(3, '0')}`
}

/** Formats a line of JSON for people: time, level, message and the other fields; below it the stack of an error. */
export function textLine(json: string, { colors }: { colors: boolean }): string {
  const { level, time, msg = '', err, ...others } = JSON.parse(json) as Line
  const painted = (style: Style, text: string): string =>
    colors ? styleText(style, text, { validateStream: false }) : text
  const stack = typeof err === 'object' ? err.stack : undefined
  const fields = err === undefined || stack !== undefined ? others : { ...others, err }
  const parts = [
    `[${timeOf(time)}]`,
    `${painted(STYLES[level] ?? 'gray', level.toUpperCase())}:`,
    painted('cyan', harmless(msg).replaceAll(/\s+/g, ' ')),
    ...(Object.keys(fields).length === 0 ? [] : [painted('gray', harmless(JSON.stringify(fields)))]),
  ]
  const below = stack === undefined ? '' : `    ${harmless(stack).replaceAll('\n', '\n    ')}\n`
  return `${parts.join(' ')}\n${below}`
}
