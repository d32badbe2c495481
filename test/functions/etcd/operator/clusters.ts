import { clusterIdOf as knownOf } from '../../../../functions/etcd/operator/cluster.ts'
import type { PodObject } from '../../../../functions/etcd/operator/parts.ts'
import type { ClusterObject } from '../../../../functions/etcd/operator/resource.ts'
import type { Seen } from '../../../../functions/etcd/operator/seen.ts'
import { isRunning, type Sources } from './kubelet.ts'
import { clusterIdOf, EtcdModel, type EtcdState, newEtcd, type Start } from './model.ts'

/** The clusters of etcd that an EtcdCluster has had one after the other: those of before may still run. */
export class EtcdModels {
  readonly #states: EtcdState[]
  readonly all: EtcdModel[]

  /** The states are changed in place. */
  constructor(states: EtcdState[] = [newEtcd()]) {
    this.#states = states
    this.all = states.map((state) => new EtcdModel(state))
  }

  #reaches: EtcdModel['reaches'] = () => true

  /** Whether two members are connected, and take each other's certificates. */
  setReach(reaches: EtcdModel['reaches']): void {
    this.#reaches = reaches
    for (const one of this.all) one.reaches = reaches
  }

  get last(): EtcdModel {
    return this.all.at(-1)!
  }

  /** How often any was formed. */
  get formed(): number {
    return this.all.reduce((sum, { formed }) => sum + formed, 0)
  }

  by(clusterID: unknown): EtcdModel | undefined {
    return this.all.find((one) => one.clusterID !== undefined && one.clusterID === clusterID)
  }

  /** That which the process is of. */
  of(name: string): EtcdModel {
    return this.all.find(({ processes }) => processes.has(name)) ?? this.last
  }

  /** False: the process ends at once, or has nothing to begin with. */
  start(start: Start, from: Sources | undefined): boolean {
    const { name, state, token } = start
    const own = this.all.find(({ processes }) => processes.has(name))
    if (own !== undefined) return own.start(start)
    if (state !== 'new') {
      const joined = this.all.find(({ members }) => members.some(({ peerURL }) => peerURL.includes(`//${name}.`)))
      return (joined ?? this.last).start(start)
    }
    const index = from && this.#snapshot(name, from)
    if (from !== undefined && index === undefined) return false
    return this.#formable(clusterIdOf(name, token)).start({ ...start, index })
  }

  /** What an agent in a pod reads of the most advanced member that answers it. */
  #snapshot(pod: string, { names, revision }: Sources): number | undefined {
    const found = names.flatMap((name) => {
      const process = this.of(name).processes.get(name)
      return process?.isUp && process.serves && this.#reaches(pod, name) ? [process.applied] : []
    })
    const most = Math.max(0, ...found)
    return found.length === 0 || most < revision ? undefined : most
  }

  #formable(clusterID: string): EtcdModel {
    const same = this.by(clusterID)
    if (same !== undefined) return same
    if (this.last.clusterID === undefined) return this.last
    const { now, isStrict, isInstant } = this.last.state
    const state = newEtcd({ now, isStrict, isInstant })
    this.#states.push(state)
    const next = new EtcdModel(state)
    next.reaches = this.#reaches
    this.all.push(next)
    return next
  }

  stop(name: string): void {
    for (const one of this.all) one.stop(name)
  }

  loseData(name: string): void {
    for (const { processes } of this.all) processes.delete(name)
  }

  pass(): void {
    for (const one of this.all) one.pass()
  }

  /** Time in which nothing happens. */
  skip(seconds: number): void {
    for (const { state } of this.all) state.now += seconds
  }

  /** What a driver reads that reaches these pods. */
  seen(object: ClusterObject, pods: readonly PodObject[], isReached: (name: string) => boolean = () => true): Seen {
    const names = pods.filter(isRunning).map(({ metadata }) => metadata.name)
    const all = this.all.map((one) => one.seen(names.filter(isReached)))
    const answers = Object.assign({}, ...all.map((one) => one.answers)) as Seen['answers']
    const known = knownOf(object, answers, pods)
    const list = all.find((one) => one.list !== undefined && one.list.clusterID === known)?.list
    return { answers, ...(list && { list }) }
  }
}
