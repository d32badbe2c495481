import { finalizerOf, type KubeObject, type ReconcilerSpec } from '#contracts'

/** The object is on its way out, and waits for this reconciler. */
export const isFinalizing = ({ metadata }: KubeObject, reconciler: string): boolean =>
  metadata.deletionTimestamp !== undefined && (metadata.finalizers ?? []).includes(finalizerOf(reconciler))

/**
 * The finalizers that the object has to have before the function is called, where they are others than it has. What is
 * being deleted never gets one; a reconciler without `finalize` takes back what it once added.
 */
export function finalizersBefore(
  { metadata }: KubeObject,
  reconciler: string,
  { finalize }: Pick<ReconcilerSpec, 'finalize'>,
): string[] | undefined {
  const { finalizers = [], deletionTimestamp } = metadata
  const has = finalizers.includes(finalizerOf(reconciler))
  if (finalize && !has && deletionTimestamp === undefined) return [...finalizers, finalizerOf(reconciler)]
  return !finalize && has ? finalizersWithout(metadata, reconciler) : undefined
}

export const finalizersWithout = ({ finalizers = [] }: KubeObject['metadata'], reconciler: string): string[] =>
  finalizers.filter((finalizer) => finalizer !== finalizerOf(reconciler))
