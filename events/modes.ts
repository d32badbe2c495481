import { isData, validated } from './attributes.ts'
import type { CloudEvent } from './cloud-event.ts'
import { decodeData, decodeText, isJson, mediaType, parseJson } from './data.ts'
import { decodeHeaderValue, encodeHeaderValue } from './header-value.ts'
import { PoisonEventError } from './poison.ts'

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
