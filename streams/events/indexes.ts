import type { ResourceRef } from '#contracts'
import type { StoredMessage } from '#nats'
import { BoundedMap, unlessAborted } from '#primitives'
import { copyFrom, storedEventFrom } from './event.ts'
import { type IndexDeps, IndexReader, type Located, type ObjectIndex } from './index-reader.ts'
import { type ReadTerms, readPages, sizeOf } from './pages.ts'
import { objectFilter, resourcePrefix } from './subjects.ts'
import type { SelectedQuery, Selection, StoredObject } from './types.ts'
import { isPresent } from './version-conflict.ts'

/** The memory limit for messages, in bytes. Their parsed objects take several times as much. */
const VIEW_CAPACITY_BYTES = 16 * 2 ** 20
/** The number of subjects in one request. */
const AT_ONCE = 256

interface KnownMessage {
  sequence: number
  bytes: number
  object: StoredObject
}

export interface SelectedReaderOptions extends IndexDeps {
  tombstoneSeconds: number
  /** Returns the memory limit of all indexes together, in bytes. Default 128 MiB. */
  capacityBytes?: (() => number) | undefined
}

/**
 * Reads the objects that selections select. They are at least as new as the messages confirmed before. Objects that
 * have not changed come from memory.
 */
export class SelectedReader {
  readonly #deps: IndexDeps
  readonly #indexes: Indexes
  #known = knownObjects()

  constructor({ tombstoneSeconds, capacityBytes, ...deps }: SelectedReaderOptions) {
    this.#deps = deps
    this.#indexes = new Indexes({
      deps,
      tombstoneSeconds,
      ...(capacityBytes && { capacityBytes }),
      selected: (subject, object, message) => remember(this.#known, subject, object, message),
      cleared: () => {
        this.#known = knownObjects()
      },
    })
  }

  endBefore(): StreamEnd {
    return this.#indexes.endBefore()
  }

  /** Notes the end of the stream. False: repeat all reads since then. */
  reached(before: StreamEnd, end: number): boolean {
    return this.#indexes.reached(before, end)
  }

  read(queries: readonly SelectedQuery[], terms: ReadTerms): Promise<StoredObject[][]> {
    return Promise.all(queries.map(async (query) => (this.#isInVain(query) ? [] : this.#select(query, terms))))
  }

  /** Returns the queue keys of the selected objects. */
  async keys({ selection, ...filter }: SelectedQuery): Promise<string[]> {
    if (this.#isInVain({ selection, ...filter })) return []
    const index = await this.#indexes.upToDate(objectFilter(filter), selection, undefined)
    return index.keysOf(selection)
  }

  #isInVain({ ref, clusterScoped }: SelectedQuery): boolean {
    return clusterScoped === true && this.#indexes.isNamespaced(ref)
  }

  async #select({ selection, naming, ...filter }: SelectedQuery, terms: ReadTerms): Promise<StoredObject[]> {
    const place = objectFilter(filter)
    for (let isRepeated = false; ; isRepeated = true) {
      const index = await this.#indexes.upToDate(place, selection, terms.signal)
      const found = await this.#objectsAt(index.locate(selection, naming), terms)
      if (found) return found
      // An object has moved to another owner since, or the index holds an object that EVENTS no longer has.
      if (isRepeated) this.#indexes.drop(place)
    }
  }

  /** Returns the objects. Undefined: one of them no longer exists there. */
  async #objectsAt(located: readonly Located[], terms: ReadTerms): Promise<StoredObject[] | undefined> {
    const objects = new Map<string, StoredObject>()
    const unknown: string[] = []
    for (const { subject, sequence } of located) {
      const known = this.#known.get(subject)
      if (known?.sequence !== sequence) {
        unknown.push(subject)
        continue
      }
      this.#known.set(subject, known)
      terms.allowance?.note(subject, known.bytes)
      objects.set(subject, known.object)
    }
    for (let at = 0; at < unknown.length; at += AT_ONCE)
      if (!(await this.#readAt(unknown.slice(at, at + AT_ONCE), objects, terms))) return undefined
    return located.map(({ subject }) => objects.get(subject)).filter((object) => object !== undefined)
  }

  /** Reads objects. False: one of them no longer exists there. */
  async #readAt(subjects: readonly string[], objects: Map<string, StoredObject>, terms: ReadTerms): Promise<boolean> {
    const { names, deadLettering } = this.#deps
    // The map is replaced as soon as this answer may be older than a loss of messages.
    const known = this.#known
    const { messages } = await readPages(this.#deps, subjects, terms)
    let count = 0
    for (const message of messages) {
      if (!isPresent(copyFrom(message))) continue
      const subject = message.subject.slice(names.root.length)
      const object = await deadLettering.readOrDeadLetter(message, () => storedEventFrom(subject, message))
      if (object === undefined) continue
      remember(known, subject, object, message)
      objects.set(subject, object)
      count++
    }
    return count === subjects.length
  }
}

/** Objects keyed by subject; the most recently used ones are kept. */
const knownObjects = () => new BoundedMap<string, KnownMessage>(VIEW_CAPACITY_BYTES, ({ bytes }) => bytes)

function remember(
  known: BoundedMap<string, KnownMessage>,
  subject: string,
  object: StoredObject,
  message: StoredMessage,
): void {
  known.set(subject, { sequence: object.sequence, bytes: sizeOf(message), object })
}

/** The memory limit of all indexes of a process. Beyond it, the least recently used index is dropped. */
const CAPACITY_BYTES = 128 * 2 ** 20
/** An index that was used within this time is likely to be needed again soon. */
const BUSY_MS = 60_000
/** An index is kept up to date and in memory for this time after its last use. */
const KEPT_MS = 3_600_000
/** The maximum age of an index, as a fraction of the lifetime of a tombstone. */
const OLDEST = 0.5

/** The known end of the stream at one moment. */
export interface StreamEnd {
  generation: object
  /** The stream had this sequence. */
  highest: number
}

interface IndexesOptions {
  deps: IndexDeps
  tombstoneSeconds: number
  selected: (subject: string, object: StoredObject, message: StoredMessage) => void
  /** Called when objects that were read earlier are no longer valid. */
  cleared: () => void
  /** Returns the memory limit of all indexes together, in bytes. Default 128 MiB. */
  capacityBytes?: () => number
  /** How long after its last use an index is kept, in milliseconds. Default: one hour. */
  keptMs?: number
}

/**
 * The indexes from which this process reads: one for each kind and place, built when a run first needs it. They are
 * dropped with the connection, because the server that comes back may have lost the messages that they were built from.
 */
export class Indexes {
  readonly #options: IndexesOptions
  /** The readers keyed by filter; the last used one is at the end. */
  readonly #readers = new Map<string, IndexReader>()
  readonly #weights = new WeakMap<IndexReader, number>()
  /** For each subject prefix of a kind, an index of a namespace that holds objects. */
  readonly #inNamespace = new Map<string, IndexReader>()
  #bytes = 0
  #generation = {}
  /** The stream's last sequence as earlier reads have shown it. A replica may have sent later messages. */
  #end = 0
  #highest = 0

  constructor(options: IndexesOptions) {
    const { js } = options.deps
    this.#options = options
    js.onDisconnect(() => this.clear())
    js.onReconnect(() => this.clear())
  }

  /** Returns an index that knows the selection and everything that was confirmed before this call. */
  async upToDate(filter: string, selection: Selection, signal: AbortSignal | undefined): Promise<ObjectIndex> {
    for (;;) {
      const reader = this.#openFor(filter, selection)
      reader.use()
      try {
        await unlessAborted(reader.catchUp(), signal)
      } catch (error) {
        if (!reader.disposed.aborted || signal?.aborted === true) throw error
      }
      if (reader.disposed.aborted) continue
      this.#account(reader)
      return reader.index
    }
  }

  /**
   * Opens the reader of a filter. A new selection by fields makes it read everything again, once for all selections
   * that the index knows.
   */
  #openFor(filter: string, selection: Selection): IndexReader {
    const known = this.#open(filter)
    const isReadAgain = selection.byFields && known.position > 0 && !known.index.knows(selection)
    if (isReadAgain) this.drop(filter)
    const reader = this.#open(filter)
    for (const one of isReadAgain ? known.index.selections : []) reader.index.select(one)
    reader.index.select(selection)
    return reader
  }

  /**
   * Whether a kind is known to be namespaced: while a namespace holds objects of the kind, none exist without a
   * namespace.
   */
  isNamespaced(ref: ResourceRef): boolean {
    const reader = this.#inNamespace.get(resourcePrefix(ref))
    return reader !== undefined && reader.index.size > 0 && !this.#isOld(reader)
  }

  /** Opens a reader, which may be new and empty. */
  #open(filter: string): IndexReader {
    const known = this.#readers.get(filter)
    const isKnown = known !== undefined && !this.#isOld(known)
    if (!isKnown) this.drop(filter)
    const reader = isKnown ? known : this.#create(filter)
    this.#readers.delete(filter)
    this.#readers.set(filter, reader)
    return reader
  }

  #create(filter: string): IndexReader {
    const { deps, selected, keptMs = KEPT_MS } = this.#options
    const reader = new IndexReader({ deps, filter, end: () => this.#end, selected })
    keepUpToDate(reader, {
      keptMs,
      refreshed: () => {
        if (!reader.disposed.aborted) this.#account(reader)
      },
      isOld: () => this.#isOld(reader),
      unused: () => this.drop(filter),
    })
    return reader
  }

  /** Returns the known end of the stream. Call it before a read that shows the end of the stream. */
  endBefore(): StreamEnd {
    return { generation: this.#generation, highest: this.#highest }
  }

  /**
   * Notes the end of the stream. False: the stream was set back since then, or the connection was lost, so the data
   * that an index has read are not valid.
   */
  reached({ generation, highest }: StreamEnd, end: number): boolean {
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
    const { prefix } = reader.index
    if (this.#inNamespace.get(prefix) === reader) this.#inNamespace.delete(prefix)
    this.#bytes -= this.#weights.get(reader) ?? 0
  }

  /** Whether the index is so old that it may lack a deletion whose tombstone has expired. */
  #isOld({ readAt }: IndexReader): boolean {
    const ms = Date.now() - readAt
    return ms < 0 || ms > OLDEST * this.#options.tombstoneSeconds * 1000
  }

  #account(reader: IndexReader): void {
    this.#highest = Math.max(this.#highest, reader.position)
    if (reader.isInNamespace && reader.index.size > 0) this.#inNamespace.set(reader.index.prefix, reader)
    const { bytes } = reader.index
    this.#bytes += bytes - (this.#weights.get(reader) ?? 0)
    this.#weights.set(reader, bytes)
    const { capacityBytes = () => CAPACITY_BYTES } = this.#options
    const most = capacityBytes()
    for (const [other, { usedAt }] of this.#readers) {
      if (this.#bytes <= most || this.#readers.size === 1) return
      this.drop(other)
      if (Date.now() - usedAt > BUSY_MS) continue
      const { log } = this.#options.deps
      log.warn({ filter: other, bytes: this.#bytes }, 'the indexes of related objects do not fit into memory together')
    }
  }
}

const SHORTEST_PAUSE_MS = 1000
/** An index of objects that do not change costs one message in this time. */
const LONGEST_PAUSE_MS = 16_000

interface Keeping {
  /** How long after its last use by a run an index is kept, in milliseconds. */
  keptMs: number
  /** Called after each read. */
  refreshed: () => void
  /** Whether the index may lack a deletion already. To read on would hide that. */
  isOld: () => boolean
  /** Called once, when no run has used the index for `keptMs`, or when the index is old. */
  unused: () => void
}

/**
 * Reads what has changed in an index, in the background, until the index is out of use. A run then receives only what
 * has changed in the last seconds, however long ago the run before it was.
 */
function keepUpToDate(reader: IndexReader, { keptMs, refreshed, isOld, unused }: Keeping): void {
  const { disposed } = reader
  let pauseMs = SHORTEST_PAUSE_MS
  let received = 0
  let timer: NodeJS.Timeout | undefined
  const refresh = async (): Promise<void> => {
    if (Date.now() - reader.usedAt >= keptMs || isOld()) return unused()
    // A request that the server refuses is refused to the next run too, which reports it.
    await reader.catchUp().then(refreshed, () => undefined)
    pauseMs = reader.received > received ? SHORTEST_PAUSE_MS : Math.min(2 * pauseMs, LONGEST_PAUSE_MS)
    received = reader.received
    start()
  }
  const start = (): void => {
    if (!disposed.aborted) timer = setTimeout(() => void refresh(), pauseMs).unref()
  }
  disposed.addEventListener('abort', () => clearTimeout(timer), { once: true })
  start()
}
