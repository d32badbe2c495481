import type { KubeObject } from '#contracts'
import type { PageFrom, StoredMessage } from '#nats'
import { BoundedMap, NameIndex, Rounds } from '#primitives'
import type { DeadLettering } from './dead-letters.ts'
import { copyFrom, expiryOf, storedEventFrom } from './event.ts'
import { LARGEST_MESSAGE_BYTES, NEXT_PAGE_BYTES, type PagesDeps } from './pages.ts'
import { persist } from './stream.ts'
import { NO_OWNER, NONE } from './subjects.ts'
import type { Selection, StoredObject } from './types.ts'
import { holderOf, isPresent, type RankedCopy } from './version-conflict.ts'

/** The number of parts of the filter before the namespace. */
const PREFIX_PARTS = 4
/**
 * For a page, the server counts all matching messages: 3 ms for 20,000 objects, 14 ms for 100,000. One message costs
 * 0.4 ms.
 */
const SINGLE_MESSAGES = 8
const OBJECTS_PER_SINGLE_MESSAGE = 4096

export interface IndexDeps extends PagesDeps {
  deadLettering: DeadLettering
}

export interface IndexReaderOptions {
  deps: IndexDeps
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
  readonly #reads = new Rounds(() => this.#readOnce())
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
    return this.#reads.run()
  }

  [Symbol.dispose](): void {
    this.#disposed.abort(new Error('the index is out of use'))
  }

  async #readOnce(): Promise<void> {
    const began = Date.now()
    await this.#read()
    this.#readAt = began
  }

  async #read(): Promise<void> {
    const { js, isReplicated } = this.#options.deps
    const isUnreplicated = !isReplicated()
    const next = (): Promise<StoredMessage | undefined> =>
      this.#ask((stream, subject) =>
        js.nextFrom(stream, this.#position + 1, subject, isUnreplicated ? 'any replica' : 'leader'),
      )
    const most = this.#isBuilt ? SINGLE_MESSAGES + this.index.size / OBJECTS_PER_SINGLE_MESSAGE : 0
    for (let count = 0; count < most; count++) {
      const end = this.#options.end()
      const message = await next()
      if (message === undefined) return this.#cover(end)
      await this.#apply([message])
    }
    // A replica that is behind may have sent the page, so the leader may have more.
    const confirmed = isUnreplicated ? 0 : await this.#ask((stream) => js.lastSequence(stream))
    for (;;) {
      const end = Math.max(confirmed, this.#options.end())
      const { messages, next: more } = await this.#page()
      await this.#apply(messages)
      if (more !== undefined) continue
      if (isUnreplicated) return this.#cover(end)
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
    const { deps, filter } = this.#options
    deps.log.debug({ filter, objects: this.index.size }, 'the index of a related kind is read')
  }

  #page(): Promise<PageFrom> {
    const { js } = this.#options.deps
    return this.#ask(async (stream, subject, signal) => {
      using _asked = await js.incoming.acquire(NEXT_PAGE_BYTES + LARGEST_MESSAGE_BYTES, signal)
      return await js.pageFrom(stream, subject, { first: this.#position + 1, maxBytes: NEXT_PAGE_BYTES })
    })
  }

  #ask<T>(request: (stream: string, subject: string, signal: AbortSignal) => Promise<T>): Promise<T> {
    const { deps, filter } = this.#options
    const { names, log } = deps
    const { signal } = this.#disposed
    return persist(() => request(names.stream, names.root + filter, signal), { signal, log })
  }

  async #apply(messages: readonly StoredMessage[]): Promise<void> {
    const { deps, selected } = this.#options
    for (const message of messages) {
      const subject = message.subject.slice(deps.names.root.length)
      const copy = copyFrom(message)
      const isThere = isPresent(copy)
      const event = isThere
        ? await deps.deadLettering.readOrDeadLetter(message, () => storedEventFrom(subject, message))
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

type Labels = Readonly<Record<string, string>>

/**
 * The copy of one object on one subject in EVENTS, with the fields that selections and the choice between copies need.
 */
export interface IndexedCopy extends RankedCopy {
  /** The owner part of the subject. */
  owner: string
  labels: Labels
  /** When EVENTS drops the copy, in epoch milliseconds. Undefined: never. */
  until: number | undefined
}

/** The place of the copy that counts for an object. */
export interface Located {
  /** The subject without the installation's prefix. */
  subject: string
  sequence: number
}

interface Selected {
  selection: Selection
  holds: ReturnType<Selection['matcher']>
  /**
   * The keys of the selected objects. If only the labels of an object are known, its key may be included although its
   * fields do not match.
   */
  keys: Set<string>
  /** The names in these objects; UNKNOWN if only the labels are known. Undefined: no query asks by name. */
  names: NameIndex | undefined
}

/** No field counts as a name if it is empty. */
const UNKNOWN = ''

/** One or more copies of an object. Almost every object has one. */
type Entry = IndexedCopy | readonly IndexedCopy[]

const ENTRY_BYTES = 96
const COPY_BYTES = 136
const LABEL_BYTES = 40
const MEMBER_BYTES = 48
/** A name of an object, in both directions, and the object's place among those with the name. */
const NAME_BYTES = 384
/** The size of an index without objects. */
const INDEX_BYTES = 4096
/** V8 copies a part of a string that is shorter than this, instead of referring to the whole string. */
const CUT_LENGTH = 13
/**
 * The memory for deleted objects. A writer could bring back an older version of an object only after as many deletions
 * as fit here.
 */
const GONE_BYTES = 8 * 2 ** 20
const MOST_SELECTIONS = 256
/**
 * Shares equal labels among the recently seen ones, such as those of the pods of a ReplicaSet, across the whole
 * process.
 */
const sharedLabels = new BoundedMap<string, Labels>(4096)

/**
 * An index of the copies of all objects of one kind in one place, with their labels but without the objects, and of the
 * objects that each selection selects. Applying every message in the order of the stream gives the same result as
 * reading all of them.
 */
export class ObjectIndex {
  readonly prefix: string
  readonly #present = new Map<string, Entry>()
  /**
   * Objects that were deleted, or are known only from owners that they have left. They may outrank a copy that comes
   * later.
   */
  readonly #gone = new BoundedMap<string, Entry>(GONE_BYTES, weightOf)
  readonly #selections = new Map<string, Selected>()
  #presentBytes = 0

  /** `prefix` is the beginning of the kind's subjects, up to the namespace. */
  constructor(prefix: string) {
    this.prefix = prefix
  }

  /** The number of present objects. */
  get size(): number {
    return this.#present.size
  }

  /** The upper limit of the used heap in bytes. */
  get bytes(): number {
    let members = 0
    let named = 0
    for (const { keys, names } of this.#selections.values()) {
      members += keys.size
      named += names?.size ?? 0
    }
    return INDEX_BYTES + this.#presentBytes + this.#gone.weight + members * MEMBER_BYTES + named * NAME_BYTES
  }

  /**
   * Applies a message: it is now the last one on this subject. `object` is the whole object, if it is known. Returns
   * whether a selection selects it.
   */
  apply(subject: string, copy: IndexedCopy, object: KubeObject | undefined, now: number): boolean {
    const key = keyOn(subject)
    const others = this.#copiesOf(key).filter(
      ({ owner, until }) => owner !== copy.owner && (until === undefined || until > now),
    )
    const kept = keptOf(copy)
    const copies = [...others, kept]
    this.#set(key, others.length === 0 ? kept : copies)
    const holder = holderOf(copies)
    let isSelected = false
    const known = holder === kept ? object : undefined
    for (const { selection, holds, keys, names } of this.#selections.values()) {
      if (holder && isPresent(holder) && holds(holder.labels, known)) {
        keys.add(key)
        names?.set(key, known === undefined ? [UNKNOWN] : (selection.namesIn?.(known) ?? []))
        isSelected = true
      } else {
        keys.delete(key)
        names?.set(key, [])
      }
    }
    return isSelected
  }

  /** The selections that apply() keeps up to date. */
  get selections(): Selection[] {
    return [...this.#selections.values()].map(({ selection }) => selection)
  }

  knows({ text }: Selection): boolean {
    return this.#selections.has(text)
  }

  /**
   * Adds a selection, which apply() keeps up to date from now on. For messages that were applied before, only the
   * labels are known.
   */
  select(selection: Selection): Selected {
    const { text } = selection
    const known = this.#selections.get(text)
    const selected = known ?? this.#selectAll(selection)
    this.#selections.delete(text)
    this.#selections.set(text, selected)
    for (const oldest of this.#selections.keys()) {
      if (this.#selections.size <= MOST_SELECTIONS) break
      this.#selections.delete(oldest)
    }
    return selected
  }

  /**
   * Returns the places of the selected objects, in the order of the stream. `name`: of those that may have it, by `namesIn` of
   * the selection.
   */
  locate(selection: Selection, name?: string): Located[] {
    const located: Located[] = []
    const { keys, names } = this.select(selection)
    const wanted = names && name !== undefined ? [...names.keysOf(name), ...names.keysOf(UNKNOWN)] : keys
    for (const key of wanted) {
      const holder = holderOf(this.#copiesOf(key))
      if (holder) located.push({ subject: this.#subjectOf(key, holder.owner), sequence: holder.sequence })
    }
    return located.sort((one, other) => one.sequence - other.sequence)
  }

  /** Returns the keys of the selected objects, as keyOf() of the subjects returns them. */
  keysOf(selection: Selection): string[] {
    return [...this.select(selection).keys]
  }

  #selectAll(selection: Selection): Selected {
    const holds = selection.matcher()
    const keys = new Set<string>()
    const names = selection.namesIn && new NameIndex()
    for (const key of this.#present.keys()) {
      const holder = holderOf(this.#copiesOf(key))
      if (!holder || !isPresent(holder) || !holds(holder.labels, undefined)) continue
      keys.add(key)
      names?.set(key, [UNKNOWN])
    }
    return { selection, holds, keys, names }
  }

  #copiesOf(key: string): readonly IndexedCopy[] {
    return copiesIn(this.#present.get(key) ?? this.#gone.get(key))
  }

  #set(key: string, entry: Entry): void {
    const before = this.#present.get(key)
    if (before !== undefined) this.#presentBytes -= key.length + weightOf(before)
    this.#gone.delete(key)
    if (copiesIn(entry).some(isPresent)) {
      this.#present.set(key, entry)
      this.#presentBytes += key.length + weightOf(entry)
    } else {
      this.#present.delete(key)
      this.#gone.set(key, entry)
    }
  }

  #subjectOf(key: string, owner: string): string {
    const dot = key.indexOf('.')
    return `${this.prefix}.${key.slice(0, dot)}.${owner}.${key.slice(dot + 1)}`
  }
}

/** Returns `<namespace>.<name>` as in the subject. Flat, like the result of keyOf(). */
function keyOn(subject: string): string {
  const parts = subject.split('.')
  return [parts.at(-3), parts.at(-1)].join('.')
}

/** Returns a copy that may be kept for long: it refers to no larger text. */
function keptOf({ owner, sequence, resourceVersion, verb, labels, until }: IndexedCopy): IndexedCopy {
  const text = JSON.stringify(labels)
  const shared = sharedLabels.get(text) ?? labels
  sharedLabels.set(text, shared)
  const place = owner === NO_OWNER ? NO_OWNER : flat(owner)
  return { owner: place, sequence, resourceVersion: flat(resourceVersion), verb, labels: shared, until }
}

const copiesIn = (entry: Entry | undefined): readonly IndexedCopy[] =>
  entry === undefined ? [] : 'owner' in entry ? [entry] : entry

/** Returns the upper limit of the heap that an entry takes besides its key, in bytes. */
function weightOf(entry: Entry): number {
  let bytes = ENTRY_BYTES
  for (const { owner, resourceVersion, labels } of copiesIn(entry)) {
    bytes += COPY_BYTES + owner.length + resourceVersion.length
    for (const name in labels) bytes += LABEL_BYTES + (labels[name] ?? '').length
  }
  return bytes
}

/**
 * Returns a string that does not refer to the text it was cut from. V8 keeps the whole text as long as a longer part of
 * it exists.
 */
const flat = (text: string): string => (text.length < CUT_LENGTH ? text : Buffer.from(text).toString())
