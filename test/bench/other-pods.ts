import { randomUUID } from 'node:crypto'
import { type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { Pod } from '#sdk'
import { base64, type EtcdCall } from '../support/cluster-etcd.ts'

const AT_ONCE = 16
/** etcd takes 128 operations in a transaction. */
const BATCH = 100
const CREATED = '2030-01-01T00:00:00Z'

/** Creates pods without an owner, with the numbers from `from` up to `to`. */
export async function createOtherPods(kube: KubeClient, namespace: string, from: number, to: number): Promise<void> {
  await forEachAtMost(AT_ONCE, namesFrom(from, to), (name) =>
    kube.create(resourcePath(Pod, namespace), otherPod({ name })),
  )
}

/** Writes so many pods in as many namespaces behind the API server, which would need minutes for 100,000 of them. */
export async function fillWithPods(call: EtcdCall, namespaces: readonly string[], count: number): Promise<void> {
  for (let at = 0; at < count; at += BATCH) {
    const success = Array.from({ length: Math.min(BATCH, count - at) }, (_, index) => {
      const namespace = namespaces[(at + index) % namespaces.length]
      const metadata = { name: `other-${at + index}`, namespace, uid: randomUUID(), creationTimestamp: CREATED }
      const key = base64(`/registry/pods/${namespace}/${metadata.name}`)
      return { request_put: { key, value: base64(JSON.stringify(otherPod(metadata))) } }
    })
    await call('kv/txn', { success })
  }
}

const otherPod = (metadata: { name: string }) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { ...metadata, labels: { app: 'other' } },
  spec: { containers: [{ name: 'c', image: 'busybox', command: ['sleep', 'infinity'] }] },
})

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
