import type { Headers } from '#jetstream'

/** Thrown if the server will never accept a message because of its size, so that another attempt would fail as well. */
export class TooLargeError extends Error {
  override readonly name = 'TooLargeError'
  readonly bytes: number
  constructor(message: string, bytes: number) {
    super(message)
    this.bytes = bytes
  }
}

/** The limit of the headers: JetStream keeps their length in 16 bits (nats-server, JSStreamHeaderExceedsMaximumErr). */
const MAX_HEADER_BYTES = 65_535
const FIRST_AND_LAST_LINE = 'NATS/1.0\r\n\r\n'.length
const PER_HEADER = ': \r\n'.length

/**
 * Throws for a message that the server always refuses. `maxPayload` undefined: the limit is not known and not checked.
 */
export function demandSize(headers: Headers, { length }: Uint8Array, maxPayload = Number.MAX_SAFE_INTEGER): void {
  const headerBytes = bytesOf(headers)
  const bytes = headerBytes + length
  if (headerBytes > MAX_HEADER_BYTES)
    throw new TooLargeError(`it has ${headerBytes} bytes of headers, JetStream takes ${MAX_HEADER_BYTES}`, bytes)
  if (bytes > maxPayload) throw new TooLargeError(`it has ${bytes} bytes, the server takes ${maxPayload}`, bytes)
}

/** Returns the size of the headers on the wire in bytes. Values are ASCII. */
function bytesOf(headers: Headers): number {
  let bytes = FIRST_AND_LAST_LINE
  for (const name in headers)
    if (headers[name] !== undefined) bytes += name.length + String(headers[name]).length + PER_HEADER
  return bytes
}
