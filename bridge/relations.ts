import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf, parseKey } from '#events'
import { forEachAtMost } from '#primitives'
import { keysOf } from './key-batches.ts'
import type { NamedKinds } from './named-kinds.ts'
import { isSelectedBy, type Reconciler } from './reconcilers.ts'
import {
  FanOuts,
  type InitialReadDeps,
  InitialReads,
  isByObject,
  MemberIndex,
  type NamingPrimaries,
  Relation,
} from './relation.ts'
import {
  append,
  type Change,
  isInNamespaces,
  isPossibleName,
  type RelatedTo,
  Routes,
  SelectorIndex,
} from './routing.ts'

type Lane = 'high' | 'low'
/** The Reconcilers, by coverage ID, whose every key a list enqueues, and why, in words. */
export interface Pending {
  isPending: (coverageId: string) => boolean
  /** Undefined: the list found the key. */
  pendingBecause: (coverageId: string) => string | undefined
}

type Enqueue = (reconciler: string, key: string, lane: Lane, cause: string) => Promise<void>

/** How keys are queued, and why. */
interface As {
  lane: Lane
  cause: string
}

interface RelationsDeps extends InitialReadDeps {
  /** Left out: no relation has `kindPath`. */
  named?: Pick<NamedKinds, 'observePrimary' | 'keysOf'>
  /** Whether a resource is cluster-scoped. Waits until that is known. */
  isClusterScoped: (ref: ResourceRef) => Promise<boolean>
}

const PROMPT_AT_MOST = 64
/** The number of primaries that an object names and that are looked up one by one. */
const LOOKED_UP_AT_MOST = 64
/** The number of keys in progress when every key of a Reconciler is enqueued. */
const KEYS_AT_ONCE = 64

/** Maps changes of related objects back to the keys of the primaries. */
export class Relations {
  readonly #deps: RelationsDeps
  readonly #enqueue: Enqueue
  #relations = new Map<string, Relation>()
  /** The members of relations, by related resource. */
  #members = new Map<string, MemberIndex>()
  #index = new RelationIndex([], this.#members)
  #routes = new Routes([])
  readonly #fanOuts = new FanOuts()

  constructor(deps: RelationsDeps, enqueue: Enqueue) {
    this.#deps = deps
    this.#enqueue = enqueue
  }

  /** Follows a change of the Reconcilers: reads the state of new relations, and forgets relations that are gone. */
  reroute(routes: Routes): void {
    this.#routes = routes
    const kept = new Map<string, Relation>()
    const reads = new InitialReads(this.#deps)
    for (const to of routes.refs.flatMap((ref) => routes.relatedTo(ref))) {
      const isWider = isWatchedWider(routes, to)
      const id = `${to.reconciler.coverageId} ${to.index} ${isWider}`
      kept.set(id, this.#relations.get(id) ?? new Relation(to, isWider, this.#membersOf(to.related), reads))
    }
    for (const [id, relation] of this.#relations)
      if (relation.members && !kept.has(id)) this.#membersOf(relation.to.related).drop(relation)
    this.#relations = kept
    this.#index = new RelationIndex([...kept.values()], this.#members)
  }

  /** Reads the state again from EVENTS and the cursors, because enqueued keys may be lost. */
  recheck(routes: Routes): void {
    this.#relations = new Map()
    this.#members = new Map()
    this.reroute(routes)
  }

  observePrimary(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    this.#deps.named?.observePrimary(ref, key, object)
    for (const primaries of this.#index.namedBy(ref)) primaries.observe(key, object)
  }

  confirmPrimary(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const primaries of this.#index.namedBy(ref)) primaries.confirm(key, object)
  }

  /**
   * Whether the Reconciler's key was enqueued after the primary began to name its present related objects. Before that,
   * changes of these objects caused no runs of the key.
   */
  isConfirmed(ref: ResourceRef, key: string, coverageId: string): boolean {
    return this.#index.namedBy(ref, coverageId).every((primaries) => primaries.isConfirmed(key))
  }

  observeRelated(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const { members, named } of this.#index.remembering(ref, key, object)) {
      members?.observe(key, object)
      named?.observe(key, object)
    }
  }

  /** Resolves when every key that the change concerns is enqueued, for the Reconcilers that are wanted. */
  async enqueue(ref: ResourceRef, change: Change, as: As, isWanted: (coverageId: string) => boolean) {
    const wanted = this.#index.concernedBy(ref, change).filter(({ to }) => isWanted(to.reconciler.coverageId))
    await Promise.all(
      wanted.map(async (relation) => {
        if (await relation.concerns(change)) await this.#enqueueFor(relation, change, as)
      }),
    )
  }

  /**
   * Resolves when every key of the wanted Reconcilers that are related to the resource is enqueued. If primaries name the
   * kind: the keys of these.
   */
  async enqueueAll(ref: ResourceRef, { isPending, pendingBecause }: Pending): Promise<void> {
    const wanted = this.#index.of(ref).filter(({ to }) => isPending(to.reconciler.coverageId))
    const because = ({ coverageId }: Reconciler) => pendingBecause(coverageId) ?? `listed ${resourceName(ref)}`
    const each = new Set(wanted.filter(({ to }) => to.related.kindPath === undefined).map(({ to }) => to.reconciler))
    await Promise.all([
      ...[...each].map((one) => this.#everyKey(one, undefined, { lane: 'low', cause: because(one) })),
      this.#naming(ref, wanted, (one) => ({ lane: 'low', cause: because(one) })),
    ])
  }

  /**
   * Resolves when the keys are enqueued whose primaries name the kind, for Reconcilers that are wanted by coverage ID. Until
   * a cursor covers them, runs of these keys call no function.
   */
  async enqueueNaming(ref: ResourceRef, namespace: string | undefined, coverageIds: readonly string[]): Promise<void> {
    const wanted = this.#index.of(ref).filter(({ to }) => coverageIds.includes(to.reconciler.coverageId))
    await this.#naming(ref, wanted, () => ({ lane: 'high', cause: `first list of ${resourceName(ref)}` }), namespace)
  }

  async #naming(ref: ResourceRef, wanted: readonly Relation[], as: (of: Reconciler) => As, namespace?: string) {
    const each = new Set(wanted.filter(({ to }) => to.related.kindPath !== undefined).map(({ to }) => to.reconciler))
    const isThere = (key: string) => namespace === undefined || parseKey(key).namespace === namespace
    const keysOfKind = (one: Reconciler) => this.#deps.named?.keysOf(one, ref).filter(isThere) ?? []
    for (const one of each) await this.#all(one.name, keysOfKind(one), as(one))
  }

  #membersOf(ref: ResourceRef): MemberIndex {
    const index = this.#members.get(resourceName(ref)) ?? new MemberIndex()
    this.#members.set(resourceName(ref), index)
    return index
  }

  #enqueueFor(relation: Relation, change: Change, as: As): Promise<void> {
    const { related, reconciler } = relation.to
    const { namespace, name } = change
    const { named, primaries } = relation
    const names = named?.namesOf(change)
    if (named && names === undefined) return this.#everyKey(reconciler, namespace, as)
    if (names && primaries === undefined) return this.#named(reconciler, namespace, names.filter(isPossibleName), as)
    const keysNaming = (name: string) => primaries?.keysOf({ namespace, name }) ?? []
    if (names) return this.#all(reconciler.name, new Set(names.flatMap(keysNaming)), as)
    const naming = () => this.#all(reconciler.name, keysNaming(name), as)
    if (related.byName !== undefined) return naming()
    if (related.namespacePath !== undefined) return relation.fanOuts.run([namespace ?? '', as.lane].join(' '), naming)
    return this.#everyKey(reconciler, related.within === 'Cluster' ? undefined : namespace, as)
  }

  /** Enqueues the primaries with these names, in the namespace unless they are cluster-scoped. */
  async #named(reconciler: Reconciler, namespace: string | undefined, names: string[], as: As): Promise<void> {
    const { name, spec } = reconciler
    if (names.length === 0) return
    const place = (await this.#deps.isClusterScoped(spec.for)) ? undefined : namespace
    if (!isInNamespaces(spec.for.namespaces, place)) return
    await this.#all(name, this.#present(reconciler, place, names), as)
  }

  /**
   * Returns the keys of the primaries with these names that EVENTS has. The API server does not check owner references
   * or names in fields, and one object may have thousands. A primary that EVENTS receives later is enqueued then.
   */
  async *#present(reconciler: Reconciler, namespace: string | undefined, names: string[]): AsyncGenerator<string> {
    const { events } = this.#deps
    const { for: ref } = reconciler.spec
    if (names.length > LOOKED_UP_AT_MOST) {
      const keys = new Set(names.map((name) => keyOf(namespace, name)))
      for await (const key of keysOf(events, this.#routes, reconciler, namespace)) if (keys.has(key)) yield key
      return
    }
    for (const name of names)
      if ((await events.observe({ primary: { ref, namespace, name } })).primary) yield keyOf(namespace, name)
  }

  #everyKey(reconciler: Reconciler, namespace: string | undefined, as: As): Promise<void> {
    const { name } = reconciler
    return this.#fanOuts.run([name, namespace ?? '', as.lane].join(' '), () =>
      this.#all(name, keysOf(this.#deps.events, this.#routes, reconciler, namespace), as),
    )
  }

  /** Enqueues keys, those after the first few in the low lane, so that one change does not delay other keys. */
  async #all(reconciler: string, keys: Iterable<string> | AsyncIterable<string>, { lane, cause }: As): Promise<void> {
    await forEachAtMost(KEYS_AT_ONCE, keys, (key, index) =>
      this.#enqueue(reconciler, key, index < PROMPT_AT_MOST ? lane : 'low', cause),
    )
  }
}

/**
 * Whether the watch includes more objects than the relation selects. Then the earlier state of an object must be
 * remembered to interpret a change. A watch with the same selector reports it by itself.
 */
function isWatchedWider(routes: Routes, { related }: RelatedTo): boolean {
  const { selector, fieldSelector } = related
  if (selector === undefined && fieldSelector === undefined) return false
  return !isSelectedBy(related, routes.selectionOf(related))
}

interface RelatedKind {
  all: Relation[]
  bySelector: SelectorIndex<Relation>
  /** Relations that a change may concern with any labels of the object. */
  byObject: Relation[]
  withMembers: Relation[]
  withNamed: Relation[]
}

const emptyKind = (): RelatedKind => ({
  all: [],
  bySelector: new SelectorIndex(),
  byObject: [],
  withMembers: [],
  withNamed: [],
})

/** Finds relations by the contents of a change, so that a change of one object does not check all relations. */
class RelationIndex {
  readonly #members: ReadonlyMap<string, MemberIndex>
  readonly #byRelated = new Map<string, RelatedKind>()
  readonly #byPrimary = new Map<string, NamingPrimaries[]>()
  readonly #byCoverage = new Map<string, NamingPrimaries[]>()

  /** `members`: by resource. */
  constructor(relations: readonly Relation[], members: ReadonlyMap<string, MemberIndex>) {
    this.#members = members
    for (const relation of relations) {
      const { primaries, members, named, to } = relation
      const { related, reconciler } = to
      const kind = this.#open(related)
      kind.all.push(relation)
      if (isByObject(related)) kind.byObject.push(relation)
      else kind.bySelector.add(relation, related.selector)
      if (members) kind.withMembers.push(relation)
      if (named) kind.withNamed.push(relation)
      if (primaries === undefined) continue
      append(this.#byPrimary, resourceName(reconciler.spec.for), primaries)
      append(this.#byCoverage, `${resourceName(reconciler.spec.for)} ${reconciler.coverageId}`, primaries)
    }
  }

  /** Returns the relations to a resource. */
  of(ref: ResourceRef): readonly Relation[] {
    return this.#kind(ref).all
  }

  /** Returns the primaries of each relation in which fields of these primaries name the related objects. */
  namedBy(primary: ResourceRef, coverageId?: string): readonly NamingPrimaries[] {
    const name = resourceName(primary)
    const found = coverageId === undefined ? this.#byPrimary.get(name) : this.#byCoverage.get(`${name} ${coverageId}`)
    return found ?? []
  }

  /** Returns the relations that had this object or may match it. */
  remembering(ref: ResourceRef, key: string, object: KubeObject | undefined): readonly Relation[] {
    const { bySelector, withMembers, withNamed } = this.#kind(ref)
    const matching = object === undefined ? [] : bySelector.candidates(object)
    return unique([...matching, ...withNamed, ...this.#having(ref, key, withMembers)])
  }

  /** Returns the relations that the change may concern. Some of them may not be concerned. */
  concernedBy(ref: ResourceRef, { namespace, name, object }: Change): readonly Relation[] {
    const { all, byObject, bySelector, withMembers } = this.#kind(ref)
    if (object === undefined) return all
    const having = this.#having(ref, keyOf(namespace, name), withMembers)
    return unique([...byObject, ...bySelector.candidates(object), ...having])
  }

  #having(ref: ResourceRef, key: string, withMembers: readonly Relation[]): Relation[] {
    const members = this.#members.get(resourceName(ref))?.of(key) ?? []
    return [...members, ...withMembers.filter((relation) => !relation.members?.isRead)]
  }

  #kind(ref: ResourceRef): RelatedKind {
    return this.#byRelated.get(resourceName(ref)) ?? emptyKind()
  }

  #open(ref: ResourceRef): RelatedKind {
    const kind = this.#kind(ref)
    this.#byRelated.set(resourceName(ref), kind)
    return kind
  }
}

const unique = (relations: Relation[]): Relation[] => [...new Set(relations)]
