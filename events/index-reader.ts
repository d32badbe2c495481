import type { PageFrom, StoredMessage } from '#jetstream'
import type { DeadLettering } from './dead-lettering.ts'
import { ObjectIndex } from './object-index.ts'
import { LARGEST_MESSAGE_BYTES, NEXT_PAGE_BYTES, type PagesContext } from './pages.ts'
import { persist } from './persist.ts'
import { copyFrom, expiryOf, storedEventFrom } from './stored.ts'
import { NONE } from './subject-part.ts'
import type { StoredObject } from './types.ts'
import { isPresent } from './version-conflict.ts'

/** The number of parts of the filter before the namespace. */
const PREFIX_PARTS = 4
/**
 * For a page, the server counts all matching messages: 3 ms for 20,000 objects, 14 ms for 100,000. One message costs
 * 0.4 ms.
 */
const SINGLE_MESSAGES = 8
const OBJECTS_PER_SINGLE_MESSAGE = 4096

export interface IndexContext extends PagesContext {
  deadLettering: DeadLettering
}

export interface IndexReaderOptions {
  context: IndexContext
  /** The objectFilter of a kind in a place, without the installation's prefix. */
  filter: string
  /** Returns the stream's last sequence, as far as earlier reads have shown it. */
  end: () => number
  /** Called when an object that a selection selects was stored. */
  selected: (subject: string, object: StoredObject, message: StoredMessage) => void
}

/**
 * Keeps an index up to date with EVENTS. When the index is needed, the reader requests the messages behind the last one
 * that it knows.
 */
export class IndexReader implements Disposable {
  readonly index: ObjectIndex
  readonly #options: IndexReaderOptions
  readonly #disposed = new AbortController()
  /** All matching messages up to this sequence are known. */
  #position = 0
  #isBuilt = false
  #underWay: Promise<void> | undefined
  #next: Promise<void> | undefined
  #readAt = Date.now()
  #usedAt = Date.now()
  #received = 0

  constructor(options: IndexReaderOptions) {
    this.#options = options
    this.index = new ObjectIndex(options.filter.split('.').slice(0, PREFIX_PARTS).join('.'))
  }

  get position(): number {
    return this.#position
  }

  /** Aborted: the index may be wrong. */
  get disposed(): AbortSignal {
    return this.#disposed.signal
  }

  /** The time by this machine's clock up to which all stored and deleted objects are known. */
  get readAt(): number {
    return this.#readAt
  }

  /** The number of messages that were applied. */
  get received(): number {
    return this.#received
  }

  /** The time of the last use(), by this machine's clock. */
  get usedAt(): number {
    return this.#usedAt
  }

  /** Notes that a run uses the index. */
  use(): void {
    this.#usedAt = Date.now()
  }

  /** Whether the filter selects one namespace. */
  get isInNamespace(): boolean {
    const place = this.#options.filter.split('.')[PREFIX_PARTS]
    return place !== '*' && place !== NONE
  }

  /**
   * Resolves when the index has everything that was confirmed before this call. All calls during a read share the next
   * read.
   */
  catchUp(): Promise<void> {
    if (this.#next) return this.#next
    if (this.#underWay === undefined) return this.#start()
    this.#next = this.#underWay
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined
        return this.#start()
      })
    return this.#next
  }

  [Symbol.dispose](): void {
    this.#disposed.abort(new Error('the index is out of use'))
  }

  #start(): Promise<void> {
    const began = Date.now()
    const reading = this.#read().then(
      () => {
        this.#readAt = began
        this.#underWay = undefined
      },
      (error: unknown) => {
        this.#underWay = undefined
        throw error
      },
    )
    this.#underWay = reading
    return reading
  }

  async #read(): Promise<void> {
    const { js, isReplicated } = this.#options.context
    const isAlone = !isReplicated()
    const next = (): Promise<StoredMessage | undefined> =>
      this.#ask((stream, subject) =>
        isAlone ? js.nextFrom(stream, this.#position + 1, subject) : js.firstFrom(stream, this.#position + 1, subject),
      )
    const most = this.#isBuilt ? SINGLE_MESSAGES + this.index.size / OBJECTS_PER_SINGLE_MESSAGE : 0
    for (let count = 0; count < most; count++) {
      const end = this.#options.end()
      const message = await next()
      if (message === undefined) return this.#cover(end)
      await this.#apply([message])
    }
    // A replica that is behind may have sent the page, so the leader may have more.
    const confirmed = isAlone ? 0 : await this.#ask((stream) => js.lastSequence(stream))
    for (;;) {
      const end = Math.max(confirmed, this.#options.end())
      const { messages, next: more } = await this.#page()
      await this.#apply(messages)
      if (more !== undefined) continue
      if (isAlone) return this.#cover(end)
      if (this.#position >= confirmed) return this.#cover(0)
      const message = await next()
      if (message === undefined) return this.#cover(end)
      await this.#apply([message])
    }
  }

  /** Notes that the server has nothing more up to `end`, which was known before the server was asked. */
  #cover(end: number): void {
    this.#position = Math.max(this.#position, end)
    if (this.#isBuilt) return
    this.#isBuilt = true
    const { context, filter } = this.#options
    context.log.debug({ filter, objects: this.index.size }, 'the index of a related kind is read')
  }

  #page(): Promise<PageFrom> {
    const { js } = this.#options.context
    return this.#ask(async (stream, subject, signal) => {
      using _asked = await js.incoming.acquire(NEXT_PAGE_BYTES + LARGEST_MESSAGE_BYTES, signal)
      return await js.pageFrom(stream, subject, { first: this.#position + 1, maxBytes: NEXT_PAGE_BYTES })
    })
  }

  #ask<T>(request: (stream: string, subject: string, signal: AbortSignal) => Promise<T>): Promise<T> {
    const { context, filter } = this.#options
    const { names, log } = context
    const { signal } = this.#disposed
    return persist(() => request(names.stream, names.root + filter, signal), { signal, log })
  }

  async #apply(messages: readonly StoredMessage[]): Promise<void> {
    const { context, selected } = this.#options
    for (const message of messages) {
      const subject = message.subject.slice(context.names.root.length)
      const copy = copyFrom(message)
      const isThere = isPresent(copy)
      const event = isThere
        ? await context.deadLettering.readOrDeadLetter(message, () => storedEventFrom(subject, message))
        : undefined
      this.#disposed.signal.throwIfAborted()
      const verb = isThere && event === undefined ? 'moved' : copy.verb
      const labels = event?.object.metadata.labels ?? {}
      const indexed = { ...copy, verb, labels, until: expiryOf(message) }
      const object = event?.referenceOnly === false ? event.object : undefined
      const isSelected = this.index.apply(subject, indexed, object, Date.now())
      this.#position = message.sequence
      this.#received++
      if (isSelected && event) selected(subject, event, message)
    }
  }
}
