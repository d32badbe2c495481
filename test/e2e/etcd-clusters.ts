import type { KubeObject } from '#contracts'
import { EtcdCluster } from '#functions/etcd'
import { resourcePath } from '#kube'
import { type Kind, type ObservedBy, PersistentVolumeClaim, Pod, Service } from '#sdk'
import { addEtcdImages } from '../../deploy/images/etcd/index.ts'
import { isSoak } from '../support/node.ts'
import { type Replica, startReplicas } from './chaos.ts'
import { killInTurn } from './kills.ts'
import { startWorld, until, type World, whileAway } from './world.ts'

type Spec = Parameters<typeof EtcdCluster.of>[0]['spec']

/** A cluster with a real node on which two processes of Fairlead run, and its EtcdClusters. */
export class EtcdClusters implements AsyncDisposable {
  #world: World | undefined
  #replicas: (Replica[] & AsyncDisposable) | undefined
  readonly #kills = new AsyncDisposableStack()

  async begin(): Promise<void> {
    this.#world = await startWorld({ node: 'real', controllers: true })
    const { cluster } = this.#world
    await addEtcdImages(cluster.registryUrl ?? '')
    await cluster.restart('kube-controller-manager')
    this.#replicas = await startReplicas(this.#world, 2)
  }

  get world(): World {
    if (this.#world === undefined) throw new Error('the cluster has not begun: call begin() first')
    return this.#world
  }

  get replicas(): readonly Replica[] {
    return this.#replicas ?? []
  }

  /**
   * One of the two processes after the other is killed every few seconds, until the end of the block. In `npm test`, where
   * a process takes ten times as long to start, etcd-under-faults.ts alone kills them.
   */
  killing = (): AsyncDisposable => this.#kills.use(killInTurn(isSoak ? this.replicas : []))

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

  /** Without time to end in peace, unless a grace period is given. */
  kill = (pod: string, gracePeriodSeconds = 0): Promise<unknown> =>
    this.world.kube.delete(resourcePath(Pod, 'default', pod), { gracePeriodSeconds })

  async pods(name: string): Promise<KubeObject[]> {
    const pods = await this.world.pods()
    return pods.filter(
      ({ metadata }) => metadata.labels?.['etcd_cluster'] === name && metadata.deletionTimestamp === undefined,
    )
  }

  names = async (name: string): Promise<string[]> => (await this.pods(name)).map(({ metadata }) => metadata.name).sort()

  /** Where clients reach the members that have an address. */
  async urls(name: string): Promise<string[]> {
    const addresses = (await this.pods(name)).map(({ status }) => (status as { podIP?: string } | undefined)?.podIP)
    return addresses.filter((address) => address !== undefined).map((address) => `http://${address}:2379`)
  }

  /** Those of members that are ready. */
  async readyUrls(name: string): Promise<string[]> {
    const pods = (await this.pods(name)).map(({ status }) => status as ObservedBy<typeof Pod>['status'])
    return pods
      .filter((status) => status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True'))
      .map((status) => `http://${status?.podIP}:2379`)
  }

  /** Where clients reach whichever member is ready. */
  async serviceUrl(name: string): Promise<string> {
    const { spec } = await this.get(Service, `${name}-client`)
    return `http://${spec?.clusterIP}:2379`
  }

  async urlOf(name: string): Promise<string> {
    const [url = ''] = await this.urls(name)
    return url
  }

  async claims(name: string): Promise<KubeObject[]> {
    const all: KubeObject[] = []
    for await (const { items } of this.world.kube.list<KubeObject>(resourcePath(PersistentVolumeClaim, 'default')))
      all.push(...items)
    return all.filter(({ metadata }) => metadata.labels?.['etcd_cluster'] === name)
  }

  /** Whether it has the members that its spec wants, and nothing is left to do. */
  async isSettled(name: string): Promise<boolean> {
    const cluster = await this.get(EtcdCluster, name)
    return isSettledAt(cluster.spec.size, cluster)
  }

  /** Its status, as soon as it has so many members and nothing is left to do. Prints how long that took. */
  async settled(name: string, size: number, what: string, without = '') {
    const begin = performance.now()
    let status: Awaited<ReturnType<typeof this.statusOf>> = {}
    await until(async () => {
      const cluster = await this.get(EtcdCluster, name)
      status = cluster.status
      return isSettledAt(size, cluster) && !status.members?.ready.includes(without)
    })
    console.log(`${what}: ${((performance.now() - begin) / 1000).toFixed(1)} s`)
    return status
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#kills.disposeAsync()
    await this.#replicas?.[Symbol.asyncDispose]()
    await this.#world?.[Symbol.asyncDispose]()
  }
}

function isSettledAt(size: number, { metadata, status }: ObservedBy<typeof EtcdCluster>): boolean {
  const ready = status.conditions?.find(({ type }) => type === 'Ready')
  const isReady = ready?.status === 'True' && ready.observedGeneration === metadata.generation
  return isReady && status.members?.ready.length === size && status.size === size
}
