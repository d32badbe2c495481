import { styleText } from 'node:util'
import { harmless } from '#host/exit'

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
