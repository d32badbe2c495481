import { TerminalError } from '#sdk'

const RFC3339 = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})$/

/**
 * The instant of an RFC 3339 time in capitals, with an offset or Z. Fractions of a millisecond round up: never early.
 * Throws a TerminalError for everything else, days and hours that do not exist included.
 */
export function dueTime(schedule: string | undefined): Date {
  const instant = parseInstant(schedule ?? '')
  if (instant === undefined) throw new TerminalError(explain(schedule), { reason: 'InvalidSchedule' })
  return instant
}

function parseInstant(text: string): Date | undefined {
  const [, date, time, fraction = '', zone] = RFC3339.exec(text) ?? []
  if (date === undefined || time === undefined || zone === undefined) return undefined
  // JavaScript rolls 30 February over to March and takes 24:00:00: only what comes back unchanged exists.
  const asIfUtc = Date.parse(`${date}T${time}Z`)
  if (Number.isNaN(asIfUtc) || new Date(asIfUtc).toISOString() !== `${date}T${time}.000Z`) return undefined
  const instant = Date.parse(`${date}T${time}${zone}`) + Math.ceil(Number(fraction.padEnd(9, '0')) / 1e6)
  return Number.isNaN(instant) ? undefined : new Date(instant)
}

const explain = (schedule: string | undefined): string =>
  schedule === undefined
    ? 'spec.schedule is missing: give an RFC 3339 time such as 2019-04-12T10:12:00Z'
    : `spec.schedule is ${JSON.stringify(schedule)}: expected an RFC 3339 time such as 2019-04-12T10:12:00Z`
