import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import { Deployment, Pod } from '#sdk'
import { type FleetEdits, NAMESPACE } from '../../bench/fleet/edits.ts'
import type { Operator } from '../../bench/fleet/functions.ts'
import type { Found } from './judge.ts'

/** A pod is deleted one or two of these after its At is DONE: by then, each process has seen that. */
const RETIRE_MS = 60_000

type Listed = KubeObject & { spec: { replicas?: number; size?: number }; status?: { phase?: string } }

async function listed(kube: KubeClient, refs: readonly Operator['ref'][]): Promise<Listed[]> {
  const found: Listed[] = []
  for (const ref of refs)
    for await (const { items } of kube.list<Listed>(resourcePath(ref, NAMESPACE))) found.push(...items)
  return found
}

/** A soak of this fleet's objects. */
export function objectsOf(kube: KubeClient, operators: readonly Operator[], edits: FleetEdits) {
  const retired = new Set<string>()
  const refsOf = (is: Operator['is']) => operators.filter((one) => one.is === is).map(({ ref }) => ref)
  return {
    /**
     * Deletes pods that are no longer needed, as a garbage collector does, until aborted. Pods have the names of their
     * Ats: while one is there, the API server itself refuses a second.
     */
    async retirePods(signal: AbortSignal): Promise<void> {
      let over: KubeObject['metadata'][] = []
      const round = async () => {
        for (const { name, uid = '' } of over) {
          retired.add(uid)
          await kube.delete(resourcePath(Pod, NAMESPACE, name)).catch((error: unknown) => {
            if (!isNotFound(error)) throw error
          })
        }
        const ats = await listed(kube, refsOf('At'))
        const done = new Set(ats.filter(({ status }) => status?.phase === 'DONE').map(({ metadata }) => metadata.name))
        const pods = await listed(kube, [Pod])
        over = pods
          .map(({ metadata }) => metadata)
          .filter(({ ownerReferences = [] }) => done.has(ownerReferences[0]?.name ?? ''))
      }
      while (!signal.aborted) {
        await round().catch(() => undefined)
        await sleep(RETIRE_MS, undefined, { signal }).catch(() => undefined)
      }
    },
    async found(): Promise<Omit<Found, 'before' | 'unfollowed'>> {
      const left = new Set((await listed(kube, [Pod])).map(({ metadata }) => metadata.uid))
      return {
        ats: (await listed(kube, refsOf('At'))).map(({ metadata: { name }, status }) => ({
          name,
          due: edits.due.get(name),
          phase: status?.phase,
        })),
        pods: [...edits.pods.values()].map((pod) => ({
          ...pod,
          isLost: !left.has(pod.uid) && !retired.has(pod.uid),
        })),
        memcacheds: (await listed(kube, refsOf('Memcached'))).map(({ metadata: { name }, spec: { size = 0 } }) => ({
          name,
          size,
        })),
        deployments: (await listed(kube, [Deployment])).map(({ metadata: { uid = '', ownerReferences }, spec }) => ({
          owner: ownerReferences?.[0]?.name,
          uid,
          replicas: spec.replicas ?? 0,
        })),
      }
    },
  }
}
