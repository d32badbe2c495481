import type { ResourceRef, RunLog } from '#contracts'
import { declareStream, type Headers, isUnanswered, type JetStream, type StoredMessage } from '#nats'
import { decodeHeaderValue, PoisonEventError, type PoisonReason } from './cloudevent.ts'
import { toNats } from './codec.ts'
import { isIn, persist, type StreamNames, streamNames } from './stream.ts'
import { encodeSubjectPart, parseObjectSubject, SubjectError } from './subjects.ts'

/** The reason why a message is dead; also a part of a subject. */
export type DeadReason = PoisonReason | 'invalid-key' | 'unknown-reconciler'

/** A message that Fairlead cannot process, with the place where it was found. */
export interface DeadMessage {
  reason: DeadReason
  /** A description of the defect. */
  detail: string
  /** The Reconciler of the message. Undefined: the message belongs to no single Reconciler. */
  reconciler?: string
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
const deadSubject = ({ reconciler, reason, subject }: DeadMessage): string =>
  `dead.${reconciler === undefined ? '_' : reconciler.replaceAll('.', '_')}.${reason}.${
    subject.length <= MAX_SUBJECT ? subject : encodeSubjectPart(subject)
  }`

/**
 * Returns a CloudEvent in binary mode whose data is the original body of the dead message. The body is cut if the event
 * would exceed `maxBytes`.
 */
async function encodeDead(dead: DeadMessage, cluster: string, now: Date, maxBytes: number) {
  const { stream, subject, sequence, reason, reconciler, detail, storedAt, data, bytes = data.length } = dead
  // Loaded with the first dead letter: most processes never have one.
  const { CloudEvent } = await import('cloudevents')
  const event = new CloudEvent(
    {
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
    },
    // Not strict: a letter that the schema refuses, by the name of its cluster, must be kept all the same.
    false,
  )
  const { headers } = toNats(event)
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
function decodeDead(subject: string, message: StoredMessage): DeadLetter | undefined {
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

export interface DeadLetteringDeps {
  js: JetStream
  names: StreamNames
  isReferenceOnly: (ref: ResourceRef) => boolean
  deadLetter: ((dead: DeadMessage) => Promise<void>) | undefined
  log: RunLog
  now: () => Date
}

/** Replaces the error of a message of such a kind, because the error may quote the message. */
const UNTOLD = 'of its kind only references travel, so nothing of it is kept'
const EMPTY = { headers: {}, data: new Uint8Array() }

/** Moves unreadable messages from EVENTS to the dead letters, so that a reader can continue with the next message. */
export class DeadLettering {
  readonly #deps: DeadLetteringDeps

  constructor(deps: DeadLetteringDeps) {
    this.#deps = deps
  }

  /**
   * Returns the result of `read`. If the message cannot be read, moves it to the dead letters and resolves with
   * undefined.
   */
  readOrDeadLetter<T>(message: StoredMessage, read: () => T): T | Promise<undefined> {
    try {
      return read()
    } catch (error) {
      if (error instanceof PoisonEventError) return this.#deadLetter(message, error.reason, error.message)
      if (error instanceof SubjectError) return this.#deadLetter(message, 'no-cloudevent', error.message)
      throw error
    }
  }

  /**
   * Stores a dead letter for a message that never reached the stream. Its body is left out, because it may be
   * confidential.
   */
  async deadLetterUnstored(
    subject: string,
    reason: DeadMessage['reason'],
    detail: string,
    bytes: number,
  ): Promise<void> {
    const { names, deadLetter, log, now } = this.#deps
    const letter = { reason, detail, stream: names.stream, subject: names.root + subject }
    log.warn({ ...letter, bytes }, 'an event cannot be stored in EVENTS')
    await deadLetter?.({ ...letter, ...EMPTY, bytes, sequence: 0, storedAt: now() })
  }

  /** Stores the dead letter, and only then deletes the message from the stream. */
  async #deadLetter(
    { subject, sequence }: StoredMessage,
    reason: DeadMessage['reason'],
    why: string,
  ): Promise<undefined> {
    const { js, names, deadLetter, log } = this.#deps
    const { stream } = names
    const mayKeep = this.#mayKeep(subject)
    const detail = mayKeep ? why : UNTOLD
    log.warn({ subject, sequence, reason, detail }, 'a message in EVENTS cannot be read')
    if (deadLetter === undefined) return
    const message = await persist(() => js.bySequence(stream, sequence), { log })
    if (message === undefined) return
    const { headers, data } = mayKeep ? message : EMPTY
    const storedAt = new Date(message.storedAt)
    await deadLetter({ reason, detail, stream, subject, sequence, storedAt, headers, data })
    await persist(() => js.remove(stream, sequence), { log })
  }

  /** Whether the body may be kept. If EVENTS may hold only references of a kind, DEAD must not hold its objects. */
  #mayKeep(subject: string): boolean {
    const { names, isReferenceOnly } = this.#deps
    const bare = subject.slice(names.root.length)
    if (!bare.startsWith('k8s.')) return true
    try {
      return !isReferenceOnly(parseObjectSubject(bare).ref)
    } catch {
      return false
    }
  }
}

export interface DeadLettersOptions {
  prefix?: string
  /** Left out: an existing stream keeps its number, a new stream gets one. */
  replicas?: 1 | 3
  /** Raises the replicas of an existing stream to that number. Needs the permission to update the stream. */
  raiseReplicas?: boolean
  /** False: the stream is not created. If it does not exist, reads fail. */
  create?: boolean
  cluster: string
  log: RunLog
  now?: () => Date
}

/** Messages that could not be processed, kept for users for two weeks in one stream. */
export interface DeadLetters {
  readonly stream: string
  /** Stores a letter. Delete the source only after this resolves. It repeats until NATS has answered. */
  put(dead: DeadMessage): Promise<void>
  /** Lists the letters, oldest first. */
  list(): AsyncGenerator<DeadLetter>
  get(id: number): Promise<DeadLetter | undefined>
  remove(id: number): Promise<void>
  /**
   * Whether the letter names EVENTS and a valid subject of it as its origin. This prevents a letter from being
   * published to any other subject.
   */
  isFromEvents(letter: DeadLetter): boolean
  count(): Promise<Record<DeadReason, number>>
}

const MAX_AGE_NS = 14 * 86_400 * 1e9
/**
 * The number of letters kept for one subject, so that a message that fails again and again does not fill the stream.
 */
const MAX_PER_SUBJECT = 16
const DUPLICATE_WINDOW_NS = 120e9
/** The bytes that JetStream adds to a message. */
const OVERHEAD_BYTES = 1024

const namesOf = (prefix = '') => ({
  stream: prefix === '' ? 'DEAD' : `${prefix}_DEAD`,
  root: prefix === '' ? '' : `${prefix}.`,
})

export async function openDeadLetters(js: JetStream, options: DeadLettersOptions): Promise<DeadLetters> {
  const { stream, root } = namesOf(options.prefix)
  if (options.create !== false) await declareDead(js, stream, root, options)
  return deadLettersIn(js, stream, root, options)
}

async function declareDead(
  js: JetStream,
  stream: string,
  root: string,
  { replicas, raiseReplicas }: Pick<DeadLettersOptions, 'replicas' | 'raiseReplicas'>,
): Promise<void> {
  const config: Parameters<typeof declareStream>[1] = {
    name: stream,
    subjects: [`${root}dead.>`],
    retention: 'limits',
    storage: 'file',
    discard: 'old',
    max_age: MAX_AGE_NS,
    max_msgs_per_subject: MAX_PER_SUBJECT,
    allow_direct: true,
    duplicate_window: DUPLICATE_WINDOW_NS,
    ...(replicas === undefined ? undefined : { num_replicas: replicas }),
  }
  await declareStream(js, config, { raiseReplicas })
}

function deadLettersIn(js: JetStream, stream: string, root: string, options: DeadLettersOptions): DeadLetters {
  const { cluster, log, now = () => new Date() } = options
  const events = streamNames(options.prefix)
  const read = (message: { subject: string } & Parameters<typeof decodeDead>[1]) =>
    decodeDead(message.subject.slice(root.length), message)
  /** A user may have deleted the stream to remove all letters, so it is declared again. */
  const declareAgain = async (error: unknown) => {
    if (isUnanswered(error)) await declareDead(js, stream, root, options)
    throw error
  }
  return {
    stream,
    async put(dead) {
      const maxBytes = (js.nc.info?.max_payload ?? 1_048_576) - OVERHEAD_BYTES
      const { headers, data } = await encodeDead(dead, cluster, now(), maxBytes)
      const store = () => js.publish(root + deadSubject(dead), data, headers)
      await persist(() => store().catch(declareAgain), { log })
      const { reason, detail, reconciler, stream: from, subject, sequence } = dead
      log.warn({ reason, detail, reconciler, stream: from, subject, sequence }, 'message is dead: kept in DEAD')
    },
    async *list() {
      for await (const message of js.scan(stream, `${root}dead.>`)) {
        const letter = read(message)
        if (letter) yield letter
      }
    },
    async get(id) {
      const message = await js.bySequence(stream, id)
      return message && read(message)
    },
    remove: (id) => js.remove(stream, id),
    isFromEvents: (letter) => letter.stream === events.stream && isIn(events, letter.subject),
    async count() {
      const ofReason = async (reason: string) => [reason, (await js.count(stream, `${root}dead.*.${reason}.>`)).count]
      return Object.fromEntries(await Promise.all(Object.keys(CODES).map(ofReason)))
    },
  }
}
