import type { CloudEvent } from './cloud-event.ts'
import { encodeData } from './data.ts'
import {
  attributeHeaders,
  type ContentMode,
  isStructured,
  readBinary,
  readStructured,
  STRUCTURED_TYPE,
  writeStructured,
} from './modes.ts'
import { PoisonEventError } from './poison.ts'

export interface HttpMessage {
  headers: Record<string, string>
  body: Uint8Array
}

/** A request or response as Node (one value or a list per name) and fetch (entries of Headers) give it. */
export interface ReceivedHttp {
  headers: Record<string, string | string[] | undefined>
  body: Uint8Array
}

export interface HttpLimits {
  /** Of the body, in bytes; CloudEvents consumers should take 64 KiB at least. Left out: no limit. */
  maxBytes?: number
}

/** The CloudEvents HTTP binding 1.0; the content type is the binding's own, there is no ce-datacontenttype. */
export function toHttp(event: CloudEvent, mode: ContentMode = 'binary', { maxBytes }: HttpLimits = {}): HttpMessage {
  const message = mode === 'structured' ? structured(event) : binary(event)
  demandSize(message.body, maxBytes)
  return message
}

/** Reads both modes; batches and formats other than JSON are refused as `unsupported-mode` (415). */
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
