import type { ResourceRef } from '#contracts'
import { isOfMetadata, type SelectedResource } from '#spec'

/** What one Reconciler wants to see of one resource. */
export interface Ask extends SelectedResource {
  ref: ResourceRef & { kind: string }
  metadataOnly?: boolean | undefined
  /** Its body has the names of related objects. */
  namesInBody?: boolean | undefined
}

/** What is asked of the API server, for everybody who asks for that resource. */
export interface Selection {
  labelSelector?: string
  fieldSelector?: string
  /** Only metadata, of objects of this kind. */
  metadataOfKind?: string
}

/** Each namespace is one more watch; beyond so many, one of all namespaces costs less. */
const NAMESPACES_AT_MOST = 16

/**
 * The narrowest selection that leaves out nothing that anybody asks for. Each Reconciler then takes its own from it.
 * `isReferenceOnly`: only metadata get into EVENTS anyhow.
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
    // Metadata come without the kind. If Reconcilers name different kinds, only whole objects tell the right one.
    ...(kind !== undefined && isMetadataEnough && { metadataOfKind: kind }),
  }
}

/** The namespaces to watch one by one; undefined: all at once. */
export function namespacesOf(asks: readonly Ask[]): string[] | undefined {
  const named = asks.flatMap(({ namespaces }) => (namespaces ? [namespaces] : []))
  const union = new Set(named.flat())
  return asks.length > 0 && named.length === asks.length && union.size <= NAMESPACES_AT_MOST
    ? [...union].sort()
    : undefined
}

export const isSameSelection = (a: Selection, b: Selection): boolean =>
  a.labelSelector === b.labelSelector && a.fieldSelector === b.fieldSelector && a.metadataOfKind === b.metadataOfKind

const common = (selectors: (string | undefined)[]): string | undefined =>
  selectors.every((selector) => selector === selectors[0]) ? selectors[0] : undefined
