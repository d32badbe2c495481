import type { Headers, StoredMessage } from '#jetstream'
import { decodeHeaderValue } from './header-value.ts'
import { toNats } from './nats-codec.ts'
import { PoisonEventError, type PoisonReason } from './poison.ts'
import { encodeToken } from './token.ts'

/** Why a message is dead; also a NATS token. */
export type DeadReason = PoisonReason | 'invalid-key' | 'unknown-reconciler'

/** A message that nobody can do anything with, and where it was found. */
export interface DeadMessage {
  reason: DeadReason
  /** What is wrong, in words. */
  detail: string
  /** Whose it was; undefined: of all. */
  reconciler?: string | undefined
  stream: string
  subject: string
  sequence: number
  storedAt: Date
  headers: Record<string, string>
  data: Uint8Array
  /** Of the body that it had: more than `data` has if it was too large to be kept, or may not be. Left out: all is there. */
  bytes?: number
}

/** A key of the work queue: nobody runs it, or it names no object. */
export const deadKey = (key: {
  fn: string
  key: string
  lane: string
  since: Date
  stream: string
  reason: DeadReason
  detail: string
}): DeadMessage => ({
  reason: key.reason,
  detail: key.detail,
  reconciler: key.fn,
  stream: key.stream,
  subject: `work.${key.fn.replaceAll('.', '_')}.${key.lane}.${key.key}`,
  sequence: 0,
  storedAt: key.since,
  headers: {},
  data: new Uint8Array(),
})

/** Undefined: it was no key. */
export function keyIn({ subject, reconciler }: DeadMessage): { fn: string; key: string } | undefined {
  const [role, , , ...key] = subject.split('.')
  return role === 'work' && reconciler !== undefined ? { fn: reconciler, key: key.join('.') } : undefined
}

export interface DeadLetter extends DeadMessage {
  /** Place in DEAD, by which it is called. */
  id: number
  diedAt: Date
  bytes: number
}

/** As an HTTP status would say it: that is what `knativeerrorcode` holds. */
export const CODES: Record<DeadReason, number> = {
  'no-cloudevent': 400,
  'invalid-attribute': 400,
  'invalid-data': 400,
  'unsupported-version': 400,
  'unsupported-mode': 415,
  'too-large': 413,
  'invalid-key': 422,
  'unknown-reconciler': 404,
}

const TYPE = 'dev.fairlead.dead'
/** Knative cuts there, too. */
const MAX_ERROR_DATA = 1024

/** Of a subject with something before it that still has room in a line of 4096 bytes (nats-server's max_control_line). */
const MAX_SUBJECT = 3000

/** `dead.<reconciler>.<reason>.<subject that it had>`, which is one hashed token if there is no room for it. */
export const deadSubject = ({ reconciler, reason, subject }: DeadMessage): string =>
  `dead.${reconciler === undefined ? '_' : reconciler.replaceAll('.', '_')}.${reason}.${
    subject.length <= MAX_SUBJECT ? subject : encodeToken(subject)
  }`

/**
 * A CloudEvent in binary mode whose data is the dead message's body as it was; cut where the whole would have more than
 * `maxBytes`.
 */
export function encodeDead(dead: DeadMessage, cluster: string, now: Date, maxBytes: number) {
  const { stream, subject, sequence, reason, reconciler, detail, storedAt, data, bytes = data.length } = dead
  const { headers } = toNats({
    specversion: '1.0',
    id: `${stream}:${sequence}`,
    source: `https://${cluster}/streams/${stream}`,
    type: TYPE,
    subject,
    time: now.toISOString(),
    datacontenttype: 'application/octet-stream',
    knativeerrordest: `https://${cluster}/${reconciler === undefined ? `streams/${stream}` : `reconcilers/${reconciler}`}`,
    knativeerrorcode: CODES[reason],
    knativeerrordata: cleaned(detail) || reason,
  })
  const all: Headers = {
    ...headers,
    'Fairlead-Stored-At': storedAt.toISOString(),
    'Fairlead-Headers': JSON.stringify(dead.headers),
    'Fairlead-Bytes': bytes,
    'Nats-Msg-Id': `${stream}:${sequence}:${storedAt.getTime()}:${subject}`,
  }
  const room = maxBytes - JSON.stringify(all).length
  return { headers: all, data: data.subarray(0, Math.max(0, Math.min(data.length, room))) }
}

/** undefined: it is no dead letter of ours. `subject` without the installation's prefix. */
export function decodeDead(subject: string, message: StoredMessage): DeadLetter | undefined {
  try {
    const letter = letterIn(subject, message)
    return letter && isWhole(letter) ? letter : undefined
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof PoisonEventError) return undefined
    throw error
  }
}

function letterIn(subject: string, message: StoredMessage): DeadLetter | undefined {
  const { headers } = message
  const [, reconciler, reason] = subject.split('.')
  const [stream, sequence] = (headers['ce-id'] ?? '').split(':')
  if (headers['ce-type'] !== TYPE || !isReason(reason) || stream === undefined) return undefined
  return {
    id: message.sequence,
    diedAt: new Date(headers['ce-time'] ?? message.storedAt),
    reason,
    ...(reconciler !== '_' && { reconciler: reconciler?.replaceAll('_', '.') }),
    detail: decodeHeaderValue(headers['ce-knativeerrordata'] ?? ''),
    stream,
    subject: decodeHeaderValue(headers['ce-subject'] ?? ''),
    sequence: Number(sequence),
    storedAt: new Date(headers['Fairlead-Stored-At'] ?? message.storedAt),
    headers: JSON.parse(headers['Fairlead-Headers'] ?? '{}') as Record<string, string>,
    bytes: Number(headers['Fairlead-Bytes'] ?? message.data.length),
    data: message.data,
  }
}

/** Somebody else may have put it there. */
const isWhole = ({ diedAt, storedAt, headers }: DeadLetter): boolean =>
  [diedAt, storedAt].every((date) => !Number.isNaN(date.getTime())) && areTexts(headers)

const areTexts = (fields: unknown): boolean =>
  typeof fields === 'object' && fields !== null && Object.values(fields).every((value) => typeof value === 'string')

const isReason = (text: string | undefined): text is DeadReason => text !== undefined && Object.hasOwn(CODES, text)

/** As a CloudEvents attribute may be. */
const cleaned = (text: string): string =>
  text
    .replaceAll(/\p{Cc}+/gu, ' ')
    .slice(0, MAX_ERROR_DATA)
    .toWellFormed()
