import type { Msg } from 'nats'
import { parseHeaders, plainHeaders } from './headers.ts'

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
