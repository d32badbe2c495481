import type { KubeObject, ResourceRef } from '#contracts'
import {
  coverageId,
  crossesNamespaces,
  holdsFinalizer,
  identityOf,
  isNamedInBody,
  isOfMetadata,
  isRefused,
  keepsFinalizer,
  namesInBody,
  type ObjectSelector,
  type ReconcilerSpec,
  type Refused,
  type RelatedResource,
  readReconciler,
  relationsOf,
  type SelectedResource,
  selectionOf,
} from '#spec'

/** A Reconciler that the bridge serves. */
export interface Reconciler {
  name: string
  spec: ReconcilerSpec
  selects: ObjectSelector
  /** The ID of the objects that map to its keys, and of its incarnation. For a new ID, every key is enqueued again. */
  coverageId: string
  object: KubeObject
}

/** A Reconciler that cannot be served. Other Reconcilers are not affected. */
export interface RefusedReconciler extends Refused {
  name: string
  object: KubeObject
}

export function parseReconciler(object: KubeObject): Reconciler | RefusedReconciler {
  const { name } = object.metadata
  const spec = readReconciler(object)
  if (isRefused(spec)) return { ...spec, name, object }
  return { name, spec, selects: selectionOf(spec.for), coverageId: coverageId(object, spec), object }
}

/**
 * Whether the Reconciler selects the object, or the object has left the selection by labels and fields with its
 * finalizer.
 */
export function hasKey({ name, spec, selects }: Reconciler, object: KubeObject): boolean {
  if (selects(object)) return true
  const isHeld = keepsFinalizer(spec) && holdsFinalizer(object, identityOf(name, spec))
  return isHeld && selectionOf({ namespaces: spec.for.namespaces })(object)
}

/**
 * Returns the resources that a Reconciler needs to be watched. Owned and related objects are watched in the namespaces
 * of the primary by default. For a Reconciler with a finalizer all primaries are watched, whatever it selects, because
 * it must observe that a primary has left its selection. `isWatched`: whether a related resource is needed now.
 */
export function asksOf(
  spec: ReconcilerSpec,
  identity: string,
  isWatched: (related: RelatedResource) => boolean = () => true,
): ResourceAsk[] {
  const { for: primary, owns } = spec
  const { namespaces } = primary
  const related = relationsOf(spec, identity)
  return [
    {
      ...(keepsFinalizer(spec) ? {} : selectorsOf(primary)),
      namespaces,
      namesInBody: related.some(isNamedInBody),
      ref: primary,
    },
    ...owns.map((owned) => ({ namespaces, metadataOnly: owned.metadataOnly, ref: owned })),
    ...related.filter(isWatched).map((one) => ({
      ...selectorsOf(one),
      metadataOnly: one.metadataOnly,
      namesInBody: namesInBody(one),
      namespaces: crossesNamespaces(one) ? undefined : namespaces,
      ref: one,
    })),
  ]
}

const selectorsOf = ({ selector, fieldSelector }: Pick<ResourceAsk, 'selector' | 'fieldSelector'>) => ({
  ...(selector !== undefined && { selector }),
  ...(fieldSelector !== undefined && { fieldSelector }),
})

/** The objects of one resource that one Reconciler asks for. */
export interface ResourceAsk extends SelectedResource {
  ref: ResourceRef & { kind: string }
  metadataOnly?: boolean
  /** The names of related objects, or of primaries, are in fields outside of the metadata. */
  namesInBody?: boolean
}

/** The request to the API server on behalf of all Reconcilers that ask for the resource. */
export interface Selection {
  labelSelector?: string
  fieldSelector?: string
  /** Requests only the metadata, of objects of this kind. */
  metadataOfKind?: string
}

/** Each namespace needs a watch of its own. Beyond this number, one watch of all namespaces costs less. */
const NAMESPACES_AT_MOST = 16

/**
 * Returns the narrowest selection that includes all objects that the Reconcilers ask for. Each Reconciler then applies
 * its own selectors. `isReferenceOnly`: EVENTS stores only metadata in any case.
 */
export function widest(asks: readonly ResourceAsk[], isReferenceOnly = false): Selection {
  const labelSelector = common(asks.map(({ selector }) => selector))
  const fieldSelector = common(asks.map((ask) => ask.fieldSelector))
  const kind = common(asks.map(({ ref }) => ref.kind))
  const isMetadataEnough = asks.every(
    (ask) => ask.metadataOnly || (isReferenceOnly && !ask.namesInBody && isOfMetadata(ask.fieldSelector ?? '')),
  )
  return {
    ...(labelSelector !== undefined && { labelSelector }),
    ...(fieldSelector !== undefined && { fieldSelector }),
    // Metadata arrive without the kind. If Reconcilers name different kinds, only whole objects show the right one.
    ...(kind !== undefined && isMetadataEnough && { metadataOfKind: kind }),
  }
}

/** Returns the namespaces that the Reconcilers ask for. Undefined: all. */
export function askedNamespaces(asks: readonly ResourceAsk[]): ReadonlySet<string> | undefined {
  const named = asks.flatMap(({ namespaces }) => (namespaces ? [namespaces] : []))
  return asks.length > 0 && named.length === asks.length ? new Set(named.flat()) : undefined
}

/** Returns the namespaces to watch one by one. Undefined: one watch for all namespaces. */
export const namespacesOf = (asked: ReturnType<typeof askedNamespaces>): string[] | undefined =>
  asked !== undefined && asked.size <= NAMESPACES_AT_MOST ? [...asked].sort() : undefined

export const isSameSelection = (a: Selection, b: Selection): boolean =>
  a.labelSelector === b.labelSelector && a.fieldSelector === b.fieldSelector && a.metadataOfKind === b.metadataOfKind

/** Whether the request selects by the same labels and fields as the Reconciler. It includes all objects otherwise. */
export const isSelectedBy = (
  { selector, fieldSelector }: Pick<ResourceAsk, 'selector' | 'fieldSelector'>,
  watched: Selection,
): boolean => watched.labelSelector === selector && watched.fieldSelector === fieldSelector

const common = (selectors: (string | undefined)[]): string | undefined =>
  selectors.every((selector) => selector === selectors[0]) ? selectors[0] : undefined
