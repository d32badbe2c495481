import type { CloudEvent } from './cloud-event.ts'
import { PoisonEventError } from './poison.ts'

/** Whether a member of a CloudEvent is its data, not an attribute. */
export const isData = (member: string): boolean => member === 'data' || member === 'data_base64'

/**
 * Returns the event unchanged if it obeys CloudEvents 1.0. Otherwise throws a PoisonEventError that names the first
 * invalid attribute.
 */
export function validated(event: Record<string, unknown>): CloudEvent {
  if (event['specversion'] !== '1.0')
    throw new PoisonEventError('unsupported-version', `specversion is ${JSON.stringify(event['specversion'])}, not 1.0`)
  for (const name of ['id', 'source', 'type'])
    if (event[name] === undefined) throw invalid(name, event[name], 'it is required')
  for (const name in event) if (!isData(name)) validateAttribute(name, event[name])
  return event as CloudEvent
}

function validateAttribute(name: string, value: unknown): void {
  if (!/^[a-z0-9]+$/.test(name)) throw invalid(name, value, 'names are lower-case letters and digits')
  if (value === undefined) return
  if (CORE.has(name) && typeof value !== 'string') throw invalid(name, value, 'it is a string')
  if (typeof value === 'string') return validateText(name, value)
  if (typeof value !== 'boolean' && !Number.isInteger(value))
    throw invalid(name, value, 'values are strings, booleans or integers')
}

function validateText(name: string, value: string): void {
  if (value === '') throw invalid(name, value, 'values are not empty')
  if (FORBIDDEN.test(value) || !value.isWellFormed()) throw invalid(name, value, 'it has a control character')
  if (name === 'time' && !RFC3339.test(value)) throw invalid(name, value, 'it is an RFC 3339 time')
  if ((name === 'source' || name === 'dataschema') && !URI_REFERENCE.test(value))
    throw invalid(name, value, 'it is a URI')
}

const CORE = new Set(['id', 'source', 'type', 'datacontenttype', 'dataschema', 'subject', 'time'])
// oxlint-disable-next-line no-control-regex
const FORBIDDEN = /[\u0000-\u001f\u007f-\u009f]/
const URI_REFERENCE = /^[^\s<>"{}|\\^`]+$/
const RFC3339 =
  /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/

const invalid = (name: string, value: unknown, rule: string): PoisonEventError =>
  new PoisonEventError('invalid-attribute', `attribute ${name} is ${JSON.stringify(value)}: ${rule}`)
