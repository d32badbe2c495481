import { type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import { compareVersions, type EventStore, keyOf, parseKey, type StoredEvent } from '#events'
import { Rounds, retry } from '#primitives'
import {
  isByField,
  isNamedInBody,
  namesAt,
  namespacesAt,
  type ObjectSelector,
  type RelatedResource,
  selectionOf,
} from '#spec'
import { hasKey, type Reconciler } from './reconcilers.ts'
import type { Change, RelatedTo } from './routing.ts'

/**
 * The state that maps related objects back to keys: the names in the fields of primaries, and the related objects that
 * matched when they were last observed. It is read from EVENTS once, and then updated with the changes that this bridge
 * publishes, so it is never behind the keys that this bridge has enqueued (docs/decisions/0014-related-objects.md).
 */
export class Relation {
  readonly to: RelatedTo
  /** Rounds for all primaries that name a namespace. */
  readonly fanOuts = new FanOuts()
  readonly #selects: ObjectSelector
  readonly #primaries: NamingPrimaries | undefined
  readonly #members: Members | undefined
  /** Resolves when the objects in EVENTS have been read. */
  readonly #ready: Promise<unknown>
  #isReady = false

  /**
   * `isWider`: the watch includes objects of the related resource that do not match the relation. `members`: those of
   * the resource.
   */
  constructor(to: RelatedTo, isWider: boolean, members: MemberIndex<Relation>, deps: RecallDeps) {
    const { related, reconciler } = to
    this.to = to
    this.#selects = selectionOf(related)
    this.#primaries = isByField(related) ? new NamingPrimaries(reconciler, related, deps) : undefined
    this.#members =
      isWider && related.byName === undefined ? new Members(related, members.setOf(this), deps) : undefined
    this.#ready = Promise.all([this.#primaries?.ready, this.#members?.ready]).then(() => {
      this.#isReady = true
    })
  }

  /** Whether fields of the primaries name the related objects. */
  get isByField(): boolean {
    return this.#primaries !== undefined
  }

  /** Whether changes of objects that the selector does not match may concern the relation. */
  get hasMembers(): boolean {
    return this.#members !== undefined
  }

  /** Whether its members are known. */
  get isReady(): boolean {
    return this.#isReady
  }

  /**
   * Whether the change may concern a primary. An object that is related by its name counts, whether the selector
   * matches or not.
   */
  async concerns({ namespace, name, object }: Change): Promise<boolean> {
    await this.#ready
    if (this.to.related.byName !== undefined || object === undefined || this.#selects(object)) return true
    return this.#members?.has(keyOf(namespace, name)) ?? false
  }

  /** Returns the keys of the primaries that name the object, or its namespace. */
  keysOf(object: Pick<Change, 'namespace' | 'name'>): string[] {
    return this.#primaries?.keysOf(object) ?? []
  }

  /**
   * Must be called before the keys of a primary are enqueued. From then on, a change of the objects that it names finds
   * it.
   */
  learnPrimary(key: string, object: KubeObject | undefined): void {
    this.#primaries?.learn(key, object)
  }

  /** Must be called after the keys of a primary were enqueued. */
  settlePrimary(key: string, object: KubeObject | undefined): void {
    this.#primaries?.settle(key, object)
  }

  /** Whether the key was enqueued after the primary began to name its present objects. */
  isSettled(key: string): boolean {
    return this.#primaries?.isSettled(key) ?? true
  }

  /**
   * Must be called after the keys that an object is related to were enqueued. Until then the object still counts as
   * related.
   */
  learnRelated(key: string, object: KubeObject | undefined): void {
    this.#members?.learn(key, object)
  }
}

/** The related objects that matched the selectors of a relation when they were last observed. */
export class Members {
  readonly #selects: (object: KubeObject) => boolean
  readonly #deps: RecallDeps
  readonly #related: RelatedResource
  readonly #keys: MemberSet
  readonly #recall: Recall

  constructor(related: RelatedResource, keys: MemberSet, deps: RecallDeps) {
    this.#related = related
    this.#keys = keys
    this.#deps = deps
    this.#selects = selectionOf(related)
    this.#recall = new Recall(related, () => this.#reader(), deps)
  }

  get ready(): Promise<void> {
    return this.#recall.ready
  }

  has(key: string): boolean {
    return this.#keys.has(key)
  }

  learn(key: string, object: KubeObject | undefined): void {
    this.#recall.learned(key)
    if (object !== undefined && this.#selects(object)) this.#keys.add(key)
    else this.#keys.delete(key)
  }

  #reader(): (key: string, event: StoredEvent) => Promise<void> {
    const { events } = this.#deps
    const cursors = new Map<string | undefined, Promise<string | undefined>>()
    const coveredUpTo = (scope: string | undefined) => {
      const known = cursors.get(scope) ?? events.cursor(this.#related, scope).then((cursor) => cursor?.resourceVersion)
      cursors.set(scope, known)
      return known
    }
    return async (key, { key: { namespace }, verb, object, resourceVersion }) => {
      const cursor = (await coveredUpTo(undefined)) ?? (await coveredUpTo(namespace))
      // The process that stored the event may have stopped before it enqueued the keys. The state before the event is
      // not known, so the object counts as a member.
      const isUncertain = cursor === undefined || (compareVersions(resourceVersion, cursor) ?? 1) > 0
      if (isUncertain || (verb !== 'deleted' && this.#selects(object))) this.#keys.add(key)
    }
  }
}

/** The keys of many owners, found by key. One set of keys per owner would make each lookup ask every set. */
export class MemberIndex<Owner> {
  readonly #byKey = new Map<string, readonly Owner[]>()
  /**
   * One list per owner, shared by all keys that only this owner has. Such a key takes no more than an entry of the map.
   */
  readonly #alone = new Map<Owner, readonly Owner[]>()

  of(key: string): readonly Owner[] {
    return this.#byKey.get(key) ?? []
  }

  setOf(owner: Owner): MemberSet {
    return {
      has: (key) => this.of(key).includes(owner),
      add: (key) => this.#add(key, owner),
      delete: (key) => this.#delete(key, owner),
    }
  }

  drop(owner: Owner): void {
    for (const key of this.#byKey.keys()) this.#delete(key, owner)
    this.#alone.delete(owner)
  }

  #add(key: string, owner: Owner): void {
    const before = this.of(key)
    if (before.includes(owner)) return
    this.#byKey.set(key, before.length === 0 ? this.#only(owner) : [...before, owner])
  }

  #delete(key: string, owner: Owner): void {
    const before = this.of(key)
    if (!before.includes(owner)) return
    const left = before.filter((one) => one !== owner)
    const [only] = left
    if (only === undefined) this.#byKey.delete(key)
    else this.#byKey.set(key, left.length === 1 ? this.#only(only) : left)
  }

  #only(owner: Owner): readonly Owner[] {
    const alone = this.#alone.get(owner) ?? [owner]
    this.#alone.set(owner, alone)
    return alone
  }
}

export interface MemberSet {
  has(key: string): boolean
  add(key: string): void
  delete(key: string): void
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
  readonly #settled = new Set<string>()
  readonly #recall: Recall

  constructor(reconciler: Reconciler, related: RelatedResource, deps: RecallDeps) {
    this.#reconciler = reconciler
    this.#related = related
    this.#recall = new Recall(reconciler.spec.for, () => (key, event) => this.#take(key, event), deps)
  }

  get ready(): Promise<void> {
    return this.#recall.ready
  }

  learn(key: string, object: KubeObject | undefined): void {
    this.#recall.learned(key)
    if (this.#set(key, object)) this.#settled.delete(key)
  }

  /** Notes that the key was enqueued, or that an active run of it knows of the change. */
  settle(key: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#settled.delete(key)
    else this.#settled.add(key)
  }

  /** Returns false also if this bridge has not enqueued the key yet. */
  isSettled(key: string): boolean {
    return this.#settled.has(key)
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
    const names = object === undefined || byName === undefined ? [] : namesAt(object, byName)
    const namespaces = object === undefined || namespacePath === undefined ? [] : namespacesAt(object, namespacePath)
    const changes = [this.#unread.delete(key), this.#names.set(key, names), this.#namespaces.set(key, namespaces)]
    return changes.includes(true)
  }
}

/**
 * The names that each key refers to, in both directions. If a key refers to other names, the earlier ones are found
 * too.
 */
export class NameIndex {
  readonly #names = new Map<string, readonly string[]>()
  readonly #keys = new Map<string, string | Set<string>>()

  /** Sets the names that a key refers to. Returns whether they have changed. */
  set(key: string, names: readonly string[]): boolean {
    const before = this.#names.get(key) ?? []
    const kept = new Set(names)
    for (const name of before) if (!kept.has(name)) this.#remove(name, key)
    for (const name of names) this.#add(name, key)
    if (names.length === 0) this.#names.delete(key)
    else this.#names.set(key, names)
    return before.length !== names.length || before.some((name, index) => name !== names[index])
  }

  keysOf(name: string): string[] {
    const keys = this.#keys.get(name)
    if (keys === undefined) return []
    return typeof keys === 'string' ? [keys] : [...keys]
  }

  has(name: string, key: string): boolean {
    const keys = this.#keys.get(name)
    return keys === key || (typeof keys === 'object' && keys.has(key))
  }

  #add(name: string, key: string): void {
    const keys = this.#keys.get(name)
    if (keys === undefined || keys === key) this.#keys.set(name, key)
    else if (typeof keys === 'string') this.#keys.set(name, new Set([keys, key]))
    else keys.add(key)
  }

  #remove(name: string, key: string): void {
    const keys = this.#keys.get(name)
    if (typeof keys === 'object') keys.delete(key)
    if (keys === key || (typeof keys === 'object' && keys.size === 0)) this.#keys.delete(name)
  }
}

export interface RecallDeps {
  events: EventStore
  log: RunLog
  signal: AbortSignal
}

type Take = (key: string, event: StoredEvent) => Promise<void> | void

const RETRY_MS = 1000

/**
 * Reads the objects of a resource from EVENTS once, in the background. Skips objects that are learned during that time.
 */
export class Recall {
  readonly #ref: ResourceRef
  readonly #deps: RecallDeps
  /** Keys that were learned since the reading began. EVENTS may have older versions of these. */
  #learned: Set<string> | undefined = new Set()
  /** Resolves when all objects in EVENTS have been read. */
  readonly ready: Promise<void>

  /** `begin` is called when a reading begins, and again if the reading fails. */
  constructor(ref: ResourceRef, begin: () => Take, deps: RecallDeps) {
    this.#ref = ref
    this.#deps = deps
    this.ready = this.#load(begin)
  }

  /** Notes that a newer version of the object is known. */
  learned(key: string): void {
    this.#learned?.add(key)
  }

  async #load(begin: () => Take): Promise<void> {
    const { signal, log } = this.#deps
    const pauseMs = (error: unknown): number => {
      log.warn({ err: error, resource: resourceName(this.#ref) }, 'relations of the objects could not be read yet')
      return RETRY_MS
    }
    await retry(() => this.#read(begin()), { signal, pauseMs }).then(
      () => (this.#learned = undefined),
      // retry() ends only at the signal.
      () => undefined,
    )
  }

  async #read(take: Take): Promise<void> {
    const { events, signal } = this.#deps
    const done = new AbortController()
    const either = AbortSignal.any([done.signal, signal])
    for await (const event of events.follow({ ref: this.#ref }, either, () => done.abort())) {
      const key = keyOf(event.key.namespace, event.key.name)
      if (event.verb !== 'moved' && !this.#learned?.has(key)) await take(key, event)
    }
    signal.throwIfAborted()
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
