import {
  attributeHeaders,
  type CloudEvent,
  type ContentMode,
  decodeHeaderValue,
  decodeText,
  encodeData,
  isStructured,
  PoisonEventError,
  parseJson,
  type Received,
  readBinary,
  readStructured,
  STRUCTURED_TYPE,
  structuredEvent,
  writeStructured,
} from './cloudevent.ts'

// The bindings of CloudEvents to HTTP and NATS. A function over HTTP loads this file without a client of NATS.
export type { CloudEvent, ContentMode } from './cloudevent.ts'
export { PoisonEventError, type PoisonReason } from './cloudevent.ts'

export interface HttpMessage {
  headers: Record<string, string>
  body: Uint8Array
}

/**
 * A request or response with headers as Node (a value or a list per name) or fetch (entries of Headers) provides them.
 */
export interface ReceivedHttp {
  headers: Record<string, string | string[] | undefined>
  body: Uint8Array
}

export interface HttpLimits {
  /** The limit of the body in bytes. CloudEvents consumers should accept at least 64 KiB. Left out: no limit. */
  maxBytes?: number
}

/**
 * Encodes an event in the CloudEvents HTTP binding 1.0. The content type is the HTTP header; there is no
 * ce-datacontenttype.
 */
export function toHttp(event: CloudEvent, mode: ContentMode = 'binary', { maxBytes }: HttpLimits = {}): HttpMessage {
  const message = mode === 'structured' ? structured(event) : binary(event)
  demandSize(message.body, maxBytes)
  return message
}

/** Decodes both modes. Throws `unsupported-mode` (415) for batches and for formats other than JSON. */
export function fromHttp({ headers, body }: ReceivedHttp, { maxBytes }: HttpLimits = {}): CloudEvent {
  demandSize(body, maxBytes)
  const lower = lowerCased(headers)
  const contentType = lower.get('content-type')
  if (isStructured(contentType)) return readStructured(body, contentType)
  if (!lower.has('ce-specversion'))
    throw new PoisonEventError('no-cloudevent', 'neither ce-specversion nor content type application/cloudevents+json')
  return readBinary({ headers: lower, body }, contentType)
}

const structured = (event: CloudEvent): HttpMessage => ({
  headers: { 'content-type': STRUCTURED_TYPE },
  body: writeStructured(event),
})

function binary(event: CloudEvent): HttpMessage {
  const headers = attributeHeaders(event)
  const { bytes, contentType } = encodeData(event)
  if (contentType !== undefined) headers['content-type'] = contentType
  return { headers, body: bytes }
}

function demandSize(body: Uint8Array, maxBytes: number | undefined): void {
  if (maxBytes !== undefined && body.length > maxBytes)
    throw new PoisonEventError('too-large', `the body has ${body.length} bytes, more than ${maxBytes}`)
}

export interface NatsMessage {
  headers: Record<string, string>
  data: Uint8Array
}

/**
 * Encodes an event in the NATS protocol binding 1.0.3-wip; the released 1.0.2 has no binary mode. Header names are in
 * lower case, because other readers (the Go SDK) compare them case-sensitively. For the same readers, the content type
 * appears twice.
 */
export function toNats(event: CloudEvent, mode: ContentMode = 'binary'): NatsMessage {
  if (mode === 'structured') return { headers: { 'content-type': STRUCTURED_TYPE }, data: writeStructured(event) }
  const headers = attributeHeaders(event)
  const { bytes, contentType } = encodeData(event)
  if (contentType !== undefined) {
    headers['ce-datacontenttype'] = contentType
    headers['content-type'] = contentType
  }
  return { headers, data: bytes }
}

/** Decodes both modes from any writer, with header names in any case. */
export function fromNats({ headers, data }: NatsMessage): CloudEvent {
  const received: Received = { headers: lowerCased(headers), body: data }
  const contentType = received.headers.get('content-type')
  if (isStructured(contentType)) return readStructured(data, contentType)
  if (received.headers.has('ce-specversion')) return readBinary(received, declaredType(received))
  return structuredEvent(bareJson(data))
}

function declaredType({ headers }: Received): string | undefined {
  const attribute = headers.get('ce-datacontenttype')
  return attribute === undefined ? headers.get('content-type') : decodeHeaderValue(attribute)
}

/** Servers before 2.2 had no headers, so a structured event may come without any. */
function bareJson(data: Uint8Array): unknown {
  try {
    const json = parseJson(decodeText(data, ''))
    if (typeof json === 'object' && json !== null && 'specversion' in json) return json
  } catch (cause) {
    throw new PoisonEventError('no-cloudevent', 'neither ce-specversion nor a JSON event in the body', { cause })
  }
  throw new PoisonEventError('no-cloudevent', 'neither ce-specversion nor a JSON event in the body')
}

/** Returns headers with names in lower case. The first of several names that differ only in case counts, and the first value. */
function lowerCased(headers: ReceivedHttp['headers']): Map<string, string> {
  const lower = new Map<string, string>()
  for (const name in headers) {
    const key = name.toLowerCase()
    const given = headers[name]
    const value = Array.isArray(given) ? given[0] : given
    if (value !== undefined && !lower.has(key)) lower.set(key, value)
  }
  return lower
}
