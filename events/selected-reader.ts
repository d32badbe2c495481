import type { StoredMessage } from '#jetstream'
import { BoundedMap } from '#primitives'
import type { IndexContext } from './index-reader.ts'
import { Indexes, type Mark } from './indexes.ts'
import type { Located } from './object-index.ts'
import { type ReadTerms, readPages, sizeOf } from './pages.ts'
import type { SelectedQuery } from './selection.ts'
import { copyFrom, storedEventFrom } from './stored.ts'
import { objectFilter } from './subjects.ts'
import type { StoredObject } from './types.ts'
import { isPresent } from './version-conflict.ts'

/** The memory limit for messages, in bytes. Their parsed objects take several times as much. */
const CAPACITY_BYTES = 16 * 2 ** 20
/** The number of subjects in one request. */
const AT_ONCE = 256

interface Known {
  sequence: number
  bytes: number
  object: StoredObject
}

export interface SelectedReaderOptions extends IndexContext {
  tombstoneSeconds: number
}

/**
 * Reads the objects that selections select. They are at least as new as the messages confirmed before. Objects that
 * have not changed come from memory.
 */
export class SelectedReader {
  readonly #context: IndexContext
  readonly #indexes: Indexes
  #known = knownObjects()

  constructor({ tombstoneSeconds, ...context }: SelectedReaderOptions) {
    this.#context = context
    this.#indexes = new Indexes({
      context,
      tombstoneSeconds,
      selected: (subject, object, message) => remember(this.#known, subject, object, message),
      cleared: () => {
        this.#known = knownObjects()
      },
    })
  }

  mark(): Mark {
    return this.#indexes.mark()
  }

  /** Notes the end of the stream. False: repeat all reads since the mark. */
  reached(mark: Mark, end: number): boolean {
    return this.#indexes.reached(mark, end)
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

  async #select({ selection, ...filter }: SelectedQuery, terms: ReadTerms): Promise<StoredObject[]> {
    const place = objectFilter(filter)
    for (let isRepeated = false; ; isRepeated = true) {
      const index = await this.#indexes.upToDate(place, selection, terms.signal)
      const found = await this.#objectsAt(index.locate(selection), terms)
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
    const { names, deadLettering } = this.#context
    // The map is replaced as soon as this answer may be older than a loss of messages.
    const known = this.#known
    const { messages } = await readPages(this.#context, subjects, terms)
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
const knownObjects = () => new BoundedMap<string, Known>(CAPACITY_BYTES, ({ bytes }) => bytes)

function remember(
  known: BoundedMap<string, Known>,
  subject: string,
  object: StoredObject,
  message: StoredMessage,
): void {
  known.set(subject, { sequence: object.sequence, bytes: sizeOf(message), object })
}
