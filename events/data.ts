import type { CloudEvent } from './cloud-event.ts'
import { PoisonEventError } from './poison.ts'

const JSON_TYPE = 'application/json'

/** Returns the media type `type/subtype` in lower case, without parameters. */
export const mediaType = (contentType: string): string => (contentType.split(';', 1)[0] ?? '').trim().toLowerCase()

export function isJson(contentType: string): boolean {
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
export function decodeData(bytes: Uint8Array, contentType: string | undefined): unknown {
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
