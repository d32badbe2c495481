import type { KubeObject } from '#contracts'
import { isExpired, isNotFound, type KubeClient, resourcePath } from '#kube'

const PODS = { group: '', version: 'v1', resource: 'pods' }

export interface SeenPod {
  name: string
  uid: string
  /** Name of the controller owner. */
  owner: string | undefined
  seenAt: number
  /** By the API server, in whole seconds; milliseconds. */
  createdAt: number
}

/**
 * Replaces the node in tests for which a thousand real containers give no further result: each pod of the namespace
 * succeeds at once. Records every pod by uid, from the API server's watch.
 */
export async function playNode(
  kube: KubeClient,
  namespace: string,
  signal: AbortSignal,
  onPod?: (pod: SeenPod) => void,
): Promise<Map<string, SeenPod>> {
  const seen = new Map<string, SeenPod>()
  const path = resourcePath(PODS, namespace)
  const { resourceVersion } = await firstPage(kube, path)
  void watchFrom(resourceVersion)
  return seen

  async function watchFrom(version: string): Promise<void> {
    let from: string | undefined = version
    while (!signal.aborted) {
      try {
        for await (const event of kube.watch(path, { resourceVersion: from, signal })) {
          from = event.object.metadata.resourceVersion ?? from
          if (event.type === 'ADDED') observe(event.object)
        }
      } catch (error) {
        // The API server may be restarting, and one that has restarted only knows what came after: then all once more.
        if (isExpired(error)) from = undefined
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  }

  function observe({ metadata }: KubeObject): void {
    const { name, uid = '', creationTimestamp = '' } = metadata
    if (seen.has(uid)) return
    const pod = {
      name,
      uid,
      owner: metadata.ownerReferences?.find((o) => o.controller)?.name,
      seenAt: Date.now(),
      createdAt: Date.parse(creationTimestamp),
    }
    seen.set(uid, pod)
    onPod?.(pod)
    void succeed(name)
  }

  async function succeed(name: string): Promise<void> {
    while (!signal.aborted) {
      try {
        await kube.patch(`${resourcePath(PODS, namespace, name)}/status`, { status: { phase: 'Succeeded' } }, 'merge')
        return
      } catch (error) {
        if (isNotFound(error)) return
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  }
}

async function firstPage(kube: KubeClient, path: string): Promise<{ resourceVersion: string }> {
  for await (const page of kube.list(path, { limit: 1 })) return page
  throw new Error(`no page of ${path}`)
}
