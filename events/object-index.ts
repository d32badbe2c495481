import type { KubeObject } from '#contracts'
import { BoundedMap } from '#primitives'
import type { Selection } from './selection.ts'
import { NO_OWNER } from './subjects.ts'
import { holderOf, isPresent, type RankedCopy } from './version-conflict.ts'

type Labels = Readonly<Record<string, string>>

/** What EVENTS has of one object on one subject, as far as selections and the choice between copies need it. */
export interface IndexedCopy extends RankedCopy {
  /** The owner part of the subject. */
  owner: string
  labels: Labels
  /** When EVENTS drops it, epoch milliseconds; undefined: never. */
  until: number | undefined
}

/** Where the copy of an object is that counts. */
export interface Located {
  /** Without the installation's prefix. */
  subject: string
  sequence: number
}

interface Selected {
  selection: Selection
  holds: ReturnType<Selection['matcher']>
  /** Of the objects that it selects. Where only labels are known, it has some too many. */
  keys: Set<string>
}

/** Almost every object has one copy. */
type Entry = IndexedCopy | readonly IndexedCopy[]

const ENTRY_BYTES = 96
const COPY_BYTES = 136
const LABEL_BYTES = 40
const MEMBER_BYTES = 48
/** Of an index without objects. */
const INDEX_BYTES = 4096
/** In V8 a shorter part of a string is a copy. */
const CUT_LENGTH = 13
/** Only a writer that is slower than so many deletions could bring back an object in an older version. */
const GONE_BYTES = 8 * 2 ** 20
const MOST_SELECTIONS = 256
/** Of the labels seen last, those that are equal are kept once: the pods of a ReplicaSet. For the whole process. */
const sharedLabels = new BoundedMap<string, Labels>(4096)

/**
 * What EVENTS has of one kind in one place, and which of it is selected: of each object its copies and their labels, without
 * the objects. Applying every message in the order of the stream gives what a read of all of it gives.
 */
export class ObjectIndex {
  readonly prefix: string
  readonly #present = new Map<string, Entry>()
  /** Deleted, or known only from owners that it has left: they may outrank a copy that comes later. */
  readonly #gone = new BoundedMap<string, Entry>(GONE_BYTES, weightOf)
  readonly #selections = new Map<string, Selected>()
  #presentBytes = 0

  /** `prefix`: with what the subjects of the kind begin, up to the namespace. */
  constructor(prefix: string) {
    this.prefix = prefix
  }

  /** The objects that are there. */
  get size(): number {
    return this.#present.size
  }

  /** What it takes of the heap, at most. */
  get bytes(): number {
    let members = 0
    for (const { keys } of this.#selections.values()) members += keys.size
    return INDEX_BYTES + this.#presentBytes + this.#gone.weight + members * MEMBER_BYTES
  }

  /**
   * The message on this subject is now this one. `object`: in whole, if it is known so. Tells whether somebody selects it.
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
    for (const { holds, keys } of this.#selections.values()) {
      if (holder && isPresent(holder) && holds(holder.labels, holder === kept ? object : undefined)) {
        keys.add(key)
        isSelected = true
      } else keys.delete(key)
    }
    return isSelected
  }

  /** What apply() keeps up with. */
  get selections(): Selection[] {
    return [...this.#selections.values()].map(({ selection }) => selection)
  }

  knows({ text }: Selection): boolean {
    return this.#selections.has(text)
  }

  /** From now on apply() keeps up with it. Of what was applied before, labels alone are known. */
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

  /** In the order of the stream. */
  locate(selection: Selection): Located[] {
    const located: Located[] = []
    for (const key of this.select(selection).keys) {
      const holder = holderOf(this.#copiesOf(key))
      if (holder) located.push({ subject: this.#subjectOf(key, holder.owner), sequence: holder.sequence })
    }
    return located.sort((one, other) => one.sequence - other.sequence)
  }

  #selectAll(selection: Selection): Selected {
    const holds = selection.matcher()
    const keys = new Set<string>()
    for (const key of this.#present.keys()) {
      const holder = holderOf(this.#copiesOf(key))
      if (holder && isPresent(holder) && holds(holder.labels, undefined)) keys.add(key)
    }
    return { selection, holds, keys }
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

/** `<namespace>.<name>` as in the subject. Flat, as keyOf() is. */
function keyOn(subject: string): string {
  const parts = subject.split('.')
  return [parts.at(-3), parts.at(-1)].join('.')
}

/** What of it may be kept for long. */
function keptOf({ owner, sequence, resourceVersion, verb, labels, until }: IndexedCopy): IndexedCopy {
  const text = JSON.stringify(labels)
  const shared = sharedLabels.get(text) ?? labels
  sharedLabels.set(text, shared)
  const place = owner === NO_OWNER ? NO_OWNER : flat(owner)
  return { owner: place, sequence, resourceVersion: flat(resourceVersion), verb, labels: shared, until }
}

const copiesIn = (entry: Entry | undefined): readonly IndexedCopy[] =>
  entry === undefined ? [] : 'owner' in entry ? [entry] : entry

/** What an entry takes of the heap beside its key, at most. */
function weightOf(entry: Entry): number {
  let bytes = ENTRY_BYTES
  for (const { owner, resourceVersion, labels } of copiesIn(entry)) {
    bytes += COPY_BYTES + owner.length + resourceVersion.length
    for (const name in labels) bytes += LABEL_BYTES + (labels[name] ?? '').length
  }
  return bytes
}

/** Not what it was cut from: V8 keeps the whole text of which a longer string is a part. */
const flat = (text: string): string => (text.length < CUT_LENGTH ? text : Buffer.from(text).toString())
