import type { KubeObject } from '#contracts'
import { EtcdCluster } from '#functions/etcd'
import { resourcePath } from '#kube'
import { type Kind, type ObservedBy, PersistentVolumeClaim, Pod } from '#sdk'
import { addEtcdImages } from '../../deploy/images/etcd/index.ts'
import { type Replica, startReplicas } from './chaos.ts'
import { startWorld, until, type World, whileAway } from './world.ts'

type Spec = Parameters<typeof EtcdCluster.of>[0]['spec']

/** A cluster with a real node on which two processes of Fairlead run, and its EtcdClusters. */
export class EtcdClusters implements AsyncDisposable {
  readonly world: World
  readonly replicas: Replica[] & AsyncDisposable

  private constructor(world: World, replicas: Replica[] & AsyncDisposable) {
    this.world = world
    this.replicas = replicas
  }

  static async start(): Promise<EtcdClusters> {
    const world = await startWorld({ node: 'real', controllers: true })
    await addEtcdImages(world.cluster.registryUrl ?? '')
    await world.cluster.restart('kube-controller-manager')
    return new EtcdClusters(world, await startReplicas(world, 2))
  }

  async create(name: string, spec: Spec): Promise<void> {
    const policy = { busyboxImage: 'busybox', ...spec.pod }
    await this.add(EtcdCluster, EtcdCluster.of({ metadata: { name }, spec: { ...spec, pod: policy } }))
  }

  add = (kind: Kind<unknown>, object: KubeObject): Promise<KubeObject> =>
    this.world.kube.create(resourcePath(kind, 'default'), object)

  async get<K extends Kind<unknown>>(kind: K, name: string): Promise<ObservedBy<K>> {
    const path = resourcePath(kind, 'default', name)
    return kind.parse(await whileAway(() => this.world.kube.get<KubeObject>(path))) as ObservedBy<K>
  }

  statusOf = async (name: string) => (await this.get(EtcdCluster, name)).status

  edit = (name: string, spec: object): Promise<KubeObject> => this.merge(name, { spec })
  merge = (name: string, patch: object): Promise<KubeObject> =>
    whileAway(() => this.world.kube.patch(resourcePath(EtcdCluster, 'default', name), patch, 'merge'))

  remove = (name: string): Promise<unknown> =>
    whileAway(() => this.world.kube.delete(resourcePath(EtcdCluster, 'default', name)))

  /** Without time to end in peace. */
  kill = (pod: string): Promise<unknown> =>
    this.world.kube.delete(resourcePath(Pod, 'default', pod), { gracePeriodSeconds: 0 })

  async pods(name: string): Promise<KubeObject[]> {
    const pods = await this.world.pods()
    return pods.filter(
      ({ metadata }) => metadata.labels?.['etcd_cluster'] === name && metadata.deletionTimestamp === undefined,
    )
  }

  names = async (name: string): Promise<string[]> => (await this.pods(name)).map(({ metadata }) => metadata.name).sort()

  async urlOf(name: string, scheme = 'http'): Promise<string> {
    const [pod] = await this.pods(name)
    return `${scheme}://${(pod?.status as { podIP?: string } | undefined)?.podIP}:2379`
  }

  async claims(name: string): Promise<KubeObject[]> {
    const all: KubeObject[] = []
    for await (const { items } of this.world.kube.list<KubeObject>(resourcePath(PersistentVolumeClaim, 'default')))
      all.push(...items)
    return all.filter(({ metadata }) => metadata.labels?.['etcd_cluster'] === name)
  }

  /** Its status, as soon as it has so many members and nothing is left to do. Prints how long that took. */
  async settled(name: string, size: number, what: string, without = '') {
    const begin = performance.now()
    let status: Awaited<ReturnType<typeof this.statusOf>> = {}
    await until(async () => {
      const { metadata, status: now } = await this.get(EtcdCluster, name)
      status = now
      const ready = status.conditions?.find(({ type }) => type === 'Ready')
      const isSettled = ready?.status === 'True' && ready.observedGeneration === metadata.generation
      const { ready: names = [] } = status.members ?? {}
      return isSettled && names.length === size && status.size === size && !names.includes(without)
    })
    console.log(`${what}: ${((performance.now() - begin) / 1000).toFixed(1)} s`)
    return status
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.replicas[Symbol.asyncDispose]()
    await this.world[Symbol.asyncDispose]()
  }
}
