import type { CloudEvent } from './cloudevent.ts'
import {
  attributeHeaders,
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

/** Returns headers with names in lower case. The first of several names that differ only in case counts. */
function lowerCased(headers: Record<string, string>): Map<string, string> {
  const lower = new Map<string, string>()
  for (const name in headers) {
    const key = name.toLowerCase()
    const value = headers[name]
    if (value !== undefined && !lower.has(key)) lower.set(key, value)
  }
  return lower
}
