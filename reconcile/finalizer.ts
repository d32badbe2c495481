import type { KubeObject } from '#contracts'
import { finalizerOf, finalizersWithout, holdsFinalizer, type ReconcilerSpec } from '#spec'

/** Whether the object is being deleted and waits for this reconciler. */
export const isFinalizing = (object: KubeObject, identity: string): boolean =>
  object.metadata.deletionTimestamp !== undefined && holdsFinalizer(object, identity)

/**
 * Returns the finalizers that the object must have before the function is called, or undefined if it has them already.
 * An object that is being deleted never gets a finalizer, and keeps its finalizer as long as the reconciler finalizes.
 * A reconciler without `finalize`, or whose selector no longer matches the object, removes the finalizer that it added.
 */
export function finalizersBefore(
  object: KubeObject,
  identity: string,
  { finalize }: Pick<ReconcilerSpec, 'finalize'>,
  isSelected = true,
): string[] | undefined {
  const { finalizers = [], deletionTimestamp } = object.metadata
  const has = holdsFinalizer(object, identity)
  const isGoing = deletionTimestamp !== undefined
  if (finalize && (isGoing ? has : isSelected)) return has ? undefined : [...finalizers, finalizerOf(identity)]
  return has ? finalizersWithout(object.metadata, identity) : undefined
}
