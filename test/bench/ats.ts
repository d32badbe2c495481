import type { KubeObject } from '#contracts'
import { At } from '#functions/at'
import { type KubeClient, resourcePath } from '#kube'

/** Resolves when each of these Ats is DONE. Takes their names out of the set as they are. */
export async function untilDone(
  kube: KubeClient,
  namespace: string,
  left: Set<string>,
  signal: AbortSignal,
): Promise<void> {
  const changes = kube.watch<KubeObject & { status?: { phase?: string } }>(resourcePath(At, namespace), { signal })
  for await (const { type, object } of changes) {
    if (type !== 'BOOKMARK' && object.status?.phase === 'DONE') left.delete(object.metadata.name)
    if (left.size === 0) return
  }
}
