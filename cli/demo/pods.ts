import { setTimeout as sleep } from 'node:timers/promises'
import { type KubeClient, resourcePath } from '#kube'

const PODS = { group: '', version: 'v1', resource: 'pods' }
const PAUSE_MS = 100

/** Where there is no node: each pod of the namespace has succeeded as soon as it is there. Ends by the signal. */
export async function endPods(kube: KubeClient, namespace: string, signal: AbortSignal): Promise<void> {
  const pods = resourcePath(PODS, namespace)
  while (!signal.aborted) {
    try {
      for await (const event of kube.watch(pods, { signal })) {
        if (event.type !== 'ADDED') continue
        const { name } = event.object.metadata
        await kube.patch(`${pods}/${name}/status`, { status: { phase: 'Succeeded' } }, 'merge')
      }
    } catch {
      // The pod is gone, or the watch ended: all pods once more.
      await sleep(PAUSE_MS)
    }
  }
}
