import type { KubeObject, ResourceRef } from '#contracts'
import type { ObjectFilter } from './subjects.ts'

/** Selects objects of a kind by their labels and fields. */
export interface Selection {
  /** Two selections with the same text select the same objects. */
  text: string
  /** True: labels alone do not decide, because the selection has fields. */
  byFields: boolean
  /**
   * Returns the parsed matcher. Without `object`, only the labels are compared, so the matcher may accept objects whose
   * fields do not match.
   */
  matcher: () => (labels: Readonly<Record<string, string>>, object?: KubeObject) => boolean
}

/**
 * A query for related objects. With a selection, only selected objects are read, and perhaps objects of which EVENTS
 * has only a reference. The first read of a kind in a place reads everything there, and each later read only the
 * changes.
 */
export type RelatedQuery = ObjectFilter | SelectedQuery

export interface SelectedQuery extends Omit<ObjectFilter, 'name'> {
  ref: ResourceRef
  selection: Selection
}

export const isSelected = (query: RelatedQuery): query is SelectedQuery =>
  'selection' in query && query.selection !== undefined
