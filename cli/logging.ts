import { destination, type Logger, pino, stdSerializers, stdTimeFunctions } from 'pino'
import type { Config } from './config.ts'
import { harmlessJson } from './terminal.ts'

const LONGEST = 20_000

/** An error with as much of its texts as people read: a function over HTTP may answer with megabytes. */
export function logged(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const cut = (value: unknown) =>
    typeof value === 'string' && value.length > LONGEST ? `${value.slice(0, LONGEST)}…` : value
  return Object.fromEntries(Object.entries(stdSerializers.err(error)).map(([name, value]) => [name, cut(value)]))
}

/** JSON lines in a pipe, readable lines on a terminal; always on standard error, which leaves standard output to results. */
export async function createLogger(config: Pick<Config, 'LOG_LEVEL' | 'LOG_FORMAT'>): Promise<Logger> {
  const format = config.LOG_FORMAT ?? (process.stderr.isTTY ? 'text' : 'json')
  const options = {
    level: config.LOG_LEVEL,
    base: null,
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { err: logged },
  }
  if (format === 'json') return pino(options, destination({ dest: 2, sync: true }))
  const { default: pretty } = await import('pino-pretty')
  const stream = pretty({
    destination: 2,
    sync: true,
    ignore: 'pid,hostname',
    translateTime: 'SYS:HH:MM:ss.l',
    singleLine: true,
  })
  // It shows stacks as they are.
  return pino({ ...options, formatters: {} }, { write: (line) => stream.write(`${harmlessJson(line)}\n`) })
}
