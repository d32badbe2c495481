import type { ResourceRef } from '#contracts'
import { follow, JetStreamError, type StoredMessage } from '#nats'
import type { DeadLettering } from './dead-letters.ts'
import { copyFrom, identityFrom, storedEventFrom } from './event.ts'
import type { SelectedReader } from './indexes.ts'
import type { KnownObject, ObservedView, ObservedViews } from './observed-views.ts'
import { type PagesDeps, type ReadTerms, readPages, sizeOf } from './pages.ts'
import { ANCHOR, publishAnchor } from './stream.ts'
import type { OwnerKey } from './subjects.ts'
import {
  childrenFilter,
  identityFilter,
  identityOf,
  matcherOf,
  type ObjectFilter,
  objectFilter,
  parseKey,
  placesOf,
} from './subjects.ts'
import type { Identity, Observed, ObserveQuery, StoredEvent, StoredObject } from './types.ts'
import { isSelected, type Selection } from './types.ts'
import type { Memory } from './version-conflict.ts'
import { holderOf, isPresent, type StoredCopy } from './version-conflict.ts'

export interface ReaderDeps extends PagesDeps {
  memory: Memory
  views: ObservedViews
  cluster: string
  deadLettering: DeadLettering
}

interface Copy extends StoredCopy {
  /** The subject without the installation's prefix. */
  subject: string
  /** The identityFilter() of the object. */
  identity: string
  message: StoredMessage
}

const TOO_MANY = 413
/**
 * The largest number of bytes that nats-server 2.15 sends to a push consumer before it waits for an answer
 * (JsFlowControlMaxPending).
 */
const PUSHED_BYTES = 32 * 2 ** 20

/** Reads EVENTS. Each read sees everything that was confirmed before it began. */
export class Reader {
  readonly #deps: ReaderDeps
  readonly #selected: SelectedReader

  constructor(deps: ReaderDeps, selected: SelectedReader) {
    this.#deps = deps
    this.#selected = selected
  }

  async observe({ withView = false, ...query }: ObserveQuery): Promise<Observed> {
    const { primary, owned = [], related = [], news } = query
    if (!withView || related.length > 0) return this.#observeAll(query)
    const view = this.#deps.views.open({
      primary: identityFilter(primary),
      owned: owned.map((ref) => childrenFilter(ref, primary.namespace, ownerOf(primary))),
      news: news && { filter: identityFilter(news.of), known: news.known.sequence },
    })
    try {
      return { ...(await this.#observeAll(query, view)), view }
    } catch (error) {
      view.close()
      throw error
    }
  }

  async #observeAll({ related = [], ...query }: ObserveQuery, view?: ObservedView): Promise<Observed> {
    const { allowance, signal } = query
    const terms = { allowance, signal }
    const selected = related.filter(isSelected)
    const before = this.#selected.endBefore()
    const [first, selections] = await Promise.all([
      this.#observe({ ...query, related: related.filter((one) => !isSelected(one)) }, view),
      this.#selected.read(selected, terms),
    ])
    const { end, ...observed } = first
    const isCurrent = end === undefined || this.#selected.reached(before, end)
    const found = isCurrent ? selections : await this.#selected.read(selected, terms)
    return { ...observed, related: related.map((one) => (isSelected(one) ? found : observed.related).shift() ?? []) }
  }

  async #observe(
    {
      primary,
      owned = [],
      related,
      news,
      ...terms
    }: Omit<ObserveQuery, 'related'> & { related: readonly ObjectFilter[] },
    view: ObservedView | undefined,
  ): Promise<Observed & { end: number | undefined }> {
    const owner = ownerOf(primary)
    const primaryFilter = identityFilter(primary)
    const ownedFilters = owned.map((ref) => childrenFilter(ref, primary.namespace, owner))
    const relatedFilters = related.map(objectFilter)
    const filters = [primaryFilter, ...ownedFilters, ...relatedFilters]
    const newsFilter = news && identityFilter(news.of)
    const { copies, end } = await this.#last(newsFilter === undefined ? filters : [...filters, newsFilter], terms)
    this.#remember(copies, [primaryFilter, ...relatedFilters])
    const isNews = newsFilter === undefined ? () => false : matcherOf(newsFilter)
    const told = copies.filter(({ subject }) => isNews(subject))
    const matchers = filters.map(matcherOf)
    const isAsked = ({ subject }: Copy) => !isNews(subject) || matchers.some((matches) => matches(subject))
    const asked = copies.filter(isAsked)
    const present = await this.#objectsIn(asked)
    if (view) beginView(view, asked, present, end !== undefined)
    const matching = (filter: string): StoredObject[] => {
      const matches = matcherOf(filter)
      return present.filter(({ subject }) => matches(subject)).map(({ event }) => event)
    }
    return {
      primary: matching(primaryFilter)[0],
      owned: ownedFilters.map(matching),
      related: relatedFilters.map(matching),
      news: news && (await this.#newsIn(told, news.known)),
      end,
    }
  }

  async *identities(
    ref: ResourceRef,
    scope: string | readonly string[] | undefined,
    { withoutNamespace = false }: { withoutNamespace?: boolean } = {},
  ): AsyncGenerator<Identity> {
    const { places, includes } = placesOf(ref, typeof scope === 'string' ? [scope] : scope, withoutNamespace)
    const filters = places.map(objectFilter)
    const done = new AbortController()
    for await (const message of this.#follow(filters, done.signal, () => done.abort(), true)) {
      const { subject, verb } = this.#copy(message)
      // The object moved to another owner, so the copy there counts.
      if (verb === 'moved') continue
      const identity = await this.#deps.deadLettering.readOrDeadLetter(message, () => identityFrom(subject, message))
      if (identity && includes(identity.key.namespace)) yield identity
    }
  }

  async selectedKeys(ref: ResourceRef, scopes: readonly string[] | undefined, selection: Selection): Promise<string[]> {
    const { places, includes } = placesOf(ref, scopes, true)
    const keys = await Promise.all(places.map((place) => this.#selected.keys({ ...place, ref, selection })))
    return keys.flat().filter((key) => includes(parseKey(key).namespace))
  }

  /** Returns the last message of each matching subject, without its data. */
  heads(filters: string[]): Promise<Pick<Copy, 'subject' | 'message'>[]> {
    return this.#snapshot(filters, {}, true)
  }

  async *follow(filter: ObjectFilter, signal: AbortSignal, caughtUp?: () => void): AsyncGenerator<StoredEvent> {
    for await (const message of this.#follow([objectFilter(filter)], signal, caughtUp)) {
      const event = await this.#deps.deadLettering.readOrDeadLetter(message, () =>
        storedEventFrom(this.#bare(message), message),
      )
      if (event) yield event
    }
  }

  /**
   * Remembers copies that `complete` filters show, because these show an object under each of its owners. Copies from a
   * filter for one owner are not remembered: a writer that knew the object only from there would not mark its other
   * copies.
   */
  #remember(copies: Copy[], complete: string[]): void {
    const matchers = complete.map(matcherOf)
    for (const group of byIdentity(copies).values()) {
      const [copy] = group
      if (copy === undefined || group.length > 1 || copy.verb === 'moved') continue
      const { subject, identity, message: _, ...held } = copy
      if (matchers.some((matches) => matches(subject))) this.#deps.memory.observe(identity, held)
    }
  }

  /** Reads the last message of each matching subject. */
  async #last(filters: string[], terms: ReadTerms): Promise<{ copies: Copy[]; end: number | undefined }> {
    try {
      const { messages, end } = await readPages(this.#deps, filters, terms)
      return { copies: messages.map((message) => this.#copy(message)), end }
    } catch (error) {
      if (!(error instanceof JetStreamError) || error.code !== TOO_MANY) throw error
    }
    terms.allowance?.demand(PUSHED_BYTES)
    using _asked = await this.#deps.js.incoming.acquire(PUSHED_BYTES, terms.signal)
    return { copies: await this.#snapshot(filters, terms), end: undefined }
  }

  /** Does the same as #last for any number of messages. */
  async #snapshot(filters: string[], { allowance, signal }: ReadTerms, headersOnly = false): Promise<Copy[]> {
    const done = new AbortController()
    const last = new Map<string, Copy>()
    const either = signal === undefined ? done.signal : AbortSignal.any([done.signal, signal])
    for await (const message of this.#follow(filters, either, () => done.abort(), headersOnly)) {
      const copy = this.#copy(message)
      last.set(copy.subject, copy)
      allowance?.note(copy.subject, sizeOf(message))
    }
    signal?.throwIfAborted()
    return [...last.values()]
  }

  /**
   * Follows the stream. Publishes the anchor before it begins, and calls `caughtUp` when it reaches it.
   */
  async *#follow(
    filters: string[],
    signal: AbortSignal,
    caughtUp: (() => void) | undefined,
    headersOnly = false,
  ): AsyncGenerator<StoredMessage> {
    const { js, names, cluster, log } = this.#deps
    const anchor = names.root + ANCHOR
    const subjects = filters.map((filter) => names.root + filter)
    let place = caughtUp && (await publishAnchor(js, names, cluster, { signal, log }))
    for await (const message of follow(js, names.stream, place ? [...subjects, anchor] : subjects, signal, {
      headersOnly,
    })) {
      if (message.subject !== anchor) yield message
      if (place === undefined || message.sequence < place) continue
      place = undefined
      caughtUp?.()
    }
  }

  #copy(message: StoredMessage): Copy {
    const subject = this.#bare(message)
    return { ...copyFrom(message), subject, identity: identityOf(subject), message }
  }

  #bare({ subject }: StoredMessage): string {
    return subject.slice(this.#deps.names.root.length)
  }

  async #newsIn(copies: Copy[], known: NonNullable<ObserveQuery['news']>['known']): Promise<Observed['news']> {
    const copy = holderOf(copies)
    if (copy === undefined) return 'absent'
    if (isSameMessage(copy.message, known) || copy.verb === 'moved') return undefined
    return this.#deps.deadLettering.readOrDeadLetter(copy.message, () => storedEventFrom(copy.subject, copy.message))
  }

  /** Returns the present objects. Deleted objects and notes that an object moved to another owner are left out. */
  async #objectsIn(copies: Copy[]): Promise<{ subject: string; event: StoredObject }[]> {
    const objects: { subject: string; event: StoredObject }[] = []
    for (const { subject, message, verb } of holders(copies)) {
      if (!isPresent({ verb })) continue
      const event = this.#deps.deadLettering.readOrDeadLetter(message, () => storedEventFrom(subject, message))
      const read = event instanceof Promise ? await event : event
      if (read) objects.push({ subject, event: read })
    }
    return objects
  }
}

/** Consumers tell the time in nanoseconds, and reads in milliseconds. */
const isSameMessage = (one: StoredMessage, other: Pick<StoredMessage, 'sequence' | 'storedAt'>): boolean =>
  one.sequence === other.sequence && Math.trunc(one.storedAt) === Math.trunc(other.storedAt)

const ownerOf = ({ ref, name }: ObserveQuery['primary']): OwnerKey => ({ resource: ref.resource, name })

/** Begins a view if it can follow the objects: one message for each, all read at one time. */
function beginView(
  view: ObservedView,
  copies: Copy[],
  present: { subject: string; event: StoredObject }[],
  isAtOnce: boolean,
): void {
  const events = new Map(present.map(({ subject, event }) => [subject, event]))
  const known = copies.map(({ identity, subject, sequence, message }): KnownObject => {
    return { identity, subject, sequence, object: events.get(subject), bytes: sizeOf(message) }
  })
  const isClear = copies.every(({ verb, subject }) => verb !== 'moved' && isPresent({ verb }) === events.has(subject))
  if (isClear && isAtOnce && new Set(known.map(({ identity }) => identity)).size === known.length)
    return view.begin(known)
  view.close()
}

/** Returns the copy that counts for each object, in the order of the stream. */
const holders = (copies: Copy[]): Copy[] =>
  [...byIdentity(copies).values()].map(holderOf).filter((copy) => copy !== undefined)

function byIdentity(copies: Copy[]): Map<string, Copy[]> {
  const groups = new Map<string, Copy[]>()
  for (const copy of copies) {
    const known = groups.get(copy.identity)
    if (known) known.push(copy)
    else groups.set(copy.identity, [copy])
  }
  return groups
}
