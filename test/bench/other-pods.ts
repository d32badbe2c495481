import { type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { Pod } from '#sdk'

const AT_ONCE = 16

/** Creates pods without an owner, with the numbers from `from` up to `to`. */
export async function createOtherPods(kube: KubeClient, namespace: string, from: number, to: number): Promise<void> {
  const containers = [{ name: 'c', image: 'busybox', command: ['sleep', 'infinity'] }]
  await forEachAtMost(AT_ONCE, namesFrom(from, to), (name) =>
    kube.create(resourcePath(Pod, namespace), {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, labels: { app: 'other' } },
      spec: { containers },
    }),
  )
}

export async function deleteOtherPods(kube: KubeClient, namespace: string, from: number, to: number): Promise<void> {
  await forEachAtMost(
    AT_ONCE,
    namesFrom(from, to),
    async (name) => void (await kube.delete(resourcePath(Pod, namespace, name), { gracePeriodSeconds: 0 })),
  )
}

async function* namesFrom(from: number, to: number): AsyncGenerator<string> {
  for (let at = from; at < to; at++) yield `other-${at}`
}
