import type { CloudEvent } from './cloudevent.ts'
import {
  attributeHeaders,
  type ContentMode,
  encodeData,
  isStructured,
  PoisonEventError,
  readBinary,
  readStructured,
  STRUCTURED_TYPE,
  writeStructured,
} from './cloudevent.ts'

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

function lowerCased(headers: ReceivedHttp['headers']): Map<string, string> {
  const lower = new Map<string, string>()
  for (const [name, value] of Object.entries(headers)) {
    const first = Array.isArray(value) ? value[0] : value
    if (first !== undefined) lower.set(name.toLowerCase(), first)
  }
  return lower
}
