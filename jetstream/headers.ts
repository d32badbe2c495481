import type { Msg, MsgHdrs } from 'nats'

/** Header names and values as they go on the wire; undefined leaves a header out. */
export type Headers = Record<string, string | number | undefined>

/**
 * Headers as ready bytes: the client asks its headers only to encode themselves, and its own map-based
 * implementation costs more than the rest of a publish.
 */
export function encodeHeaders(headers: Headers): MsgHdrs {
  let text = 'NATS/1.0\r\n'
  for (const name in headers) {
    const value = headers[name]
    if (value === undefined) continue
    if (typeof value === 'string' && /[\r\n]/.test(value))
      throw new TypeError(`header ${name} has a line break in its value`)
    text += `${name}: ${value}\r\n`
  }
  const bytes = Buffer.from(`${text}\r\n`)
  return { encode: () => bytes } as unknown as MsgHdrs
}

/** The headers of a message as a plain object; of a repeated name the first value counts. */
export function plainHeaders(headers: MsgHdrs | undefined): Record<string, string> {
  const plain: Record<string, string> = {}
  if (headers) for (const [name, values] of headers) if (values[0] !== undefined) plain[name] = values[0]
  return plain
}

/** Status code of a bodyless control message (100, 204, 404, 408, 409, 503 …); 0 for an ordinary message. */
export const statusOf = (message: Msg): number => (message.data.length === 0 ? (message.headers?.code ?? 0) : 0)
