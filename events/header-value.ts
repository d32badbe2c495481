import { PoisonEventError } from './poison.ts'

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
