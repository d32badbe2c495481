import type { KubeObject } from '#contracts'
import type { ReconcilerSpec } from './reconciler.ts'

/** A version of a function that has answered. */
export interface Revision {
  name: string
  /** When it was recorded, RFC 3339. */
  at: string
}

export const isRevision = (text: string): boolean => text.length >= 1 && text.length <= 253

/** Returns the revisions in the status of a Reconciler, in the order in which they were recorded. */
export function revisionsOf({ status }: Pick<KubeObject, 'status'>): Revision[] {
  const { revisions = [] } = (status ?? {}) as { revisions?: Revision[] }
  return revisions
}

/**
 * Returns the revision for which every object has to run again: the revision that the author has set, else the newest
 * if several are recorded.
 */
export function owedRevision(object: KubeObject, { revision }: ReconcilerSpec): string | undefined {
  if (revision !== undefined) return revision
  const recorded = revisionsOf(object)
  return recorded.length > 1 ? recorded.at(-1)?.name : undefined
}
