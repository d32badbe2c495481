import type { KubeObject, ResourceRef } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { undefinedIfGone } from './errors.ts'
import { DROPPED, type Gate } from './gate.ts'

/** Reads the object from the API server, in its reconciler's turn at the gate. Undefined if it is gone. */
export async function readLive(
  { kube, gate }: { kube: KubeClient; gate: Gate },
  ref: ResourceRef,
  { metadata }: KubeObject,
  { reconciler, signal }: { reconciler: string; signal: AbortSignal },
): Promise<KubeObject | undefined> {
  const path = resourcePath(ref, metadata.namespace, metadata.name)
  const read = () => kube.get(path, { signal }).catch(undefinedIfGone)
  const found = await gate.run({ reconciler, kind: 'read' }, read, { signal })
  return found === DROPPED ? undefined : found
}
