import type { ResourceRef, RunLog } from '#contracts'
import { follow, isWrongSequence, type JetStream, type StoredMessage } from '#nats'
import { PoisonEventError, parseJson } from './cloudevent.ts'
import type { DeadLettering } from './dead-letters.ts'
import { EXPECTED, persist, type StreamNames } from './stream.ts'
import { cursorSubject, parseCursorSubject } from './subjects.ts'

/** How far the watch of a resource has been stored. Unless `unlisted`, the resource was also listed completely. */
export interface Cursor {
  resourceVersion: string
  /** A timestamp as in RFC 3339, UTC. */
  at: string
  /** The Reconcilers (name and a digest of what they request) whose keys were enqueued up to here. */
  covers?: string[]
  /** The incarnation of the server that keeps the streams. Another one may have lost the tail of a stream. */
  incarnation?: string
  /** The mark in WORK behind the keys that were enqueued up to here. Without it, WORK has lost some of the keys. */
  work?: string
  /**
   * True: the resource is not listed completely. A first list has begun, or the objects are being swept. Its objects
   * may be deleted from EVENTS at any moment, so the next list stores them again.
   */
  unlisted?: boolean
  /** Set in a record that is not the cursor of a watch: the objects that one Reconciler, the scope, finalizes. */
  finalizes?: Finalized
}

/** The objects that get the finalizer of a Reconciler. */
export interface Finalized {
  finalizer: string
  ref: ResourceRef & { kind: string }
  /** Left out: all namespaces. */
  namespaces?: string[]
}

export interface StoredCursor extends Cursor {
  ref: ResourceRef
  scope: string | undefined
  /** The sequence in EVENTS. The events that the cursor covers have lower sequences. */
  sequence: number
}

export interface CursorDeps {
  js: JetStream
  names: StreamNames
  deadLettering: DeadLettering
  log: RunLog
}

/**
 * The position up to which each watch has been stored. A cursor is stored in the same stream, behind the events that it
 * covers: a loss of the stream's tail loses the cursor as well. Two bridges overwrite each other's cursors; an earlier
 * cursor only repeats work.
 */
export class Cursors {
  readonly #deps: CursorDeps

  constructor(deps: CursorDeps) {
    this.#deps = deps
  }

  async get(ref: ResourceRef, scope: string | undefined): Promise<StoredCursor | undefined> {
    const last = await this.last(ref, scope)
    return last?.unlisted ? undefined : last
  }

  async last(ref: ResourceRef, scope: string | undefined): Promise<StoredCursor | undefined> {
    const { js, names, log } = this.#deps
    const message = await persist(() => js.lastOf(names.stream, names.root + cursorSubject(ref, scope)), { log })
    return message && this.#deps.deadLettering.readOrDeadLetter(message, () => this.#read(message))
  }

  async set(ref: ResourceRef, scope: string | undefined, cursor: Cursor, signal?: AbortSignal): Promise<number> {
    const { js, names, log } = this.#deps
    const subject = names.root + cursorSubject(ref, scope)
    const ack = await persist(() => js.publish(subject, JSON.stringify(cursor), {}), { signal, log })
    return ack.sequence
  }

  async move(
    ref: ResourceRef,
    scope: string | undefined,
    cursor: Cursor,
    after: number,
    signal?: AbortSignal,
  ): Promise<number | undefined> {
    const { js, names, log } = this.#deps
    const subject = names.root + cursorSubject(ref, scope)
    try {
      const publish = () => js.publish(subject, JSON.stringify(cursor), { [EXPECTED]: after })
      return (await persist(publish, { signal, log })).sequence
    } catch (error) {
      if (isWrongSequence(error)) return undefined
      throw error
    }
  }

  async *all(): AsyncGenerator<StoredCursor> {
    const { js, names } = this.#deps
    for await (const message of js.scan(names.stream, this.#filter)) {
      const cursor = await this.#deps.deadLettering.readOrDeadLetter(message, () => this.#read(message))
      if (cursor) yield cursor
    }
  }

  async remove(sequence: number): Promise<void> {
    const { js, names, log } = this.#deps
    await persist(() => js.remove(names.stream, sequence), { log })
  }

  get #filter(): string {
    return `${this.#deps.names.root}cursor.*.*.*.*`
  }

  async *follow(signal: AbortSignal): AsyncGenerator<StoredCursor> {
    const { js, names } = this.#deps
    for await (const message of follow(js, names.stream, [this.#filter], signal)) {
      const cursor = await this.#deps.deadLettering.readOrDeadLetter(message, () => this.#read(message))
      if (cursor) yield cursor
    }
  }

  #read({ subject, sequence, data }: StoredMessage): StoredCursor {
    const cursor = parseJson(Buffer.from(data).toString()) as Cursor | null
    if (typeof cursor?.resourceVersion !== 'string')
      throw new PoisonEventError('invalid-data', 'a cursor has a resourceVersion')
    return { ...cursor, ...parseCursorSubject(subject.slice(this.#deps.names.root.length)), sequence }
  }
}
