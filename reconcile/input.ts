import type { KubeObject, Performed, PerformInput, ReadInput, RunInput } from '#contracts'
import { finalizerOf, finalizersWithout, holdsFinalizer, keepsFinalizer, patchedBy, type ReconcilerSpec } from '#spec'
import { scrubberOf } from './confidential.ts'
import type { Pass, Run } from './progress.ts'
import { toldOf } from './refusals.ts'
import { byKind } from './world.ts'

/** Returns the function's input in this pass, without the state of its external system. */
export function inputOf(pass: Pass): Omit<RunInput, 'external'> {
  const { run, world, seed, now, refused } = pass
  const { identity, spec } = run.of
  const owned = world.owned.map((child) => child.object)
  const performed = lastPerformed(run)
  return {
    object: world.object,
    owned: byKind(spec.owns, owned),
    related: byKind(spec.related, world.related),
    attempt: run.attempt,
    seed,
    now: now.toISOString(),
    finalizing: isFinalizing(world.object, identity, spec),
    ...(refused.length > 0 && { refused: toldOf(refused, scrubberOf(run)) }),
    ...(performed && { performed }),
    ...(run.cluster && { cluster: run.cluster }),
  }
}

export const readInput = (pass: Pass): ReadInput => deepFreeze({ ...inputOf(pass), ask: 'read' })

export const performInput = (pass: Pass, effect: PerformInput['effect']): PerformInput =>
  deepFreeze({ ...inputOf(pass), ask: 'perform', effect })

function lastPerformed({ performed }: Run): Performed | undefined {
  const last = performed.at(-1)
  if (last === undefined) return undefined
  const { effect, result, error } = last
  return { effect, ...(result !== undefined && { result }), ...(error !== undefined && { error }) }
}

/**
 * Freezes the input of a function. A function that changed its input would hide a difference; it gets a TypeError
 * instead.
 */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  Object.freeze(value)
  for (const field of Object.values(value)) deepFreeze(field)
  return value
}

/** Whether the object is being deleted and waits for this reconciler, or for an operator that it replaces. */
export const isFinalizing = (
  object: KubeObject,
  identity: string,
  { formerFinalizers = [] }: Pick<ReconcilerSpec, 'formerFinalizers'>,
): boolean =>
  object.metadata.deletionTimestamp !== undefined &&
  (holdsFinalizer(object, identity) || formerFinalizers.some((one) => object.metadata.finalizers?.includes(one)))

/**
 * Returns the finalizers that the object must have before the function is called, or undefined if it has them already.
 * An object that is being deleted never gets a finalizer, and keeps its finalizer as long as the reconciler finalizes.
 * A reconciler without `finalize`, or whose selector no longer matches the object, removes the finalizer that it added,
 * when all fields of others are given back. Former finalizers of an object stay until it is deleted: the former operator
 * adds them again while it runs.
 */
export function finalizersBefore(
  object: KubeObject,
  identity: string,
  spec: Pick<ReconcilerSpec, 'finalize' | 'formerFinalizers' | 'patches'>,
  isSelected = true,
): string[] | undefined {
  const { finalizers = [], deletionTimestamp } = object.metadata
  const has = holdsFinalizer(object, identity)
  const isGoing = deletionTimestamp !== undefined
  const isRecorded = patchedBy(object, identity).length > 0
  const isHeld = isGoing
    ? (spec.finalize && isFinalizing(object, identity, spec)) || (isRecorded && has)
    : isRecorded || (keepsFinalizer(spec) && isSelected)
  if (isHeld) return has || isGoing ? undefined : [...finalizers, finalizerOf(identity)]
  const left = finalizersWithout(object.metadata, identity, isGoing && isSelected ? spec.formerFinalizers : [])
  return left.length === finalizers.length ? undefined : left
}
