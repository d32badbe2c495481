import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf, type OwnerKey } from '#events'
import { holdsFinalizer, identityOf, ownerOf, RECONCILERS, type ReconcilerSpec, type RelatedResource } from '#spec'
import { PrimaryIndex } from './primary-index.ts'
import { asksOf, type Reconciler } from './reconcilers.ts'
import { type Ask, namespacesOf, type Selection, widest } from './selection.ts'
import { append } from './selector-index.ts'

/** What one watched resource is for. */
interface ResourceRoutes {
  ref: ResourceRef
  /** Reconcilers that reconcile these objects. */
  primaryOf: Reconciler[]
  primaries: PrimaryIndex
  /** Reconcilers that want to hear of those which their objects control, by the resource of these objects. */
  ownedBy: Map<string, Reconciler[]>
  relatedTo: RelatedTo[]
  asks: KeptAsk[]
  /** Found when it is first asked for. */
  known: { selection?: Selection; namespaces?: { all: string[] | undefined }; coverageIds: Map<string, string[]> }
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

/** An ask under a coverage ID: that of a Reconciler, or one for nobody's keys. */
export interface KeptAsk extends Ask {
  coverageId: string
}

/** A Reconciler whose primaries are related to objects of a resource. */
export interface RelatedTo {
  reconciler: Reconciler
  related: RelatedResource
  /** In spec.related. */
  index: number
}

/** What an object belongs to, where its kind is the `for` of a Reconciler. */
export interface Owner extends OwnerKey {
  /** Left out: not known, any will do. */
  group?: string
}

/** What routing has to know of a changed object. */
export interface Change {
  namespace: string | undefined
  name: string
  /** Left out: not known, so every selector is taken to match. */
  object: KubeObject | undefined
  /** Its owner, and those that it has left. */
  owners: readonly Owner[]
  /** Whether it counts for a Reconciler with these predicates for its primary (spec.changes); left out: it does. */
  counts?: (predicates: NonNullable<ReconcilerSpec['changes']>) => boolean
  /** Whether the object names other related objects for that Reconciler now; left out: it does not. */
  isRenamed?: (coverageId: string) => boolean
}

/** A key of a work queue. */
export interface Target {
  reconciler: string
  key: string
  /** Of the Reconciler. */
  coverageId: string
}

/** Cluster-scoped objects may own namespaced ones: their keys have no namespace. */
export type IsClusterScoped = (ref: ResourceRef) => boolean

/** What the Reconcilers, taken together, make of each resource. Nothing is added after the constructor. */
export class Routes {
  readonly #resources = new Map<string, ResourceRoutes>()
  readonly #kinds = new Map<string, ResourceRef>()

  readonly #isReferenceOnly: (ref: ResourceRef) => boolean

  /** `kept` is watched though no Reconciler asks for it. */
  constructor(
    reconcilers: readonly Reconciler[],
    isReferenceOnly: (ref: ResourceRef) => boolean = () => false,
    kept: readonly KeptAsk[] = [],
  ) {
    this.#isReferenceOnly = isReferenceOnly
    for (const reconciler of reconcilers) {
      const { for: primary, owns, related } = reconciler.spec
      for (const ask of asksOf(reconciler.spec))
        this.#open(ask.ref).asks.push({ ...ask, coverageId: reconciler.coverageId })
      const routes = this.#open(primary)
      routes.primaryOf.push(reconciler)
      routes.primaries.add(reconciler)
      for (const owned of owns) append(this.#open(owned).ownedBy, primary.resource, reconciler)
      for (const [index, one] of related.entries()) this.#open(one).relatedTo.push({ reconciler, related: one, index })
      this.#kinds.set(groupKind(primary.group, primary.kind), primary)
    }
    for (const ask of kept) this.#open(ask.ref).asks.push(ask)
  }

  /** The resources that somebody asks for. */
  get refs(): ResourceRef[] {
    return [...this.#resources.values()].map(({ ref }) => ref)
  }

  /** The namespaces to watch a resource in, one by one; undefined: all at once. */
  namespacesOf(ref: ResourceRef): string[] | undefined {
    if (isReconcilers(ref)) return undefined
    const { asks, known } = this.#of(ref)
    known.namespaces ??= { all: namespacesOf(asks) }
    return known.namespaces.all
  }

  selectionOf(ref: ResourceRef): Selection {
    if (isReconcilers(ref)) return {}
    const { asks, known } = this.#of(ref)
    known.selection ??= widest(asks, this.#isReferenceOnly(ref))
    return known.selection
  }

  /** The Reconcilers that a change of this resource, in this namespace if one is given, may concern. */
  coverageIdsOf(ref: ResourceRef, namespace?: string): string[] {
    const { asks, known } = this.#of(ref)
    const before = known.coverageIds.get(namespace ?? '')
    if (before) return before
    const here = asks.filter(({ namespaces }) => inNamespaces(namespaces, namespace))
    const found = [...new Set(here.map(({ coverageId }) => coverageId))].sort()
    known.coverageIds.set(namespace ?? '', found)
    return found
  }

  primaryOf(ref: ResourceRef): readonly Reconciler[] {
    return this.#of(ref).primaryOf
  }

  /** No Reconciler asks for it. */
  isOnlyKept(ref: ResourceRef): boolean {
    const { primaryOf, ownedBy, relatedTo, asks } = this.#of(ref)
    return asks.length > 0 && [primaryOf.length, ownedBy.size, relatedTo.length].every((count) => count === 0)
  }

  /** A function runs before one of these objects goes, so somebody cares for how it ends. */
  isFinalized(ref: ResourceRef): boolean {
    return this.#of(ref).primaryOf.some(({ spec }) => spec.finalize)
  }

  relatedTo(ref: ResourceRef): readonly RelatedTo[] {
    return this.#of(ref).relatedTo
  }

  /** The primary resources that these owners of an object may be of. */
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

  /** The keys that need a run because of this change, but for those of objects that it is only related to. */
  targetsOf(ref: ResourceRef, change: Change, isClusterScoped: IsClusterScoped): Target[] {
    const { primaries } = this.#of(ref)
    return unique([
      ...primaries.candidates(change).flatMap((reconciler) => primaryTargets(reconciler, change)),
      ...this.#ownedBy(ref, change.owners).flatMap((reconciler) => ownerTargets(reconciler, change, isClusterScoped)),
    ])
  }

  /** The Reconcilers that want to hear of what objects of these resources control. */
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

/** Every one of them is watched whole, whatever is asked of them: the bridge itself works by them. */
const isReconcilers = (ref: ResourceRef): boolean => resourceName(ref) === resourceName(RECONCILERS)

function primaryTargets({ name: reconciler, coverageId, spec, selects }: Reconciler, change: Change): Target[] {
  const { namespace, name, object } = change
  if (!inNamespaces(spec.for.namespaces, namespace)) return []
  const target = { reconciler, coverageId, key: keyOf(namespace, name) }
  if (object === undefined) return [target]
  // What has left the selection waits, once it is deleted, until its finalizer is taken back.
  if (!selects(object)) return holdsFinalizer(object, identityOf(reconciler, spec)) ? [target] : []
  return doesCount(spec, change) || change.isRenamed?.(coverageId) === true ? [target] : []
}

/** An update by which an object may have come into the selection always does. */
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
  if (!inNamespaces(spec.for.namespaces, namespace)) return []
  return change.owners
    .filter((owner) => isOf(owner, spec.for))
    .map(({ name }) => ({ reconciler, coverageId, key: keyOf(namespace, name) }))
}

const isOf = (owner: Owner, ref: ResourceRef): boolean =>
  owner.resource === ref.resource && (owner.group === undefined || owner.group === ref.group)

/**
 * Nobody checks the names in owner references and annotations. These no API server takes for the name of anything: they
 * could not stand in a path. Length says nothing: names in RBAC may have any.
 */
const isPossibleName = (name: string): boolean => name !== '.' && name !== '..' && !/[/%]/.test(name)

const inNamespaces = (namespaces: readonly string[] | undefined, namespace: string | undefined): boolean =>
  namespaces === undefined || namespace === undefined || namespaces.includes(namespace)

const unique = (targets: Target[]): Target[] => [
  ...new Map(targets.map((target) => [`${target.reconciler} ${target.key}`, target])).values(),
]

const groupKind = (group: string, kind: string): string => `${group}/${kind}`
