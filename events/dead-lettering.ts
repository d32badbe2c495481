import type { ResourceRef, RunLog } from '#contracts'
import type { JetStream, StoredMessage } from '#jetstream'
import type { DeadMessage } from './dead-letter.ts'
import { persist } from './persist.ts'
import { PoisonEventError } from './poison.ts'
import type { StreamNames } from './stream.ts'
import { SubjectError } from './subject-part.ts'
import { parseObjectSubject } from './subjects.ts'

export interface DeadLetteringContext {
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
  readonly #context: DeadLetteringContext

  constructor(context: DeadLetteringContext) {
    this.#context = context
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
    const { names, deadLetter, log, now } = this.#context
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
    const { js, names, deadLetter, log } = this.#context
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
    const { names, isReferenceOnly } = this.#context
    const bare = subject.slice(names.root.length)
    if (!bare.startsWith('k8s.')) return true
    try {
      return !isReferenceOnly(parseObjectSubject(bare).ref)
    } catch {
      return false
    }
  }
}
