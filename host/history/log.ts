import type { LogLine, RunRecord } from '#contracts'
import type { Logged } from '#dispatch'
import { CONFIDENTIAL } from '#reconcile'

type Scrub = (text: string) => string

/** Returns the lines of a run as plain data. `scrub` removes confidential contents; undefined: the run has none. */
export function logOf(logged: Logged | undefined, scrub: Scrub | undefined): Pick<RunRecord, 'log'> {
  if (logged === undefined || logged.lines.length + logged.omitted === 0) return {}
  const lines = logged.lines.map(({ at, level, message, fields }): LogLine => {
    const told = fields === undefined ? { withoutFields: true as const } : fieldsOf(fields, scrub)
    return { at: at.toISOString(), level, message: scrub?.(message) ?? message, ...told }
  })
  return { log: { lines, ...(logged.omitted > 0 && { omitted: logged.omitted }) } }
}

function fieldsOf(json: string, scrub: Scrub | undefined): Pick<LogLine, 'fields'> {
  const fields = JSON.parse(json, scrub && withoutContents(scrub)) as Record<string, unknown>
  return Object.keys(fields).length === 0 ? {} : { fields }
}

/** Returns a reviver of JSON: a Secret may be quoted by a text, a number or the name of a field. */
const withoutContents =
  (scrub: Scrub) =>
  (_: string, value: unknown): unknown => {
    if (typeof value === 'string') return scrub(value)
    if (typeof value === 'number') return scrub(String(value)) === String(value) ? value : CONFIDENTIAL
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [scrub(name), one]))
  }
