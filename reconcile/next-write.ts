import type { Effect } from '#contracts'
import type { MetadataWrite } from './metadata.ts'
import type { Plan, Write } from './plan.ts'
import type { StatusPatch } from './status.ts'

/** What is written between two decisions of a run. */
export type NextWrite =
  | { kind: 'owned'; stages: Write[][] }
  | { kind: 'metadata'; write: MetadataWrite }
  | { kind: 'status'; patch: StatusPatch }
  | { kind: 'effect'; effect: Effect }
  | { kind: 'deletion' }

/**
 * What an outcome asks for, in this order: owned objects, the labels and annotations of the object, its status, its effect,
 * and its deletion when nothing else is left to do. Undefined: everything is as the outcome says.
 */
export function nextWrite({ stages, metadata, status, effect, isDeletion }: Plan): NextWrite | undefined {
  if (stages.some((writes) => writes.length > 0)) return { kind: 'owned', stages }
  if (metadata !== undefined) return { kind: 'metadata', write: metadata }
  if (status !== undefined) return { kind: 'status', patch: status }
  if (effect !== undefined) return { kind: 'effect', effect }
  return isDeletion ? { kind: 'deletion' } : undefined
}
