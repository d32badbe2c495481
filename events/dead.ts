import type { RunLog } from '#contracts'
import { declareStream, isUnanswered, type JetStream } from '#jetstream'
import {
  CODES,
  type DeadLetter,
  type DeadMessage,
  type DeadReason,
  deadSubject,
  decodeDead,
  encodeDead,
} from './dead-letter.ts'
import { persist } from './persist.ts'
import { isIn, streamNames } from './stream.ts'

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
      const { headers, data } = encodeDead(dead, cluster, now(), maxBytes)
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
