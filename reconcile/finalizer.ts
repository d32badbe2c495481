import { finalizerOf, holdsFinalizer, type KubeObject, type ReconcilerSpec } from '#contracts'

/** The object is on its way out, and waits for this reconciler. */
export const isFinalizing = (object: KubeObject, reconciler: string): boolean =>
  object.metadata.deletionTimestamp !== undefined && holdsFinalizer(object, reconciler)

/**
 * The finalizers that the object has to have before the function is called, where they are others than it has. What is
 * being deleted never gets one, and keeps what it has as long as the reconciler finalizes; a reconciler without
 * `finalize`, or one whose selector the object has left, takes back what it once added.
 */
export function finalizersBefore(
  object: KubeObject,
  reconciler: string,
  { finalize }: Pick<ReconcilerSpec, 'finalize'>,
  isSelected = true,
): string[] | undefined {
  const { finalizers = [], deletionTimestamp } = object.metadata
  const has = holdsFinalizer(object, reconciler)
  const isGoing = deletionTimestamp !== undefined
  if (finalize && (isGoing ? has : isSelected)) return has ? undefined : [...finalizers, finalizerOf(reconciler)]
  return has ? finalizersWithout(object.metadata, reconciler) : undefined
}

export const finalizersWithout = ({ finalizers = [] }: KubeObject['metadata'], reconciler: string): string[] =>
  finalizers.filter((finalizer) => finalizer !== finalizerOf(reconciler))
