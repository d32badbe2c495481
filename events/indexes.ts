import type { ResourceRef } from '#contracts'
import type { StoredMessage } from '#jetstream'
import { unlessAborted } from '#primitives'
import { type IndexContext, IndexReader } from './index-reader.ts'
import type { ObjectIndex } from './object-index.ts'
import type { Selection } from './selection.ts'
import { resourcePrefix } from './subjects.ts'
import type { StoredObject } from './types.ts'

/** All indexes of a process may take so much. Beyond it, the one that was used least recently is dropped. */
const CAPACITY_BYTES = 128 * 2 ** 20
/** What was used so lately is needed again soon. */
const BUSY_MS = 60_000
/** An index may be so old, as a part of the life of a tombstone. */
const OLDEST = 0.5

/** What is known of the end of the stream at one moment. */
export interface Mark {
  generation: object
  /** The stream had this sequence. */
  highest: number
}

interface IndexesOptions {
  context: IndexContext
  tombstoneSeconds: number
  selected: (subject: string, object: StoredObject, message: StoredMessage) => void
  /** What was read before is of no use. */
  cleared: () => void
}

/**
 * The indexes that this process reads by: one for each kind and place, made when a run first needs it. Lost with the
 * connection: the server that comes back may not have what they were read from.
 */
export class Indexes {
  readonly #options: IndexesOptions
  /** By filter; what was used last is at the end. */
  readonly #readers = new Map<string, IndexReader>()
  readonly #weights = new WeakMap<IndexReader, number>()
  /** By what the subjects of a kind begin with: an index of a namespace in which there are objects. */
  readonly #inNamespace = new Map<string, IndexReader>()
  #bytes = 0
  #generation = {}
  /** What something that was read has told of the last sequence. A replica may have given later messages. */
  #end = 0
  #highest = 0

  constructor(options: IndexesOptions) {
    const { js } = options.context
    this.#options = options
    js.onDisconnect(() => this.clear())
    js.onReconnect(() => this.clear())
  }

  /** An index with everything that was confirmed before this call. It knows the selection. */
  async upToDate(filter: string, selection: Selection, signal: AbortSignal | undefined): Promise<ObjectIndex> {
    for (;;) {
      const reader = this.#openFor(filter, selection)
      try {
        await unlessAborted(reader.catchUp(), signal)
      } catch (error) {
        if (!reader.disposed.aborted || signal?.aborted === true) throw error
      }
      if (reader.disposed.aborted) continue
      this.#account(filter, reader)
      return reader.index
    }
  }

  /** For another selection by fields everything is read again, once for all selections of which the index knows. */
  #openFor(filter: string, selection: Selection): IndexReader {
    const known = this.#open(filter)
    const isReadAgain = selection.byFields && known.position > 0 && !known.index.knows(selection)
    if (isReadAgain) this.drop(filter)
    const reader = this.#open(filter)
    for (const one of isReadAgain ? known.index.selections : []) reader.index.select(one)
    reader.index.select(selection)
    return reader
  }

  /** As long as there are objects of a kind in a namespace, there are none without a namespace. */
  isNamespaced(ref: ResourceRef): boolean {
    const reader = this.#inNamespace.get(resourcePrefix(ref))
    return reader?.disposed.aborted === false && reader.index.size > 0 && !this.#isOld(reader)
  }

  /** Perhaps a new one, of which nothing is read yet. */
  #open(filter: string): IndexReader {
    const known = this.#readers.get(filter)
    const isKnown = known !== undefined && !this.#isOld(known)
    if (!isKnown) this.drop(filter)
    const { context, selected } = this.#options
    const reader = isKnown ? known : new IndexReader({ context, filter, end: () => this.#end, selected })
    this.#readers.delete(filter)
    this.#readers.set(filter, reader)
    return reader
  }

  /** Before something is read that tells the end of the stream. */
  mark(): Mark {
    return { generation: this.#generation, highest: this.#highest }
  }

  /** False: the stream was set back since, or the connection lost, and what was read by an index is of no use. */
  reached({ generation, highest }: Mark, end: number): boolean {
    if (generation !== this.#generation) return false
    if (end < highest) {
      this.clear()
      return false
    }
    this.#end = Math.max(this.#end, end)
    this.#highest = Math.max(this.#highest, end)
    return true
  }

  clear(): void {
    this.#generation = {}
    this.#end = 0
    this.#highest = 0
    for (const filter of this.#readers.keys()) this.drop(filter)
    this.#options.cleared()
  }

  drop(filter: string): void {
    const reader = this.#readers.get(filter)
    if (reader === undefined) return
    reader[Symbol.dispose]()
    this.#readers.delete(filter)
    this.#bytes -= this.#weights.get(reader) ?? 0
  }

  /** A deletion may be missing in it, whose tombstone is gone. */
  #isOld({ readAt }: IndexReader): boolean {
    const ms = Date.now() - readAt
    return ms < 0 || ms > OLDEST * this.#options.tombstoneSeconds * 1000
  }

  #account(filter: string, reader: IndexReader): void {
    this.#highest = Math.max(this.#highest, reader.position)
    if (reader.isInNamespace && reader.index.size > 0) this.#inNamespace.set(reader.index.prefix, reader)
    const { bytes } = reader.index
    this.#bytes += bytes - (this.#weights.get(reader) ?? 0)
    this.#weights.set(reader, bytes)
    for (const [other, { readAt }] of this.#readers) {
      if (this.#bytes <= CAPACITY_BYTES || other === filter) return
      this.drop(other)
      if (Date.now() - readAt > BUSY_MS) continue
      const { log } = this.#options.context
      log.warn({ filter: other, bytes: this.#bytes }, 'the indexes of related objects do not fit into memory together')
    }
  }
}
