import type { EventReport } from '#contracts'
import type { EtcdRestore } from '#functions/etcd/restore'
import { type Decision, decide } from '../../../../functions/etcd/operator/decide.ts'
import type { PodObject } from '../../../../functions/etcd/operator/parts.ts'
import { EtcdCluster } from '../../../../functions/etcd/operator/resource.ts'
import type { Seen } from '../../../../functions/etcd/operator/seen.ts'
import { EtcdModels } from './clusters.ts'
import { Effects } from './effects.ts'
import { Kubelets } from './kubelets.ts'
import { type EtcdModel, newEtcd } from './model.ts'
import { RecoveryLaws } from './recovery-laws.ts'
import { emptyStore, type Point, type Stored } from './stored.ts'
import { Trust } from './trust.ts'
import { Writes } from './writes.ts'

export type Spec = Parameters<typeof EtcdCluster.of>[0]['spec']
type Run = Parameters<typeof decide>[0]

const START = Date.parse('2026-01-01T00:00:00Z')
const MAX_ROUNDS = 8

/**
 * The parts that a mutation changes, in the decision or in its input, in order to show which law depends on a guard.
 */
export interface Subject {
  decide: typeof decide
  isStrict?: boolean
}

/** One EtcdCluster with etcd, an API server and a kubelet, all of which go on by seconds. */
export class EtcdWorld {
  readonly etcds: EtcdModels
  readonly stored: Stored = emptyStore()
  readonly kubelets = new Kubelets(this)
  readonly effects = new Effects(this)
  readonly writes = new Writes(this)
  readonly recovery = new RecoveryLaws(this)
  readonly trust = new Trust(this)
  readonly #subject: Subject
  #spec: Spec
  #last: { spec: Spec; status: Stored['status']; object: ReturnType<typeof EtcdCluster.parse> } | undefined
  /** Broken laws. */
  readonly broken: string[] = []
  readonly events: EventReport[] = []
  /** Called at each point; may throw Crash. */
  happens: (point: Point) => void = () => {}
  /** That the last decision has asked for. */
  timer: Date | undefined
  /** The next observation is one write late. */
  isStale = false
  #runs = 0
  /** Pods that this run has deleted: it does not see them any more. */
  readonly #gone = new Set<string>()
  /** The number of deaths when the last decision was made. */
  #deathsKnown = 0
  #deaths = 0
  #parted: ReadonlySet<string> = new Set()
  readonly #agenda: { at: number; act: () => unknown }[] = []

  constructor(spec: Spec, subject: Subject = { decide }) {
    this.#spec = spec
    this.#subject = subject
    this.etcds = new EtcdModels([newEtcd({ isStrict: subject.isStrict ?? true })])
    this.etcds.setReach((one, other) => this.isReached(one) === this.isReached(other) && this.trust.reaches(one, other))
  }

  /** That which the status names. */
  get etcd(): EtcdModel {
    return this.etcds.by(this.stored.status['clusterID']) ?? this.etcds.last
  }

  /** What asks for other data. */
  restore: ReturnType<typeof EtcdRestore.parse> | undefined

  edit(spec: Partial<Spec>): void {
    this.#spec = { ...this.#spec, ...spec }
  }

  get object() {
    const parsed = this.#parsed()
    const conditions = Object.entries(this.stored.conditions).map(([type, { status, reason }]) => ({
      type,
      status,
      reason,
      message: '',
      lastTransitionTime: '',
    }))
    return { ...parsed, status: { ...parsed.status, conditions } }
  }

  /** Parsed again only when spec or status is another one. */
  #parsed() {
    const { status } = this.stored
    if (this.#last?.spec !== this.#spec || this.#last.status !== status) {
      const metadata = { name: 'ex', namespace: 'default', uid: 'u1', generation: 1 }
      const object = EtcdCluster.parse({ ...EtcdCluster.of({ metadata, spec: this.#spec }), status })
      this.#last = { spec: this.#spec, status, object }
    }
    return this.#last.object
  }

  get pods(): PodObject[] {
    return [...this.stored.pods.values()]
  }

  /** The pods without those whose deletion waits for an unreachable node. */
  get lastingPods(): PodObject[] {
    return this.pods.filter(
      ({ metadata }) => metadata.deletionTimestamp === undefined || !this.kubelets.silent.has(metadata.name),
    )
  }

  get hasVolumes(): boolean {
    return this.#spec.pod?.persistentVolumeClaimSpec !== undefined
  }

  get now(): Date {
    return new Date(START + this.etcd.now * 1000)
  }

  /** What a decision would be given now. */
  get given(): Run {
    const { run } = this.#observed()
    return { ...run, external: this.#seen(run.object), performed: undefined }
  }

  /** One run of the function, as the machine makes it: until nothing is left to do. False: it has changed nothing. */
  run(): boolean {
    this.#runs++
    this.#gone.clear()
    let performed: Run['performed']
    let seen: Seen | undefined
    let hasChanged = false
    const told = new Set<string>()
    for (let round = 0; round < MAX_ROUNDS; round++) {
      this.happens({ at: 'read' })
      const { stored, run } = this.#observed()
      if (seen === undefined) {
        this.#deathsKnown = this.#deaths
        seen = this.#seen(run.object, stored)
      }
      const decision = this.#subject.decide({ ...run, external: seen, performed })
      this.timer = decision.requeueAt
      const { effect } = decision
      const hasWritten = this.writes.write(decision, stored)
      this.#tell(decision.events, told)
      if (hasWritten) hasChanged = true
      else if (effect === undefined) return hasChanged
      else {
        performed = this.effects.perform(effect)
        if (performed?.error !== undefined) return hasChanged
        hasChanged = true
        seen = undefined
      }
    }
    return hasChanged
  }

  /** Records an Event once per run. */
  #tell(events: Decision['events'] = [], told: Set<string>): void {
    for (const event of events) {
      const text = JSON.stringify(event)
      if (!told.has(text)) this.events.push(event)
      told.add(text)
    }
  }

  #seen(object: Run['object'], { pods } = this.stored): Seen {
    const seen = this.etcds.seen(object, [...pods.values()], this.isReached)
    for (const name of this.kubelets.silent) delete seen.answers[name]
    for (const [name, answer] of Object.entries(seen.answers)) {
      answer.version = this.kubelets.versionOf(name)
    }
    this.trust.hear(seen)
    return seen
  }

  #observed(): { stored: Stored; run: Omit<Run, 'external' | 'performed'> } {
    const stored = this.isStale ? this.writes.before : this.stored
    this.isStale = false
    const related = ({ kind }: { kind: string }) => (kind === 'EtcdRestore' && this.restore ? [this.restore] : [])
    const pods = [...stored.pods.values()].filter(({ metadata }) => !this.#gone.has(metadata.name))
    const owned = ({ kind }: { kind: string }) =>
      kind === 'Pod' ? pods : [...(kind === 'Secret' ? stored.secrets : stored.claims).values()]
    const secret = (name: string) => `${name} of run ${this.#runs}`
    return {
      stored,
      run: {
        object: this.object,
        related: related as Run['related'],
        owned: owned as Run['owned'],
        now: this.now,
        secret,
      },
    }
  }

  /** Something has died since the last decision was made. */
  get isHit(): boolean {
    return this.#deaths > this.#deathsKnown
  }

  changeImage(name: string, wanted: PodObject): void {
    const found = this.stored.pods.get(name)
    if (found === undefined || found.metadata.deletionTimestamp !== undefined) return
    const away = this.etcd.voters.filter((one) => one.name !== name && !this.kubelets.isReady(one.name))
    if (away.length > 0 && !this.isHit)
      this.broken.push(`the image of ${name} was changed while ${away.map((one) => one.name).join(', ')} was not Ready`)
    this.act('the image of a pod', () => {
      this.kubelets.restart(name)
      this.stored.pods.set(name, {
        ...found,
        metadata: { ...wanted.metadata, ...found.metadata, annotations: wanted.metadata.annotations! },
        spec: wanted.spec!,
      })
    })
  }

  deletePod(name: string): void {
    const process = this.etcd.processes.get(name)
    const isMember = this.etcd.members.some(({ id }) => id === process?.id)
    if (process?.isUp && isMember && !this.etcd.hasQuorum && !this.isHit && !this.recovery.isRestoring)
      this.broken.push(`pod ${name}, which has data, was deleted without a quorum`)
    this.act(`the deletion of pod ${name}`, () => {
      this.#gone.add(name)
      this.#endPod(name)
    })
  }

  deleteClaim(name: string): void {
    if (!this.etcd.hasQuorum && !this.isHit) this.broken.push(`volume ${name} was deleted without a quorum`)
    this.recovery.judgeClaim(name)
    if (this.etcd.members.some(({ peerURL }) => peerURL.includes(`//${name}.`)))
      this.broken.push(`volume ${name} of a member was deleted`)
    this.stored.claims.delete(name)
    this.etcds.loseData(name)
  }

  /** An act of ours. It must not take the quorum, but a cluster of one or two has none to spare. */
  act(what: string, act: () => void): void {
    const before = this.etcd.hasQuorum
    const { length } = this.etcd.voters
    act()
    if (before && !this.etcd.hasQuorum && length > 2 && !this.isHit && !this.recovery.isRestoring)
      this.broken.push(`${what} has taken the quorum`)
    if (this.etcd.members.filter(({ isLearner }) => isLearner).length > 1) this.broken.push('there are two learners')
  }

  // What happens from outside.

  /** Deletes the pod as a user. */
  killPod(name: string): void {
    this.#deaths++
    this.#endPod(name)
  }

  #endPod(name: string): void {
    const pod = this.stored.pods.get(name)
    if (pod === undefined) return
    const metadata = { ...pod.metadata, deletionTimestamp: this.now.toISOString() }
    this.stored.pods.set(name, { ...pod, metadata })
    this.etcds.stop(name)
    if (!this.stored.claims.has(name)) this.etcds.loseData(name)
  }

  /** The disk is empty, and the process starts again. */
  loseDisk(name: string): void {
    this.#deaths++
    this.etcds.loseData(name)
  }

  /** Its node is cut off from all others. */
  cutOff(name: string): void {
    this.#deaths++
    this.etcds.stop(name)
    this.kubelets.silent.add(name)
  }

  later(seconds: number, act: () => unknown): void {
    this.#agenda.push({ at: this.etcd.now + seconds, act })
  }

  reconnect(name: string): void {
    this.kubelets.silent.delete(name)
  }

  /** These members reach each other and the API server, and neither the function nor other members. */
  part(names: readonly string[]): void {
    this.#deaths++
    this.#parted = new Set(names)
  }

  isReached = (name: string): boolean => !this.#parted.has(name)

  /** A second for etcd and the kubelets. */
  pass(): void {
    this.etcds.pass()
    for (const { act } of this.#agenda.filter(({ at }) => at === this.etcd.now)) act()
    this.effects.pass()
    this.kubelets.pass()
    this.trust.pass()
    this.broken.push(...this.trust.faults)
    this.recovery.pass()
  }
}
