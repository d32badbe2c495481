import { type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import { compareVersions, type EventStore, keyOf, parseKey, type StoredEvent } from '#events'
import { NameIndex, Rounds, retry } from '#primitives'
import {
  isByField,
  isByObjects,
  isNamedInBody,
  namesOf,
  namespacesOf,
  type ObjectSelector,
  primariesIn,
  type RelatedResource,
  selectionOf,
} from '#spec'
import { hasKey, type Reconciler } from './reconcilers.ts'
import { type Change, type RelatedTo } from './routing.ts'

/**
 * A relation of a Reconciler, with the state that maps related objects back to keys: the names in the fields of
 * primaries, and the related objects that matched when they were last observed. It is read from EVENTS once, and then
 * updated with the changes that this bridge publishes, so it is never behind the keys that this bridge has enqueued
 * (docs/decisions/0014-related-objects.md).
 */
export class Relation {
  readonly to: RelatedTo
  /** Undefined: no field of the primaries names the related objects. */
  readonly primaries: NamingPrimaries | undefined
  /** Undefined: changes of objects that the selector does not match concern no primary. */
  readonly members: Members | undefined
  /** Undefined: the related objects do not name their primaries. */
  readonly named: NamedPrimaries | undefined
  /** Rounds for all primaries that name a namespace. */
  readonly fanOuts = new FanOuts()
  readonly #selects: ObjectSelector

  /**
   * `isWider`: the watch includes objects of the related resource that do not match the relation. `index`: of that
   * resource.
   */
  constructor(to: RelatedTo, isWider: boolean, index: MemberIndex, reads: InitialReads) {
    const { related, reconciler } = to
    this.to = to
    this.#selects = selectionOf(related)
    this.primaries = isByField(related) ? new NamingPrimaries(reconciler, related, reads) : undefined
    this.named = isByObjects(related) ? new NamedPrimaries(reconciler, related, reads) : undefined
    this.members = isWider && !isByObject(related) ? new Members(this, index, reads) : undefined
  }

  /**
   * Whether the change may concern a primary. An object that is related by its name counts, whether the selector
   * matches or not.
   */
  async concerns({ namespace, name, object }: Change): Promise<boolean> {
    await Promise.all([this.primaries?.ready, this.members?.ready, this.named?.ready])
    if (isByObject(this.to.related) || object === undefined || this.#selects(object)) return true
    return this.members?.has(keyOf(namespace, name)) ?? false
  }
}

/** Whether the change of an object finds its primaries by a name, whether its labels match the relation or not. */
export const isByObject = (related: RelatedResource): boolean => related.byName !== undefined || isByObjects(related)

/** The primaries that related objects name, as they were when the keys of these objects were last enqueued. */
export class NamedPrimaries {
  readonly #reconciler: Reconciler
  readonly #related: RelatedResource
  readonly #names = new Map<string, readonly string[]>()
  /** Objects of which it is not known whom they have named: their keys may not have been enqueued, or their fields are not here. */
  readonly #unsure = new Set<string>()
  readonly #initialRead: InitialRead

  constructor(reconciler: Reconciler, related: RelatedResource, reads: InitialReads) {
    this.#reconciler = reconciler
    this.#related = related
    this.#initialRead = reads.of(related, 'members', (key, { verb, object, referenceOnly }, isCovered) => {
      this.#set(key, verb === 'deleted' ? undefined : object)
      if (!isCovered || (referenceOnly && related.naming !== undefined)) this.#unsure.add(key)
    })
  }

  get ready(): Promise<void> {
    return this.#initialRead.ready
  }

  /** Returns the names that the object gives, or did before the change. Undefined: they are not known. */
  namesOf({ namespace, name, object }: Change): string[] | undefined {
    const key = keyOf(namespace, name)
    const before = this.#names.get(key)
    if (this.#unsure.has(key) || (object === undefined && before === undefined)) return undefined
    return [...new Set([...(before ?? []), ...(object ? this.#namesIn(object) : [])])]
  }

  /** Must be called after the keys of the primaries were enqueued. Until then those that it has named still count. */
  observe(key: string, object: KubeObject | undefined): void {
    this.#initialRead.noteObserved(key)
    this.#unsure.delete(key)
    this.#set(key, object)
  }

  #set(key: string, object: KubeObject | undefined): void {
    const names = object === undefined ? [] : this.#namesIn(object)
    if (names.length === 0) this.#names.delete(key)
    else this.#names.set(key, names)
  }

  #namesIn(object: KubeObject): string[] {
    return primariesIn(this.#related, object, this.#reconciler.spec.for)
  }
}

/** The related objects that matched the selectors of a relation when their keys were last enqueued. */
export class Members {
  readonly #relation: Relation
  readonly #index: MemberIndex
  readonly #selects: ObjectSelector
  readonly #initialRead: InitialRead

  constructor(relation: Relation, index: MemberIndex, reads: InitialReads) {
    const { related } = relation.to
    this.#relation = relation
    this.#index = index
    this.#selects = selectionOf(related)
    this.#initialRead = reads.of(related, 'members', (key, { verb, object }, isCovered) => {
      // The process that stored the event may have stopped before it enqueued the keys. The state before the event is
      // not known, so the object counts as a member.
      if (!isCovered || (verb !== 'deleted' && this.#selects(object))) index.add(key, relation)
    })
  }

  get ready(): Promise<void> {
    return this.#initialRead.ready
  }

  /** Whether the members are known. Until then, each object may be one. */
  get isRead(): boolean {
    return this.#initialRead.isRead
  }

  has(key: string): boolean {
    return this.#index.of(key).includes(this.#relation)
  }

  /**
   * Must be called after the keys that an object is related to were enqueued. Until then the object still counts as
   * related.
   */
  observe(key: string, object: KubeObject | undefined): void {
    this.#initialRead.noteObserved(key)
    if (object !== undefined && this.#selects(object)) this.#index.add(key, this.#relation)
    else this.#index.delete(key, this.#relation)
  }
}

/** The relations of a resource by the key of their members. One set of keys per relation would make a lookup ask each. */
export class MemberIndex {
  readonly #byKey = new Map<string, readonly Relation[]>()

  of(key: string): readonly Relation[] {
    return this.#byKey.get(key) ?? []
  }

  add(key: string, relation: Relation): void {
    const before = this.of(key)
    if (!before.includes(relation)) this.#byKey.set(key, [...before, relation])
  }

  delete(key: string, relation: Relation): void {
    const left = this.of(key).filter((one) => one !== relation)
    if (left.length === 0) this.#byKey.delete(key)
    else this.#byKey.set(key, left)
  }

  drop(relation: Relation): void {
    for (const key of this.#byKey.keys()) this.delete(key, relation)
  }
}

/** The primaries of a Reconciler that name objects, or namespaces of objects, in their fields. */
export class NamingPrimaries {
  readonly #reconciler: Reconciler
  readonly #related: RelatedResource
  readonly #names = new NameIndex()
  readonly #namespaces = new NameIndex()
  /** Primaries whose fields are not known, because EVENTS has only a reference to them. They may name any object. */
  readonly #unread = new Set<string>()
  /** Keys that were enqueued after the primary began to name its present objects. */
  readonly #confirmed = new Set<string>()
  readonly #initialRead: InitialRead

  constructor(reconciler: Reconciler, related: RelatedResource, reads: InitialReads) {
    this.#reconciler = reconciler
    this.#related = related
    this.#initialRead = reads.of(reconciler.spec.for, 'primaries', (key, event) => this.#take(key, event))
  }

  get ready(): Promise<void> {
    return this.#initialRead.ready
  }

  /**
   * Must be called before the keys of a primary are enqueued. From then on, a change of the objects that it names finds
   * it.
   */
  observe(key: string, object: KubeObject | undefined): void {
    this.#initialRead.noteObserved(key)
    if (this.#set(key, object)) this.#confirmed.delete(key)
  }

  /** Must be called after the key was enqueued, or an active run of it knows of the change. */
  confirm(key: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#confirmed.delete(key)
    else this.#confirmed.add(key)
  }

  /**
   * Whether the key was enqueued after the primary began to name its present objects. Returns false also if this bridge
   * has not enqueued the key yet.
   */
  isConfirmed(key: string): boolean {
    return this.#confirmed.has(key)
  }

  /** Returns the keys of the primaries that name the object, or its namespace. */
  keysOf({ namespace, name }: Pick<Change, 'namespace' | 'name'>): string[] {
    const { byName, namespacePath, within } = this.#related
    if (namespacePath === undefined) {
      const keys = [...this.#names.keysOf(name), ...this.#unread]
      const isAnywhere = within === 'Cluster' || namespace === undefined
      return isAnywhere ? keys : keys.filter((key) => [namespace, undefined].includes(parseKey(key).namespace))
    }
    if (namespace === undefined) return []
    const here = this.#namespaces.keysOf(namespace)
    const keys = byName === undefined ? here : here.filter((key) => this.#names.has(name, key))
    return [...keys, ...this.#unread]
  }

  #take(key: string, { verb, object, referenceOnly }: StoredEvent): void {
    const isPresent = verb !== 'deleted'
    this.#set(key, isPresent ? object : undefined)
    if (isPresent && referenceOnly && isNamedInBody(this.#related) && this.#maySelect(object)) this.#unread.add(key)
  }

  /** Whether a reference may be to an object that is selected. Its fields are not known. */
  #maySelect(reference: KubeObject): boolean {
    return selectionOf({ ...this.#reconciler.spec.for, fieldSelector: undefined })(reference)
  }

  /** Sets the names of a key. Returns whether they have changed. An object that is not selected names nothing. */
  #set(key: string, found: KubeObject | undefined): boolean {
    const object = found && hasKey(this.#reconciler, found) ? found : undefined
    const { byName, namespacePath } = this.#related
    const names = object === undefined || byName === undefined ? [] : namesOf(this.#related, object, byName)
    const namespaces =
      object === undefined || namespacePath === undefined ? [] : namespacesOf(this.#related, object, namespacePath)
    const changes = [this.#unread.delete(key), this.#names.set(key, names), this.#namespaces.set(key, namespaces)]
    return changes.includes(true)
  }
}

export interface InitialReadDeps {
  events: EventStore
  log: RunLog
  signal: AbortSignal
}

/** `isCovered`: a cursor states that the keys of the event were enqueued. */
type Take = (key: string, event: StoredEvent, isCovered: boolean) => void

/**
 * Readings of EVENTS that begin together: one for each resource, however many relations take from it, and one more if it
 * has both primaries and members, which are observed at different times.
 */
export class InitialReads {
  readonly #deps: InitialReadDeps
  readonly #byUse = new Map<string, InitialRead>()

  constructor(deps: InitialReadDeps) {
    this.#deps = deps
  }

  /** Must be called in the turn of the event loop in which the readings were made. */
  of(ref: ResourceRef, use: 'primaries' | 'members', take: Take): InitialRead {
    const id = `${use} ${resourceName(ref)}`
    const read = this.#byUse.get(id) ?? new InitialRead(ref, this.#deps)
    this.#byUse.set(id, read)
    read.takers.push(take)
    return read
  }
}

const RETRY_MS = 1000

/**
 * Reads the objects of a resource from EVENTS once, in the background. Skips objects that are observed during that time.
 */
export class InitialRead {
  readonly takers: Take[] = []
  readonly #ref: ResourceRef
  readonly #deps: InitialReadDeps
  /** Keys that were observed since the reading began. EVENTS may have older versions of these. */
  #observed: Set<string> | undefined = new Set()
  /** Resolves when all objects in EVENTS have been read. */
  readonly ready: Promise<void>

  constructor(ref: ResourceRef, deps: InitialReadDeps) {
    this.#ref = ref
    this.#deps = deps
    this.ready = this.#load()
  }

  get isRead(): boolean {
    return this.#observed === undefined
  }

  /** Notes that a newer version of the object is known. */
  noteObserved(key: string): void {
    this.#observed?.add(key)
  }

  async #load(): Promise<void> {
    const { signal, log } = this.#deps
    const pauseMs = (error: unknown): number => {
      log.warn({ err: error, resource: resourceName(this.#ref) }, 'relations of the objects could not be read yet')
      return RETRY_MS
    }
    await retry(() => this.#read(), { signal, pauseMs }).then(
      () => (this.#observed = undefined),
      // retry() ends only at the signal.
      () => undefined,
    )
  }

  async #read(): Promise<void> {
    const { events, signal } = this.#deps
    const isCovered = coverageOf(events, this.#ref)
    const done = new AbortController()
    const either = AbortSignal.any([done.signal, signal])
    for await (const event of events.follow({ ref: this.#ref }, either, () => done.abort())) {
      const key = keyOf(event.key.namespace, event.key.name)
      if (event.verb === 'moved' || this.#observed?.has(key)) continue
      const covered = await isCovered(event)
      // Meanwhile it may have been observed.
      if (!this.#observed?.has(key)) for (const take of this.takers) take(key, event, covered)
    }
    signal.throwIfAborted()
  }
}

/** Returns whether the cursor of a resource, or of the object's namespace, covers an event. Reads each cursor once. */
function coverageOf(events: EventStore, ref: ResourceRef): (event: StoredEvent) => Promise<boolean> {
  const cursors = new Map<string | undefined, Promise<string | undefined>>()
  const coveredUpTo = (scope: string | undefined) => {
    const known = cursors.get(scope) ?? events.cursor(ref, scope).then((cursor) => cursor?.resourceVersion)
    cursors.set(scope, known)
    return known
  }
  return async ({ key: { namespace }, resourceVersion }) => {
    const cursor = (await coveredUpTo(undefined)) ?? (await coveredUpTo(namespace))
    return cursor !== undefined && (compareVersions(resourceVersion, cursor) ?? 1) <= 0
  }
}

/**
 * Actions for all keys, by name. A thousand changes at once cause two rounds, and a complete round follows each change. An
 * entry is removed when its rounds have ended.
 */
export class FanOuts {
  readonly #known = new Map<string, Rounds>()

  run(name: string, round: () => Promise<void>): Promise<void> {
    const fanOut = this.#known.get(name) ?? new Rounds(round)
    this.#known.set(name, fanOut)
    return fanOut.run(round).finally(() => {
      if (fanOut.isIdle && this.#known.get(name) === fanOut) this.#known.delete(name)
    })
  }
}
