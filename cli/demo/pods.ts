import { setTimeout as sleep } from 'node:timers/promises'
import { type KubeClient, resourcePath } from '#kube'

const PODS = { group: '', version: 'v1', resource: 'pods' }
const PAUSE_MS = 100

/** Without a node: sets each pod of the namespace to Succeeded as soon as it exists. Ends with the signal. */
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
      // The pod is deleted, or the watch has ended: list all pods again.
      await sleep(PAUSE_MS)
    }
  }
}
