import type { ResourceRef } from '#contracts'
import { isOfMetadata, type SelectedResource } from '#spec'

/** The objects of one resource that one Reconciler asks for. */
export interface Ask extends SelectedResource {
  ref: ResourceRef & { kind: string }
  metadataOnly?: boolean | undefined
  /** The names of related objects are in fields outside of the metadata. */
  namesInBody?: boolean | undefined
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
export function widest(asks: readonly Ask[], isReferenceOnly = false): Selection {
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

/** Returns the namespaces to watch one by one. Undefined: one watch for all namespaces. */
export function namespacesOf(asks: readonly Ask[]): string[] | undefined {
  const named = asks.flatMap(({ namespaces }) => (namespaces ? [namespaces] : []))
  const union = new Set(named.flat())
  return asks.length > 0 && named.length === asks.length && union.size <= NAMESPACES_AT_MOST
    ? [...union].sort()
    : undefined
}

export const isSameSelection = (a: Selection, b: Selection): boolean =>
  a.labelSelector === b.labelSelector && a.fieldSelector === b.fieldSelector && a.metadataOfKind === b.metadataOfKind

/** Whether the request selects by the same labels and fields as the Reconciler. It includes all objects otherwise. */
export const isSelectedBy = (
  { selector, fieldSelector }: Pick<Ask, 'selector' | 'fieldSelector'>,
  watched: Selection,
): boolean => watched.labelSelector === selector && watched.fieldSelector === fieldSelector

const common = (selectors: (string | undefined)[]): string | undefined =>
  selectors.every((selector) => selector === selectors[0]) ? selectors[0] : undefined
