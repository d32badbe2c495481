import type { KubeObject } from '#contracts'
import { finalizerOf, finalizersWithout, holdsFinalizer, type ReconcilerSpec } from '#spec'

/** The object is on its way out, and waits for this reconciler. */
export const isFinalizing = (object: KubeObject, identity: string): boolean =>
  object.metadata.deletionTimestamp !== undefined && holdsFinalizer(object, identity)

/**
 * The finalizers that the object has to have before the function is called, where they are others than it has. What is
 * being deleted never gets one, and keeps what it has as long as the reconciler finalizes; a reconciler without
 * `finalize`, or one whose selector the object has left, takes back what it once added.
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
