import type { CloudEventV1 } from 'cloudevents'

/** The type of the official SDK. `data` is a Uint8Array if the bytes are neither JSON nor text. */
export type CloudEvent<T = unknown> = CloudEventV1<T>

/** binary: attributes in headers, data alone in the body. structured: everything in the body, as JSON. */
export type ContentMode = 'binary' | 'structured'

/** The content type as the example in the CloudEvents specification spells it. */
export const STRUCTURED_TYPE = 'application/cloudevents+json; charset=UTF-8'

/** A received message in either binding. Header names are in lower case. */
export interface Received {
  headers: ReadonlyMap<string, string>
  body: Uint8Array
}

export const isStructured = (contentType: string | undefined): contentType is string =>
  contentType !== undefined && contentType.trimStart().toLowerCase().startsWith('application/cloudevents')

/** Returns the attributes as `ce-` headers, except datacontenttype, whose place differs between the bindings. */
export function attributeHeaders(event: CloudEvent): Record<string, string> {
  validated(event)
  const headers: Record<string, string> = {}
  for (const name in event) {
    const value = event[name]
    if (isData(name) || name === 'datacontenttype' || value === undefined) continue
    headers[`ce-${name}`] = encodeHeaderValue(`${value as string | number | boolean}`)
  }
  return headers
}

export function readBinary({ headers, body }: Received, contentType: string | undefined): CloudEvent {
  const event: Record<string, unknown> = {}
  for (const [name, value] of headers) {
    if (!name.startsWith('ce-') || name === 'ce-datacontenttype') continue
    const attribute = name.slice(3)
    if (isData(attribute))
      throw new PoisonEventError('invalid-attribute', `${attribute} is not the name of an attribute`)
    event[attribute] = decodeHeaderValue(value)
  }
  if (contentType !== undefined) event['datacontenttype'] = contentType
  validated(event)
  const data = decodeData(body, contentType)
  if (data !== undefined) event['data'] = data
  return event as CloudEvent
}

export function writeStructured(event: CloudEvent): Uint8Array {
  validated(event)
  const { data, ...attributes } = event
  return Buffer.from(
    JSON.stringify(
      data instanceof Uint8Array ? { ...attributes, data_base64: Buffer.from(data).toString('base64') } : event,
    ),
  )
}

export function readStructured(body: Uint8Array, contentType: string): CloudEvent {
  const type = mediaType(contentType)
  if (type !== 'application/cloudevents+json' && type !== 'application/cloudevents')
    throw new PoisonEventError('unsupported-mode', `${type} is not supported, only application/cloudevents+json`)
  return structuredEvent(parseJson(decodeText(body, contentType)))
}

/** Returns the event in JSON format. Members that are null are absent; data_base64 becomes bytes. */
export function structuredEvent(json: unknown): CloudEvent {
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new PoisonEventError('no-cloudevent', 'a structured event is a JSON object')
  const event: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(json)) if (!isData(name) && value !== null) event[name] = value
  validated(event)
  const data = structuredData(json as Record<string, unknown>, event['datacontenttype'] as string | undefined)
  if (data !== undefined) event['data'] = data
  return event as CloudEvent
}

function structuredData(json: Record<string, unknown>, contentType: string | undefined): unknown {
  const { data, data_base64: base64 } = json
  if (base64 === undefined || base64 === null)
    return data === null && contentType !== undefined && !isJson(contentType) ? undefined : data
  if ('data' in json) throw new PoisonEventError('invalid-data', 'data and data_base64 exclude each other')
  if (typeof base64 !== 'string' || !BASE64.test(base64))
    throw new PoisonEventError('invalid-data', 'data_base64 is not base64')
  return decodeData(Buffer.from(base64, 'base64'), contentType)
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** Whether a member of a CloudEvent is its data, not an attribute. */
const isData = (member: string): boolean => member === 'data' || member === 'data_base64'

/**
 * Returns the event unchanged if it obeys CloudEvents 1.0. Otherwise throws a PoisonEventError that names the first
 * invalid attribute.
 */
function validated(event: Record<string, unknown>): CloudEvent {
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

const JSON_TYPE = 'application/json'

/** Returns the media type `type/subtype` in lower case, without parameters. */
const mediaType = (contentType: string): string => (contentType.split(';', 1)[0] ?? '').trim().toLowerCase()

function isJson(contentType: string): boolean {
  const type = mediaType(contentType)
  return type === JSON_TYPE || type === 'text/json' || type.endsWith('+json')
}

/** Returns the data of an event as bytes, with their content type. An event without data has an empty body. */
export function encodeData(event: CloudEvent): { bytes: Uint8Array; contentType: string | undefined } {
  const { datacontenttype: declared, data_base64: base64 } = event
  const data = event.data ?? (base64 === undefined ? event.data : Buffer.from(base64, 'base64'))
  if (data === undefined) return { bytes: new Uint8Array(), contentType: declared }
  if (data instanceof Uint8Array) return { bytes: data, contentType: declared }
  const contentType = declared ?? JSON_TYPE
  if (isJson(contentType)) return { bytes: Buffer.from(JSON.stringify(data)), contentType }
  if (typeof data === 'string') return { bytes: Buffer.from(data), contentType }
  throw new TypeError(`data of type ${contentType} is a string or bytes, not ${typeof data}`)
}

/**
 * Returns the data of a body: the value for JSON, a string for text, otherwise the bytes. Undefined for an empty body.
 */
function decodeData(bytes: Uint8Array, contentType: string | undefined): unknown {
  if (bytes.length === 0) return undefined
  if (contentType === undefined) return bytes
  if (isJson(contentType)) return parseJson(decodeText(bytes, contentType))
  return mediaType(contentType).startsWith('text/') ? decodeText(bytes, contentType) : bytes
}

/**
 * Parses JSON. The error leaves out the parser's message, because it quotes a part of the text, which may be a Secret.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new PoisonEventError('invalid-data', `not JSON: ${text.length} characters`)
  }
}

/** Decodes text as UTF-8, unless the content type names another charset. */
export function decodeText(bytes: Uint8Array, contentType: string): string {
  const charset = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(contentType)?.[1] ?? 'utf-8'
  try {
    return new TextDecoder(charset, { fatal: true }).decode(bytes)
  } catch (cause) {
    throw new PoisonEventError('invalid-data', `the body is not ${charset}`, { cause })
  }
}

/**
 * Encodes an attribute value as a header value, the same in the HTTP and NATS bindings: space, double quote, percent
 * and everything outside printable ASCII are percent-encoded.
 */
export function encodeHeaderValue(text: string): string {
  if (!/[^\u0021-\u007e]|["%]/.test(text)) return text
  return text.replaceAll(/[^\u0021-\u007e]+|["%]/g, percentEncoded)
}

/** Removes the quotes of a quoted string, then decodes percent-encoding once. Throws for invalid UTF-8. */
export function decodeHeaderValue(value: string): string {
  const unquoted = value.startsWith('"') ? unquote(value) : value
  if (!unquoted.includes('%')) return unquoted
  try {
    return unquoted.replaceAll(/(?:%[0-9A-Fa-f]{2})+/g, decodeURIComponent)
  } catch (cause) {
    throw new PoisonEventError('invalid-attribute', `header value ${value} is not percent-encoded UTF-8`, { cause })
  }
}

const percentEncoded = (text: string): string =>
  [...Buffer.from(text)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join('')

/** Removes quotes and escapes as in RFC 7230, 3.2.6. */
const unquote = (value: string): string =>
  /^"(?:[^"\\]|\\.)*"$/.test(value) ? value.slice(1, -1).replaceAll(/\\(.)/g, '$1') : value

/** The reason why a message can never be read as a CloudEvent; also a part of a subject. */
export type PoisonReason =
  | 'no-cloudevent'
  | 'unsupported-mode'
  | 'unsupported-version'
  | 'invalid-attribute'
  | 'invalid-data'
  | 'too-large'

/** Thrown if a message is not a readable CloudEvent, so that another attempt would fail as well. */
export class PoisonEventError extends Error {
  override readonly name = 'PoisonEventError'
  readonly reason: PoisonReason
  constructor(reason: PoisonReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}
