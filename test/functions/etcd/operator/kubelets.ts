import type { PodObject } from '../../../../functions/etcd/operator/parts.ts'
import { imageOf, sourcesOf, startOf } from './kubelet.ts'
import type { EtcdWorld } from './world.ts'

const minorOf = (image: string): number => Number(/:v\d+\.(\d+)\./.exec(image)?.[1])

/** A container takes so long to start with another image. */
const RESTART_S = 3
/** So long after that the status of the pod is still that of the container of before. */
const REPORT_S = 2

/** The kubelets of all nodes: one for each pod. */
export class Kubelets {
  readonly #world: EtcdWorld
  readonly #startsAt = new Map<string, number>()
  /** The minor version that has written the data of a member. */
  readonly #minors = new Map<string, number>()
  readonly #reportsAt = new Map<string, number>()
  /** The containers that run, whatever the status of their pods is. */
  readonly #containers = new Map<string, { containerID: string; image: string }>()
  #starts = 0
  /** Pods whose nodes are cut off. */
  readonly silent = new Set<string>()

  constructor(world: EtcdWorld) {
    this.#world = world
  }

  /** The container of the pod begins again. */
  restart(name: string): void {
    this.#world.etcds.stop(name)
    this.#startsAt.set(name, this.#world.etcd.now + RESTART_S)
  }

  /** The version that the process of a pod runs. */
  versionOf(name: string): string {
    const { image = '' } = this.#containers.get(name) ?? {}
    return image.slice(image.lastIndexOf(':v') + 2)
  }

  /** Whether the status of the pod is that of its present container, which is ready. */
  isReady(name: string): boolean {
    const { conditions = [], containerStatuses = [] } = this.#world.stored.pods.get(name)?.status ?? {}
    const isPresent = containerStatuses[0]?.containerID === this.#containers.get(name)?.containerID
    return isPresent && !this.#startsAt.has(name) && conditions[0]?.status === 'True'
  }

  /** A second. */
  pass(): void {
    for (const pod of this.#world.pods) this.#look(pod)
  }

  #look(pod: PodObject): void {
    const { etcds, etcd: known, stored, trust } = this.#world
    const { name, deletionTimestamp } = pod.metadata
    const store = (status: NonNullable<PodObject['status']>) => void stored.pods.set(name, { ...pod, status })
    if (this.silent.has(name)) {
      if (pod.status) store({ ...pod.status, conditions: [this.#condition(pod, false)] })
      return
    }
    if (deletionTimestamp !== undefined) return void stored.pods.delete(name)
    const restarts = pod.status?.containerStatuses?.[0]?.restartCount ?? 0
    const etcd = etcds.of(name)
    const isUp = etcd.processes.get(name)?.isUp === true
    const isBusy = (this.#startsAt.get(name) ?? 0) > known.now
    if (isBusy) return
    if (!trust.mount(pod)) return
    if (!isUp) trust.started(name)
    const hasData = etcd.processes.has(name)
    const started = isUp || (this.#canRead(pod, hasData) && etcds.start(startOf(pod, hasData), sourcesOf(pod)))
    if (started && !isUp) {
      this.#containers.set(name, { containerID: `containerd://${++this.#starts}`, image: imageOf(pod) })
      if (this.#startsAt.delete(name)) this.#reportsAt.set(name, known.now + REPORT_S)
    }
    const reportsAt = this.#reportsAt.get(name) ?? Number.NEGATIVE_INFINITY
    if (known.now < reportsAt) return
    const its = etcds.of(name)
    const isVoter = its.voters.some((one) => one.name === name)
    const container = {
      name: 'etcd',
      image: imageOf(pod),
      imageID: '',
      containerID: this.#containers.get(name)?.containerID ?? '',
      ready: started,
      restartCount: started ? restarts : restarts + 1,
      state: started ? {} : { waiting: { reason: 'CrashLoopBackOff' } },
    }
    const isReady = started && isVoter && its.follows(name) && known.now > reportsAt
    const conditions = [this.#condition(pod, isReady)]
    store({ phase: 'Running', podIP: name, conditions, containerStatuses: [container] })
  }

  /** Whether etcd of this image starts with the data: with those of a later minor version it does not. */
  #canRead(pod: PodObject, hasData: boolean): boolean {
    const { name } = pod.metadata
    const isRestored = pod.spec?.initContainers?.some(({ name, args }) => name === 'restore' && args?.[0] === 'restore')
    const written = isRestored ? this.#world.restore?.status.verified?.etcdVersion : undefined
    const minor = minorOf(imageOf(pod))
    if (minor < ((hasData ? this.#minors.get(name) : undefined) ?? minorOf(`:v${written ?? '0.0.0'}`))) return false
    this.#minors.set(name, minor)
    return true
  }

  #condition(pod: PodObject, isReady: boolean) {
    const status = isReady ? 'True' : 'False'
    const before = pod.status?.conditions?.[0]
    const lastTransitionTime = this.#world.now.toISOString()
    return before?.status === status ? before : { type: 'Ready', status, lastTransitionTime }
  }
}
