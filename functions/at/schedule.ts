import { TerminalError } from 'fairlead'
import type { AtSpec } from './resource.ts'

const RFC3339 = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})?$/

/**
 * Returns the instant of an RFC 3339 time in capitals, with an offset or Z, or of a local time in a time zone.
 * Fractions of a millisecond round up, so a command never runs early. Throws a TerminalError for everything else,
 * including days and hours that do not exist.
 */
export async function dueTime({ schedule, timeZone }: Pick<AtSpec, 'schedule' | 'timeZone'>): Promise<Date> {
  if (timeZone !== undefined && !isTimeZone(timeZone))
    throw invalid(`spec.timeZone is ${JSON.stringify(timeZone)}: expected an IANA name such as Europe/Berlin`)
  const instant = await parseInstant(schedule ?? '', timeZone)
  if (instant === undefined) throw invalid(explain(schedule, timeZone))
  return instant
}

async function parseInstant(text: string, timeZone: string | undefined): Promise<Date | undefined> {
  const [, date, time, fraction = '', offset] = RFC3339.exec(text) ?? []
  if (date === undefined || time === undefined || (offset === undefined) === (timeZone === undefined)) return undefined
  // JavaScript turns 30 February into a day in March, and accepts 24:00:00. Only a date that stays unchanged exists.
  const local = `${date}T${time}`
  const asIfUtc = Date.parse(`${local}Z`)
  if (Number.isNaN(asIfUtc) || new Date(asIfUtc).toISOString() !== `${local}.000Z`) return undefined
  const whole = timeZone === undefined ? Date.parse(`${local}${offset}`) : await instantIn(timeZone, local)
  const instant = whole + Math.ceil(Number(fraction.padEnd(9, '0')) / 1e6)
  return Number.isNaN(instant) ? undefined : new Date(instant)
}

const invalid = (message: string): TerminalError => new TerminalError(message, { reason: 'InvalidSchedule' })

function explain(schedule: string | undefined, timeZone: string | undefined): string {
  const expected =
    timeZone === undefined
      ? 'an RFC 3339 time such as 2019-04-12T10:12:00Z'
      : `a local time such as 2019-04-12T10:12:00, without an offset, because spec.timeZone is ${timeZone}`
  return schedule === undefined
    ? `spec.schedule is missing: give ${expected}`
    : `spec.schedule is ${JSON.stringify(schedule)}: expected ${expected}`
}

function isTimeZone(name: string): boolean {
  try {
    // Intl accepts offsets such as +02:00 as well, but they are not names.
    return /^[A-Za-z]/.test(new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone)
  } catch {
    return false
  }
}

/**
 * Returns the instant at which clocks in the zone show this local time, by RFC 5545 (3.3.5). The first instant counts
 * for a time that occurs twice. A time that is skipped is read with the offset before the change.
 */
async function instantIn(timeZone: string, local: string): Promise<number> {
  // Imported here: few schedules have a time zone, and importing it takes 6 MiB.
  const { Temporal } = await import('temporal-polyfill')
  return Temporal.PlainDateTime.from(local).toZonedDateTime(timeZone).epochMilliseconds
}
