import type { KubeObject } from '#contracts'
import { EtcdCluster } from '#functions/etcd'
import { type KubeClient, resourcePath } from '#kube'
import { type ObservedBy, Pod } from '#sdk'

/** Writes down what becomes of an EtcdCluster and of its pods, with the time, until the signal. */
export function timelineOf(kube: KubeClient, name: string, signal: AbortSignal): string[] {
  const lines: string[] = []
  const told = new Map<string, ReadonlySet<string>>()
  const begin = performance.now()
  const tell = (of: string, facts: readonly (string | false | undefined)[]) => {
    const now = new Set(facts.filter((fact) => typeof fact === 'string'))
    for (const fact of now)
      if (told.get(of)?.has(fact) !== true)
        lines.push(`${((performance.now() - begin) / 1000).toFixed(2).padStart(7)} s  ${of}: ${fact}`)
    told.set(of, now)
  }
  const follow = async (path: string, look: (object: KubeObject) => void) => {
    while (!signal.aborted)
      try {
        for await (const { type, object } of kube.watch(path, { resourceVersion: '0', signal }))
          if (type !== 'BOOKMARK') look(object)
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
  }
  void follow(resourcePath(Pod, 'default'), (object) => {
    if (object.metadata.labels?.['etcd_cluster'] === name) tell(object.metadata.name, factsOf(object))
  })
  void follow(resourcePath(EtcdCluster, 'default'), (object) => {
    if (object.metadata.name !== name) return
    const { status } = EtcdCluster.parse(object)
    const progress = status.conditions?.find(({ type }) => type === 'Progressing')
    const { members, size } = status
    tell(name, [
      progress && `${progress.reason}: ${progress.message}`,
      size !== undefined && `${size} voters`,
      members && `${members.ready.length} ready`,
    ])
  })
  return lines
}

/** Returns the least number of these pods that the API server has shown as ready at a time, as soon as the signal comes. */
export async function leastReady(kube: KubeClient, pods: readonly KubeObject[], signal: AbortSignal): Promise<number> {
  const states = new Map(pods.map((pod) => [pod.metadata.name, factsOf(pod).includes('ready')]))
  const readyNow = () => [...states.values()].filter(Boolean).length
  let least = readyNow()
  while (!signal.aborted)
    try {
      for await (const { type, object } of kube.watch(resourcePath(Pod, 'default'), { resourceVersion: '0', signal })) {
        if (type !== 'BOOKMARK' && states.has(object.metadata.name))
          states.set(object.metadata.name, factsOf(object).includes('ready'))
        least = Math.min(least, readyNow())
      }
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  return least
}

function factsOf({ metadata, status: of }: KubeObject): (string | false | undefined)[] {
  const status = of as ObservedBy<typeof Pod>['status']
  const is = (type: string): boolean =>
    status?.conditions?.some((one) => one.type === type && one.status === 'True') === true
  const [etcd] = status?.containerStatuses ?? []
  return [
    'created',
    is('PodScheduled') && 'scheduled',
    is('PodReadyToStartContainers') && 'sandbox',
    status?.podIP !== undefined && 'address',
    is('Initialized') && 'initialized',
    etcd?.state?.running !== undefined && 'running',
    etcd?.started === true && 'started',
    is('Ready') ? 'ready' : etcd?.started === true && 'not ready',
    metadata.deletionTimestamp !== undefined && 'deleted',
    (etcd?.restartCount ?? 0) > 0 && `restarted ${etcd?.restartCount} times`,
  ]
}
