import type { Headers, StoredMessage } from '#jetstream'
import { decodeHeaderValue } from './header-value.ts'
import { toNats } from './nats-codec.ts'
import { PoisonEventError, type PoisonReason } from './poison.ts'
import { encodeSubjectPart } from './subject-part.ts'

/** The reason why a message is dead; also a part of a subject. */
export type DeadReason = PoisonReason | 'invalid-key' | 'unknown-reconciler'

/** A message that Fairlead cannot process, with the place where it was found. */
export interface DeadMessage {
  reason: DeadReason
  /** A description of the defect. */
  detail: string
  /** The Reconciler of the message. Undefined: the message belongs to no single Reconciler. */
  reconciler?: string | undefined
  stream: string
  subject: string
  sequence: number
  storedAt: Date
  headers: Record<string, string>
  data: Uint8Array
  /**
   * The size of the original body in bytes, if `data` holds less because the body was too large or is confidential.
   * Left out: `data` is the whole body.
   */
  bytes?: number
}

/** Returns the dead message of a key in the work queue whose Reconciler is unknown, or that names no object. */
export const deadKey = (key: {
  reconciler: string
  key: string
  lane: string
  since: Date
  stream: string
  reason: DeadReason
  detail: string
}): DeadMessage => ({
  reason: key.reason,
  detail: key.detail,
  reconciler: key.reconciler,
  stream: key.stream,
  subject: `work.${key.reconciler.replaceAll('.', '_')}.${key.lane}.${key.key}`,
  sequence: 0,
  storedAt: key.since,
  headers: {},
  data: new Uint8Array(),
})

/** Returns the key of the work queue in a dead message. Undefined: the message was not a key. */
export function keyIn({ subject, reconciler }: DeadMessage): { reconciler: string; key: string } | undefined {
  const [role, , , ...key] = subject.split('.')
  return role === 'work' && reconciler !== undefined ? { reconciler, key: key.join('.') } : undefined
}

export interface DeadLetter extends DeadMessage {
  /** The sequence in DEAD, by which commands name the letter. */
  id: number
  diedAt: Date
  bytes: number
}

/** The HTTP status that corresponds to each reason, which is the value of `knativeerrorcode`. */
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
/** The maximum length of `knativeerrordata` in characters, the same as in Knative. */
const MAX_ERROR_DATA = 1024

/**
 * The longest subject that fits, with parts before it, into a protocol line of 4096 bytes (nats-server's
 * max_control_line).
 */
const MAX_SUBJECT = 3000

/**
 * Returns the subject `dead.<reconciler>.<reason>.<original subject>`. A subject that does not fit is one hashed part.
 */
export const deadSubject = ({ reconciler, reason, subject }: DeadMessage): string =>
  `dead.${reconciler === undefined ? '_' : reconciler.replaceAll('.', '_')}.${reason}.${
    subject.length <= MAX_SUBJECT ? subject : encodeSubjectPart(subject)
  }`

/**
 * Returns a CloudEvent in binary mode whose data is the original body of the dead message. The body is cut if the event
 * would exceed `maxBytes`.
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

/**
 * Returns the dead letter in a message. Undefined: the message is not a dead letter of this version. `subject` is
 * without the installation's prefix.
 */
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

/** Whether the values are valid: another program may have stored the message. */
const isWhole = ({ diedAt, storedAt, headers }: DeadLetter): boolean =>
  [diedAt, storedAt].every((date) => !Number.isNaN(date.getTime())) && areTexts(headers)

const areTexts = (fields: unknown): boolean =>
  typeof fields === 'object' && fields !== null && Object.values(fields).every((value) => typeof value === 'string')

const isReason = (text: string | undefined): text is DeadReason => text !== undefined && Object.hasOwn(CODES, text)

/** Returns the text in the form that a CloudEvents attribute allows. */
const cleaned = (text: string): string =>
  text
    .replaceAll(/\p{Cc}+/gu, ' ')
    .slice(0, MAX_ERROR_DATA)
    .toWellFormed()
