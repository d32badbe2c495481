import type { ResourceRef, RunLog } from '#contracts'
import { follow, isWrongSequence, type JetStream, type StoredMessage } from '#jetstream'
import { parseJson } from './data.ts'
import type { DeadLettering } from './dead-lettering.ts'
import { persist } from './persist.ts'
import { PoisonEventError } from './poison.ts'
import { EXPECTED, type StreamNames } from './stream.ts'
import { cursorSubject, parseCursorSubject } from './subjects.ts'
import type { Cursor, StoredCursor } from './types.ts'

export interface CursorContext {
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
  readonly #context: CursorContext

  constructor(context: CursorContext) {
    this.#context = context
  }

  async get(ref: ResourceRef, scope: string | undefined): Promise<StoredCursor | undefined> {
    const last = await this.last(ref, scope)
    return last?.unlisted ? undefined : last
  }

  async last(ref: ResourceRef, scope: string | undefined): Promise<StoredCursor | undefined> {
    const { js, names, log } = this.#context
    const message = await persist(() => js.lastOf(names.stream, names.root + cursorSubject(ref, scope)), { log })
    return message && this.#context.deadLettering.readOrDeadLetter(message, () => this.#read(message))
  }

  async set(ref: ResourceRef, scope: string | undefined, cursor: Cursor, signal?: AbortSignal): Promise<number> {
    const { js, names, log } = this.#context
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
    const { js, names, log } = this.#context
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
    const { js, names } = this.#context
    for await (const message of js.scan(names.stream, this.#filter)) {
      const cursor = await this.#context.deadLettering.readOrDeadLetter(message, () => this.#read(message))
      if (cursor) yield cursor
    }
  }

  async remove(sequence: number): Promise<void> {
    const { js, names, log } = this.#context
    await persist(() => js.remove(names.stream, sequence), { log })
  }

  get #filter(): string {
    return `${this.#context.names.root}cursor.*.*.*.*`
  }

  async *follow(signal: AbortSignal): AsyncGenerator<StoredCursor> {
    const { js, names } = this.#context
    for await (const message of follow(js, names.stream, [this.#filter], signal)) {
      const cursor = await this.#context.deadLettering.readOrDeadLetter(message, () => this.#read(message))
      if (cursor && !cursor.unlisted) yield cursor
    }
  }

  #read({ subject, sequence, data }: StoredMessage): StoredCursor {
    const cursor = parseJson(Buffer.from(data).toString()) as Cursor | null
    if (typeof cursor?.resourceVersion !== 'string')
      throw new PoisonEventError('invalid-data', 'a cursor has a resourceVersion')
    return { ...cursor, ...parseCursorSubject(subject.slice(this.#context.names.root.length)), sequence }
  }
}
