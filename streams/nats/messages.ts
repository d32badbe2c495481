import type { Msg, MsgHdrs } from 'nats'

/** A message as a stream stores it. */
export interface StoredMessage {
  subject: string
  sequence: number
  /** When the server stored it, in epoch milliseconds. */
  storedAt: number
  headers: Record<string, string>
  data: Uint8Array
}

/** A message as a consumer delivered it. */
export interface Delivery extends StoredMessage {
  /** 1 for the first delivery. */
  deliveryCount: number
  /** The number of messages of the consumer's filter behind this one, as the server counted at delivery. */
  pending: number
  /** performance.now() at arrival. */
  arrivedAt: number
  /** Acknowledges without waiting for an answer. */
  ack(): void
  /** Acknowledges, and resolves when the server has confirmed. May fail as unknown, and is safe to repeat. */
  ackConfirmed(): Promise<void>
  /** Gives the message back, now or after a delay in milliseconds. */
  nak(delayMs?: number): void
}

/** The answer to a leader read, STREAM.MSG.GET. */
interface StoredMessageJson {
  subject: string
  seq: number
  time: string
  hdrs?: string
  data?: string
}

export function fromLeader(message: StoredMessageJson): StoredMessage {
  return {
    subject: message.subject,
    sequence: message.seq,
    storedAt: Date.parse(message.time),
    headers: message.hdrs === undefined ? {} : parseHeaders(Buffer.from(message.hdrs, 'base64').toString()),
    data: Buffer.from(message.data ?? '', 'base64'),
  }
}

export function fromDirect(message: Msg): StoredMessage {
  const headers = plainHeaders(message)
  return {
    subject: headers['Nats-Subject'] ?? '',
    sequence: Number(headers['Nats-Sequence']),
    storedAt: Date.parse(headers['Nats-Time-Stamp'] ?? ''),
    headers,
    data: message.data,
  }
}

/**
 * Parses `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>`, with or without domain
 * and account hash before the stream and a token at the end (ADR-15).
 */
export function ackMetadata(reply: string): AckMetadata {
  const tokens = reply.split('.')
  const first = tokens.length > 9 ? 6 : 4
  return {
    deliveryCount: Number(tokens[first]),
    sequence: Number(tokens[first + 1]),
    consumerSequence: Number(tokens[first + 2]),
    storedAt: Number(tokens[first + 3]) / 1e6,
    pending: Number(tokens[first + 4]),
  }
}

interface AckMetadata extends Pick<Delivery, 'deliveryCount' | 'sequence' | 'storedAt' | 'pending'> {
  /** The number of messages that this consumer has delivered, from 1. */
  consumerSequence: number
}

/** Header names and values as on the wire. Undefined leaves a header out. */
export type Headers = Record<string, string | number | undefined>

/**
 * Returns headers as encoded bytes. The client only asks headers to encode themselves, and its own map-based
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

/** The fields of a nats-core 3.4 message that hold the received bytes. The first `hdr` bytes are headers. */
interface ReceivedBytes {
  _rdata?: Uint8Array
  _msg?: { hdr: number }
}

/**
 * Returns the headers of a message as a plain object. The first value of a repeated name counts. They are read from the
 * bytes, because nats-core's own map validates each name and value again, which costs more than the rest of a read.
 * Without the bytes, they come from that map.
 */
export function plainHeaders(message: Msg): Record<string, string> {
  const { _rdata: bytes, _msg: parsed } = message as unknown as ReceivedBytes
  if (bytes === undefined || parsed === undefined) return fromMap(message.headers)
  return parsed.hdr > 0 ? parseHeaders(UTF8.decode(bytes.subarray(0, parsed.hdr))) : {}
}

const UTF8 = new TextDecoder()

/** Parses headers. `text` begins with the line `NATS/1.0`, which is not a header. */
export function parseHeaders(text: string): Record<string, string> {
  const plain: Record<string, string> = {}
  for (let start = text.indexOf('\r\n') + 2, end = 0; ; start = end + 2) {
    end = text.indexOf('\r\n', start)
    if (end <= start) return plain
    const colon = text.indexOf(':', start)
    if (colon > start && colon < end) plain[text.slice(start, colon)] ??= text.slice(colon + 1, end).trim()
  }
}

function fromMap(headers: MsgHdrs | undefined): Record<string, string> {
  const plain: Record<string, string> = {}
  if (headers) for (const [name, values] of headers) if (values[0] !== undefined) plain[name] = values[0]
  return plain
}

/**
 * Returns the status code of a control message without body (100, 204, 404, 408, 409, 503 …); 0 for an ordinary
 * message. It is read from the bytes: a stream of headers only has no bodies, and nats-core's map of the headers would
 * keep 6 KiB for each message that waits to be read.
 */
export function statusOf(message: Msg): number {
  if (message.data.length > 0) return 0
  const { _rdata: bytes, _msg: parsed } = message as unknown as ReceivedBytes
  if (bytes === undefined || parsed === undefined) return message.headers?.code ?? 0
  if (parsed.hdr <= 0 || bytes[STATUS_AT - 1] !== SPACE) return 0
  return Number.parseInt(UTF8.decode(bytes.subarray(STATUS_AT, STATUS_AT + 3)), 10) || 0
}

/** The first line of headers is `NATS/1.0`, or for example `NATS/1.0 404 Message Not Found`. */
const STATUS_AT = 'NATS/1.0 '.length
const SPACE = 0x20
