import type { ResourceRef, RunLog } from '#contracts'
import type { JetStream, StoredMessage } from '#jetstream'
import type { DeadMessage } from './dead-letter.ts'
import { persist } from './persist.ts'
import { PoisonEventError } from './poison.ts'
import type { StreamNames } from './stream.ts'
import { parseObjectSubject } from './subjects.ts'
import { SubjectError } from './token.ts'

export interface BurialContext {
  js: JetStream
  names: StreamNames
  isReferenceOnly: (ref: ResourceRef) => boolean
  bury: ((dead: DeadMessage) => Promise<void>) | undefined
  log: RunLog
  now: () => Date
}

/** Whoever quotes what is wrong with a broken message quotes the message. */
const UNTOLD = 'of its kind only references travel, so nothing of it is kept'
const EMPTY = { headers: {}, data: new Uint8Array() }

/** What becomes of messages in EVENTS that nobody can read: one of them never keeps a reader from the next. */
export class Burial {
  readonly #context: BurialContext

  constructor(context: BurialContext) {
    this.#context = context
  }

  /** What `read` gives; undefined, after the message was buried, if it is poison. */
  unless<T>(message: StoredMessage, read: () => T): T | Promise<undefined> {
    try {
      return read()
    } catch (error) {
      if (error instanceof PoisonEventError) return this.#bury(message, error.reason, error.message)
      if (error instanceof SubjectError) return this.#bury(message, 'no-cloudevent', error.message)
      throw error
    }
  }

  /** What never came into the stream: its body, which may be confidential, is left out. */
  async ofUnstored(subject: string, reason: DeadMessage['reason'], detail: string, bytes: number): Promise<void> {
    const { names, bury, log, now } = this.#context
    const letter = { reason, detail, stream: names.stream, subject: names.root + subject }
    log.warn({ ...letter, bytes }, 'an event cannot be stored in EVENTS')
    await bury?.({ ...letter, ...EMPTY, bytes, sequence: 0, storedAt: now() })
  }

  /** Taken out of the stream only when it is kept elsewhere. */
  async #bury({ subject, sequence }: StoredMessage, reason: DeadMessage['reason'], why: string): Promise<undefined> {
    const { js, names, bury, log } = this.#context
    const { stream } = names
    const mayKeep = this.#mayKeep(subject)
    const detail = mayKeep ? why : UNTOLD
    log.warn({ subject, sequence, reason, detail }, 'a message in EVENTS cannot be read')
    if (bury === undefined) return
    const message = await persist(() => js.bySequence(stream, sequence), { log })
    if (message === undefined) return
    const { headers, data } = mayKeep ? message : EMPTY
    const storedAt = new Date(message.storedAt)
    await bury({ reason, detail, stream, subject, sequence, storedAt, headers, data })
    await persist(() => js.remove(stream, sequence), { log })
  }

  /** What may be in EVENTS as a reference only may not be elsewhere in whole. */
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
