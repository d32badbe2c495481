import type { Effect } from '#contracts'
import type { MetadataWrite } from './metadata.ts'
import type { Plan, Write } from './plan.ts'
import type { StatusPatch } from './status.ts'

/** The writes between two decisions of a run. */
export type NextWrite =
  | { kind: 'owned'; stages: Write[][] }
  | { kind: 'metadata'; write: MetadataWrite }
  | { kind: 'status'; patch: StatusPatch }
  | { kind: 'effect'; effect: Effect }
  | { kind: 'deletion' }

/**
 * Returns the first writes that an outcome requires, in this order: owned objects, the labels and annotations of the
 * object, its status, its effect, and its deletion after all others. Undefined if nothing has to be written.
 */
export function nextWrite({ stages, metadata, status, effect, isDeletion }: Plan): NextWrite | undefined {
  if (stages.some((writes) => writes.length > 0)) return { kind: 'owned', stages }
  if (metadata !== undefined) return { kind: 'metadata', write: metadata }
  if (status !== undefined) return { kind: 'status', patch: status }
  if (effect !== undefined) return { kind: 'effect', effect }
  return isDeletion ? { kind: 'deletion' } : undefined
}
