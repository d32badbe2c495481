import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf, type OwnerKey } from '#events'
import {
  finalizerOf,
  holdsFinalizer,
  identityOf,
  keepsFinalizer,
  labelsOfSelector,
  ownerOf,
  RECONCILERS,
  type ReconcilerSpec,
  type RelatedResource,
  relationsOf,
  wantedRevision,
} from '#spec'
import {
  askedNamespaces,
  asksOf,
  namespacesOf,
  type Reconciler,
  type ResourceAsk,
  type Selection,
  widest,
} from './reconcilers.ts'

/** The purposes of one watched resource. */
interface ResourceRoutes {
  ref: ResourceRef
  /** Reconcilers whose primaries are of the resource. */
  primaryOf: Reconciler[]
  primaries: PrimaryIndex
  /** Reconcilers that own objects of this resource, by the resource of their primaries. */
  ownedBy: Map<string, Reconciler[]>
  relatedTo: RelatedTo[]
  asks: CoveredAsk[]
  /** Results that are computed at the first request. */
  known: {
    selection?: Selection
    asked?: { namespaces: ReadonlySet<string> | undefined }
    coverageIds: Map<string, string[]>
    isCompared?: boolean
  }
}

const noRoutes = (ref: ResourceRef): ResourceRoutes => ({
  ref,
  primaryOf: [],
  primaries: new PrimaryIndex(),
  ownedBy: new Map(),
  relatedTo: [],
  asks: [],
  known: { coverageIds: new Map() },
})

/** An ask under a coverage ID. The ID belongs to a Reconciler, or to an ask without keys. */
export interface CoveredAsk extends ResourceAsk {
  coverageId: string
}

/** A Reconciler whose primaries are related to objects of a resource. */
export interface RelatedTo {
  reconciler: Reconciler
  related: RelatedResource
  /** The index in relationsOf(). */
  index: number
}

/** The owner of an object, if its kind is the `for` of a Reconciler. */
export interface Owner extends OwnerKey {
  /** Left out: not known. Any group matches. */
  group?: string
}

/** The facts about a changed object that routing needs. */
export interface Change {
  namespace: string | undefined
  name: string
  /** Left out: not known. Every selector counts as matching. */
  object: KubeObject | undefined
  /** The owner of the object, and its former owners. */
  owners: readonly Owner[]
  /** Whether the change passes a Reconciler's predicates for its primary (spec.changes). Left out: it does. */
  counts?: (predicates: NonNullable<ReconcilerSpec['changes']>) => boolean
  /** Whether the object now names other related objects for the Reconciler. Left out: it does not. */
  isRenamed?: (coverageId: string) => boolean
}

/** A key of a work queue. */
export interface Target {
  reconciler: string
  key: string
  /** The coverage ID of the Reconciler. */
  coverageId: string
}

/**
 * Whether a resource is cluster-scoped. Cluster-scoped objects may own namespaced ones, and their keys have no
 * namespace.
 */
export type IsClusterScoped = (ref: ResourceRef) => boolean

export type IsWatched = (reconciler: Reconciler, related: RelatedResource) => boolean

/** The routes of all Reconcilers together. Immutable after the constructor. */
export class Routes {
  readonly #resources = new Map<string, ResourceRoutes>()
  readonly #kinds = new Map<string, ResourceRef>()
  /** The revisions for which every key runs again, by coverage ID. */
  readonly #revisions = new Map<string, string | undefined>()
  readonly #isReferenceOnly: (ref: ResourceRef) => boolean

  /**
   * `kept` is watched although no Reconciler asks for it. `isWatched`: whether a related resource is watched for the
   * Reconciler now.
   */
  constructor(
    reconcilers: readonly Reconciler[],
    isReferenceOnly: (ref: ResourceRef) => boolean = () => false,
    kept: readonly CoveredAsk[] = [],
    isWatched: IsWatched = () => true,
  ) {
    this.#isReferenceOnly = isReferenceOnly
    for (const reconciler of reconcilers) {
      const { for: primary, owns } = reconciler.spec
      const identity = identityOf(reconciler.name, reconciler.spec)
      const related = relationsOf(reconciler.spec, identity)
      this.#revisions.set(reconciler.coverageId, wantedRevision(reconciler.object, reconciler.spec))
      for (const ask of asksOf(reconciler.spec, identity, (one) => isWatched(reconciler, one)))
        this.#open(ask.ref).asks.push({ ...ask, coverageId: reconciler.coverageId })
      const routes = this.#open(primary)
      routes.primaryOf.push(reconciler)
      routes.primaries.add(reconciler)
      for (const owned of owns) append(this.#open(owned).ownedBy, primary.resource, reconciler)
      for (const [index, one] of related.entries())
        if (isWatched(reconciler, one)) this.#open(one).relatedTo.push({ reconciler, related: one, index })
      this.#kinds.set(groupKind(primary.group, primary.kind), primary)
    }
    for (const ask of kept) this.#open(ask.ref).asks.push(ask)
  }

  /** The resources that Reconcilers or `kept` ask for. */
  get refs(): ResourceRef[] {
    return [...this.#resources.values()].map(({ ref }) => ref)
  }

  /** Returns the namespaces in which to watch a resource one by one. Undefined: one watch for all namespaces. */
  namespacesOf(ref: ResourceRef): string[] | undefined {
    return isReconcilers(ref) ? undefined : namespacesOf(this.#asked(ref))
  }

  /**
   * Whether a Reconciler asks for objects of this namespace. One watch of all namespaces also reports those for which no
   * Reconciler asks, and EVENTS does not need them.
   */
  isAsked(ref: ResourceRef, namespace: string | undefined): boolean {
    return namespace === undefined || (this.#asked(ref)?.has(namespace) ?? true)
  }

  #asked(ref: ResourceRef): ReadonlySet<string> | undefined {
    const { asks, known } = this.#of(ref)
    known.asked ??= { namespaces: askedNamespaces(asks) }
    return known.asked.namespaces
  }

  selectionOf(ref: ResourceRef): Selection {
    if (isReconcilers(ref)) return {}
    const { asks, known } = this.#of(ref)
    known.selection ??= widest(asks, this.#isReferenceOnly(ref))
    return known.selection
  }

  /** Returns the Reconcilers that a change of this resource may concern, in this namespace if one is given. */
  coverageIdsOf(ref: ResourceRef, namespace?: string): string[] {
    const { asks, known } = this.#of(ref)
    const before = known.coverageIds.get(namespace ?? '')
    if (before) return before
    const here = asks.filter(({ namespaces }) => isInNamespaces(namespaces, namespace))
    const found = [...new Set(here.map(({ coverageId }) => coverageId))].sort()
    known.coverageIds.set(namespace ?? '', found)
    return found
  }

  /** Returns the revision of the function for which every key of the Reconciler runs again. Undefined: none. */
  revisionOf(coverageId: string): string | undefined {
    return this.#revisions.get(coverageId)
  }

  /** Whether the changes of an object of the resource are compared with the state before them (spec.changes). */
  isCompared(ref: ResourceRef): boolean {
    const { primaryOf, known } = this.#of(ref)
    known.isCompared ??= primaryOf.some(({ spec }) => spec.changes !== undefined)
    return known.isCompared
  }

  /** Whether no Reconciler asks for the resource. */
  isOnlyKept(ref: ResourceRef): boolean {
    const { primaryOf, ownedBy, relatedTo, asks } = this.#of(ref)
    return asks.length > 0 && [primaryOf.length, ownedBy.size, relatedTo.length].every((count) => count === 0)
  }

  /** Whether a function finalizes objects of the resource, so that their last state is needed. */
  isFinalized(ref: ResourceRef): boolean {
    return this.#of(ref).primaryOf.some(({ spec }) => keepsFinalizer(spec))
  }

  relatedTo(ref: ResourceRef): readonly RelatedTo[] {
    return this.#of(ref).relatedTo
  }

  /** Returns the primary resources to which these owners of an object may belong. */
  ownerRefs(ref: ResourceRef, owners: readonly Owner[]): ResourceRef[] {
    const primaries = this.#ownedBy(ref, owners).map(({ spec }) => spec.for)
    const one = new Map(primaries.map((primary) => [resourceName(primary), primary]))
    return [...one.values()].filter((primary) => owners.some((owner) => isOf(owner, primary)))
  }

  ownerOf(object: KubeObject): Owner | undefined {
    const owner = ownerOf(object)
    if (owner === undefined || !isPossibleName(owner.name)) return undefined
    const ref = this.#kinds.get(groupKind(owner.group, owner.kind))
    return ref && { group: ref.group, resource: ref.resource, name: owner.name }
  }

  /**
   * Returns the keys that need a run because of this change, except those of primaries that the object is only related
   * to.
   */
  targetsOf(ref: ResourceRef, change: Change, isClusterScoped: IsClusterScoped): Target[] {
    const { primaries } = this.#of(ref)
    return unique([
      ...primaries.candidates(change).flatMap((reconciler) => primaryTargets(reconciler, change)),
      ...this.#ownedBy(ref, change.owners).flatMap((reconciler) => ownerTargets(reconciler, change, isClusterScoped)),
    ])
  }

  /** Returns the Reconcilers that own objects of the resource with these owners. */
  #ownedBy(ref: ResourceRef, owners: readonly Owner[]): Reconciler[] {
    const { ownedBy } = this.#of(ref)
    const resources = new Set(owners.map(({ resource }) => resource))
    return [...resources].flatMap((resource) => ownedBy.get(resource) ?? [])
  }

  #of(ref: ResourceRef): ResourceRoutes {
    return this.#resources.get(resourceName(ref)) ?? noRoutes(ref)
  }

  #open({ group, version, resource }: ResourceRef): ResourceRoutes {
    const routes = this.#of({ group, version, resource })
    this.#resources.set(resourceName(routes.ref), routes)
    return routes
  }
}

/** All Reconcilers are watched without a selection, because the bridge itself needs them. */
const isReconcilers = (ref: ResourceRef): boolean => resourceName(ref) === resourceName(RECONCILERS)

function primaryTargets({ name: reconciler, coverageId, spec, selects }: Reconciler, change: Change): Target[] {
  const { namespace, name, object } = change
  if (!isInNamespaces(spec.for.namespaces, namespace)) return []
  const target = { reconciler, coverageId, key: keyOf(namespace, name) }
  if (object === undefined) return [target]
  // A deleted object that has left the selection waits until its finalizer is removed.
  if (!selects(object)) return holdsFinalizer(object, identityOf(reconciler, spec)) ? [target] : []
  return doesCount(spec, change) || change.isRenamed?.(coverageId) === true ? [target] : []
}

/** Whether an update counts. It always does if the object may have entered the selection by it. */
function doesCount({ changes, for: { selector, fieldSelector } }: ReconcilerSpec, { counts }: Change): boolean {
  if (changes === undefined || fieldSelector !== undefined) return true
  return counts?.(selector === undefined ? changes : [...changes, 'Labels']) ?? true
}

function ownerTargets(
  { name: reconciler, coverageId, spec }: Reconciler,
  change: Change,
  isClusterScoped: IsClusterScoped,
): Target[] {
  const namespace = isClusterScoped(spec.for) ? undefined : change.namespace
  if (!isInNamespaces(spec.for.namespaces, namespace)) return []
  return change.owners
    .filter((owner) => isOf(owner, spec.for))
    .map(({ name }) => ({ reconciler, coverageId, key: keyOf(namespace, name) }))
}

const isOf = (owner: Owner, ref: ResourceRef): boolean =>
  owner.resource === ref.resource && (owner.group === undefined || owner.group === ref.group)

/**
 * Whether a text can be the name of an object. Names in owner references and annotations are not validated by the API
 * server. These names cannot be part of an API path. The length is not checked, because names of RBAC objects may have
 * any length.
 */
export const isPossibleName = (name: string): boolean => name !== '.' && name !== '..' && !/[/%]/.test(name)

/** Whether a Reconciler for these namespaces is for this one. Undefined: all; and the one of cluster-scoped objects. */
export const isInNamespaces = (namespaces: readonly string[] | undefined, namespace: string | undefined): boolean =>
  namespaces === undefined || namespace === undefined || namespaces.includes(namespace)

const unique = (targets: Target[]): Target[] => [
  ...new Map(targets.map((target) => [`${target.reconciler} ${target.key}`, target])).values(),
]

const groupKind = (group: string, kind: string): string => `${group}/${kind}`

interface Changed {
  namespace: string | undefined
  /** Undefined: any object. */
  object: KubeObject | undefined
}

/** The Reconcilers of one kind, found by namespace, labels and finalizers of an object. */
class PrimaryIndex {
  readonly #order = new Map<Reconciler, number>()
  /** The Reconcilers by namespace. Undefined: those for all namespaces. */
  readonly #places = new Map<string | undefined, SelectorIndex<Reconciler>>()
  readonly #byFinalizer = new Map<string, Reconciler[]>()

  add(reconciler: Reconciler): void {
    const { name, spec } = reconciler
    const { namespaces, selector } = spec.for
    this.#order.set(reconciler, this.#order.size)
    for (const namespace of namespaces ?? [undefined]) this.#at(namespace).add(reconciler, selector)
    append(this.#byFinalizer, finalizerOf(identityOf(name, spec)), reconciler)
  }

  /**
   * Returns all Reconcilers that the change may concern, in the order in which they were added. Some of them may not be
   * concerned.
   */
  candidates({ namespace, object }: Changed): Reconciler[] {
    if (object === undefined) return [...this.#order.keys()]
    const places =
      namespace === undefined ? [...this.#places.values()] : [this.#places.get(undefined), this.#places.get(namespace)]
    const { finalizers = [] } = object.metadata
    const found = new Set([
      ...places.flatMap((place) => place?.candidates(object) ?? []),
      ...finalizers.flatMap((finalizer) => this.#byFinalizer.get(finalizer) ?? []),
    ])
    return [...found].sort((a, b) => (this.#order.get(a) ?? 0) - (this.#order.get(b) ?? 0))
  }

  #at(namespace: string | undefined): SelectorIndex<Reconciler> {
    const index = this.#places.get(namespace) ?? new SelectorIndex<Reconciler>()
    this.#places.set(namespace, index)
    return index
  }
}

/** Finds items by the labels of an object. Each item has a label selector, and a lookup checks few items. */
export class SelectorIndex<Item> {
  readonly #byLabel = new Map<string, Item[]>()
  /** Items that any labels may match. */
  readonly #others: Item[] = []

  /** Adds an item. If its selector requires several labels, the label with the fewest items so far finds it. */
  add(item: Item, selector: string | undefined): void {
    const count = (labels: readonly string[]) =>
      labels.reduce((sum, label) => sum + (this.#byLabel.get(label)?.length ?? 0), 0)
    const [labels] = labelsOfSelector(selector ?? '').toSorted((one, other) => count(one) - count(other))
    if (labels === undefined) this.#others.push(item)
    else for (const label of labels) append(this.#byLabel, label, item)
  }

  /** Returns all items whose selector may match. The selectors of some may not match. */
  candidates({ metadata: { labels = {} } }: KubeObject): Item[] {
    if (this.#byLabel.size === 0) return this.#others
    const found = Object.entries(labels).map(([key, value]) => this.#byLabel.get(`${key}=${value}`) ?? [])
    return [...this.#others, ...found.flat()]
  }
}

export function append<Key, Item>(lists: Map<Key, Item[]>, key: Key, item: Item): void {
  const list = lists.get(key)
  if (list) list.push(item)
  else lists.set(key, [item])
}
