import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf, type OwnerKey } from '#events'
import { holdsFinalizer, identityOf, ownerOf, RECONCILERS, type ReconcilerSpec, type RelatedResource } from '#spec'
import { asksOf, type Reconciler } from './reconcilers.ts'
import { type Ask, namespacesOf, type Selection, widest } from './selection.ts'

/** What one watched resource is for. */
interface ResourceRoutes {
  ref: ResourceRef
  /** Reconcilers that reconcile these objects. */
  primaryOf: Reconciler[]
  /** Reconcilers that want to hear of those which their objects control. */
  ownedBy: Reconciler[]
  relatedTo: RelatedTo[]
  asks: KeptAsk[]
}

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

/** What the Reconcilers, taken together, make of each resource. */
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
      this.#open(primary).primaryOf.push(reconciler)
      for (const owned of owns) this.#open(owned).ownedBy.push(reconciler)
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
    return namespacesOf(this.#of(ref).asks)
  }

  selectionOf(ref: ResourceRef): Selection {
    if (isReconcilers(ref)) return {}
    return widest(this.#of(ref).asks, this.#isReferenceOnly(ref))
  }

  /** The Reconcilers that a change of this resource, in this namespace if one is given, may concern. */
  coverageIdsOf(ref: ResourceRef, namespace?: string): string[] {
    const asks = this.#of(ref).asks.filter(({ namespaces }) => inNamespaces(namespaces, namespace))
    return [...new Set(asks.map(({ coverageId }) => coverageId))].sort()
  }

  primaryOf(ref: ResourceRef): readonly Reconciler[] {
    return this.#of(ref).primaryOf
  }

  /** No Reconciler asks for it. */
  isOnlyKept(ref: ResourceRef): boolean {
    const { primaryOf, ownedBy, relatedTo, asks } = this.#of(ref)
    return asks.length > 0 && [primaryOf, ownedBy, relatedTo].every(({ length }) => length === 0)
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
    const primaries = this.#of(ref).ownedBy.map(({ spec }) => spec.for)
    return primaries.filter((primary) => owners.some((owner) => isOf(owner, primary)))
  }

  ownerOf(object: KubeObject): Owner | undefined {
    const owner = ownerOf(object)
    if (owner === undefined || !isPossibleName(owner.name)) return undefined
    const ref = this.#kinds.get(groupKind(owner.group, owner.kind))
    return ref && { group: ref.group, resource: ref.resource, name: owner.name }
  }

  /** The keys that need a run because of this change, but for those of objects that it is only related to. */
  targetsOf(ref: ResourceRef, change: Change, isClusterScoped: IsClusterScoped): Target[] {
    const { primaryOf, ownedBy } = this.#of(ref)
    return unique([
      ...primaryOf.flatMap((reconciler) => primaryTargets(reconciler, change)),
      ...ownedBy.flatMap((reconciler) => ownerTargets(reconciler, change, isClusterScoped)),
    ])
  }

  #of(ref: ResourceRef): ResourceRoutes {
    return this.#resources.get(resourceName(ref)) ?? { ref, primaryOf: [], ownedBy: [], relatedTo: [], asks: [] }
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
