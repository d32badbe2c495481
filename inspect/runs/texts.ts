import type { Cause, LogLine, RunRecord } from '#contracts'
import { duration } from '#host/exit'

/** `changed Deployment shop/web` */
export const causeText = ({ is, object }: Cause): string => {
  const [kind = '', name = ''] = object.split(' ')
  return `${is} ${kind.split('.')[0]} ${name}`
}

/** Describes the known causes of the run. */
export function becauseOf({ causes, fired, cutShort, attempt }: RunRecord): string {
  const texts = (causes ?? []).map(causeText)
  if (fired) texts.unshift('its timer came due')
  if (cutShort) texts.unshift('the run before never ended')
  if (texts.length > 0) return texts.join(', ')
  if (attempt > 0) return 'another try'
  return causes === undefined ? 'not known: no run before it is recorded' : 'nothing that it reads has changed'
}

export const tookMs = ({ startedAt, endedAt }: RunRecord): number => Date.parse(endedAt) - Date.parse(startedAt)
export const waitedMs = ({ queuedAt, startedAt }: RunRecord): number =>
  Math.max(0, Date.parse(startedAt) - Date.parse(queuedAt))

/** Returns how long after the start of its run a line was logged: `+12ms`. */
export const lineOffset = ({ startedAt }: RunRecord, { at }: LogLine): string =>
  `+${duration(Math.max(0, Date.parse(at) - Date.parse(startedAt)))}`

/** Describes the lines that a record leaves out; undefined if it has all of them. */
export function linesLeftOut({ log, overHttp, traceId }: RunRecord): string | undefined {
  const where = `the log of the ${overHttp ? "function's server" : 'process'}`
  const lines = traceId === undefined ? where : `${where}, with the trace ID ${traceId}`
  if (overHttp) return `The function runs over HTTP: its lines are in ${lines}.`
  const { omitted = 0 } = log ?? {}
  if (omitted === 0) return undefined
  const more = `${omitted.toLocaleString('en')} more ${omitted === 1 ? 'line is' : 'lines are'} not recorded`
  return `${more}: see ${lines}, as far as its LOG_LEVEL includes them.`
}

export const writesIn = ({ laps }: RunRecord): number => laps.reduce((sum, { writes }) => sum + writes.length, 0)
