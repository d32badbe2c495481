import type { KubeObject, ResourceRef } from '#contracts'
import type { ObjectFilter } from './subjects.ts'

/** Which objects of a kind are wanted, by their labels and fields. */
export interface Selection {
  /** Two selections with the same text select the same. */
  text: string
  /** Labels do not say all. */
  byFields: boolean
  /** Parses it. `object` is left out where only labels are known: then whatever has these labels may be wanted. */
  matcher: () => (labels: Readonly<Record<string, string>>, object?: KubeObject) => boolean
}

/**
 * With a selection, only objects that it selects are read, and perhaps some of which EVENTS has a reference only. The first
 * read of a kind in a place reads everything there, each later one what has changed since.
 */
export type RelatedQuery = ObjectFilter | SelectedQuery

export interface SelectedQuery extends Omit<ObjectFilter, 'name'> {
  ref: ResourceRef
  selection: Selection
}

export const isSelected = (query: RelatedQuery): query is SelectedQuery =>
  'selection' in query && query.selection !== undefined
