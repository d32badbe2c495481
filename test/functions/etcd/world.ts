import { isDeepStrictEqual } from 'node:util'
import type { ConditionUpdate, EventReport } from '#contracts'
import type { EtcdRestore } from '#functions/etcd-restore'
import { type Decision, decide } from '../../../functions/etcd/decide.ts'
import { peerUrlOf } from '../../../functions/etcd/names.ts'
import type { ClaimObject, PodObject, SecretObject } from '../../../functions/etcd/parts.ts'
import { EtcdCluster } from '../../../functions/etcd/resource.ts'
import type { EtcdEffect, Seen } from '../../../functions/etcd/seen.ts'
import { EtcdModels } from './clusters.ts'
import { imageOf, isRunning, sourcesOf, startOf } from './kubelet.ts'
import { type EtcdModel, newEtcd } from './model.ts'
import { RecoveryLaws } from './recovery-laws.ts'
import { Trust } from './trust.ts'

export type Spec = Parameters<typeof EtcdCluster.of>[0]['spec']
type Run = Parameters<typeof decide>[0]

const START = Date.parse('2026-01-01T00:00:00Z')
const MAX_ROUNDS = 8
/** A container takes so long to start with another image. */
const RESTART_S = 3

/** A request of a process that has stalled arrives so much later. */
const LATE_S = 20

/** What may be different in the decision or in what it is told, in order to show which law a guard keeps. */
export interface Subject {
  decide: typeof decide
  isStrict?: boolean
}

/** The process dies here. */
export class Crash extends Error {}

interface Stored {
  status: Record<string, unknown>
  conditions: Record<string, Omit<ConditionUpdate, 'type'>>
  pods: Map<string, PodObject>
  claims: Map<string, ClaimObject>
  secrets: Map<string, SecretObject>
}

/** A point of a run at which something may happen: before a read, before each write, and before the effect. */
export type Point = { at: 'read' } | { at: 'write'; what: string } | { at: 'effect'; effect: EtcdEffect }

/** One EtcdCluster with etcd, an API server and a kubelet, all of which go on by seconds. */
export class EtcdWorld {
  readonly etcds: EtcdModels
  readonly recovery = new RecoveryLaws(this)
  readonly trust = new Trust(this)
  readonly #subject: Subject
  #spec: Spec
  stored: Stored = { status: {}, conditions: {}, pods: new Map(), claims: new Map(), secrets: new Map() }
  /** As it was before the last write. */
  #before: Stored = this.stored
  /** Broken laws. */
  readonly broken: string[] = []
  readonly effects: EtcdEffect[] = []
  readonly events: EventReport[] = []
  /** Called at each point; may throw Crash. */
  happens: (point: Point) => void = () => {}
  /** That the last decision has asked for. */
  timer: Date | undefined
  /** The next observation is one write late. */
  isStale = false
  /** Effects that have been sent, and have not arrived. */
  readonly #late: { effect: EtcdEffect; at: number }[] = []
  holdNextEffect = false
  /** The next change of a Secret has been sent, and arrives later. */
  holdNextSecret = false
  #uids = 0
  #runs = 0
  readonly #startsAt = new Map<string, number>()
  /** Pods that this run has deleted: it does not see them any more. */
  readonly #gone = new Set<string>()
  #formedBefore = 0
  #isFormed = false
  #formed = 0
  readonly #silent = new Set<string>()

  constructor(spec: Spec, subject: Subject = { decide }) {
    this.#spec = spec
    this.#subject = subject
    this.etcds = new EtcdModels([newEtcd({ isStrict: subject.isStrict ?? true })])
    this.etcds.setReach(this.trust.reaches)
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
    const object = EtcdCluster.of({
      metadata: { name: 'ex', namespace: 'default', uid: 'u1', generation: 1 },
      spec: this.#spec,
    })
    const parsed = EtcdCluster.parse({ ...object, status: this.stored.status })
    const conditions = Object.entries(this.stored.conditions).map(([type, { status, reason }]) => ({
      type,
      status,
      reason,
      message: '',
      lastTransitionTime: '',
    }))
    return { ...parsed, status: { ...parsed.status, conditions } }
  }

  get pods(): PodObject[] {
    return [...this.stored.pods.values()]
  }

  /** Without those whose deletion waits for a node that is cut off. */
  get lastingPods(): PodObject[] {
    return this.pods.filter(
      ({ metadata }) => metadata.deletionTimestamp === undefined || !this.#silent.has(metadata.name),
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
    const { stored, run } = this.#observed()
    const pods = [...stored.pods.values()].filter(isRunning).map(({ metadata }) => metadata.name)
    return { ...run, external: this.#heard(this.etcds.seen(run.object, pods)), performed: undefined }
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
        const pods = [...stored.pods.values()].filter(isRunning).map(({ metadata }) => metadata.name)
        seen = this.#heard(this.etcds.seen(run.object, pods))
      }
      const decision = this.#subject.decide({ ...run, external: seen, performed })
      this.timer = decision.requeueAt
      const { effect } = decision
      const hasWritten = this.#write(decision, stored)
      this.#tell(decision.events, told)
      if (hasWritten) hasChanged = true
      else if (effect === undefined) return hasChanged
      else {
        performed = this.#perform(effect)
        if (performed?.error !== undefined) return hasChanged
        hasChanged = true
        seen = undefined
      }
    }
    return hasChanged
  }

  /** The same is told once in a run. */
  #tell(events: Decision['events'] = [], told: Set<string>): void {
    for (const event of events) {
      const text = JSON.stringify(event)
      if (!told.has(text)) this.events.push(event)
      told.add(text)
    }
  }

  #heard(seen: Seen): Seen {
    for (const name of this.#silent) delete seen.answers[name]
    for (const [name, answer] of Object.entries(seen.answers)) {
      const image = this.stored.pods.get(name)?.status?.containerStatuses?.[0]?.image ?? ''
      answer.version = image.slice(image.lastIndexOf(':v') + 2)
    }
    this.trust.hear(seen)
    return seen
  }

  #observed(): { stored: Stored; run: Omit<Run, 'external' | 'performed'> } {
    const stored = this.isStale ? this.#before : this.stored
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

  /** The number of deaths when the last decision was made. */
  #deathsKnown = 0
  #deaths = 0

  #write(decision: Decision, observed: Stored): boolean {
    let hasWritten = false
    const write = (what: string, change: (stored: Stored) => void) => {
      this.happens({ at: 'write', what })
      this.#before = copyOf(this.stored)
      change(this.stored)
      hasWritten = true
    }
    const { apply } = decision
    if (apply !== undefined) {
      const pods = apply.filter(({ kind }) => kind === 'Pod') as PodObject[]
      const claims = apply.filter(({ kind }) => kind === 'PersistentVolumeClaim') as ClaimObject[]
      const secrets = apply.filter(({ kind }) => kind === 'Secret') as SecretObject[]
      for (const secret of secrets) this.#writeSecret(secret, observed, write)
      for (const claim of claims)
        if (!this.stored.claims.has(claim.metadata.name))
          write(`create claim ${claim.metadata.name}`, (stored) => this.#create(stored.claims, claim))
      for (const pod of pods) {
        const { name } = pod.metadata
        const found = this.stored.pods.get(name)
        if (found === undefined && observed.pods.has(name)) continue
        if (found === undefined)
          write(`create pod ${name}`, (stored) => {
            this.recovery.judgePod(name)
            this.#create(stored.pods, pod)
          })
        else if (found.metadata.deletionTimestamp === undefined && imageOf(found) !== imageOf(pod))
          write(`image of pod ${name}`, () => this.#changeImage(name, pod))
      }
      const goes = <T extends PodObject | ClaimObject | SecretObject>(there: Map<string, T>, kept: T[]) =>
        [...there.values()].filter(({ metadata }) => kept.every((one) => one.metadata.name !== metadata.name))
      for (const { metadata } of goes(observed.pods, pods))
        if (this.stored.pods.get(metadata.name)?.metadata.deletionTimestamp === undefined)
          write(`delete pod ${metadata.name}`, () => this.#deletePod(metadata.name))
      for (const { metadata } of goes(observed.secrets, secrets))
        write(`delete secret ${metadata.name}`, (stored) => stored.secrets.delete(metadata.name))
      for (const { metadata } of goes(observed.claims, claims))
        if (this.stored.claims.has(metadata.name))
          write(`delete claim ${metadata.name}`, () => this.#deleteClaim(metadata.name))
    }
    const status = { ...(decision.status ?? this.stored.status) }
    if (JSON.stringify(status) !== JSON.stringify(this.stored.status))
      write('status', (stored) => {
        this.#judge(stored.status, status)
        stored.status = status
      })
    this.stored.conditions = Object.fromEntries((decision.conditions ?? []).map(({ type, ...one }) => [type, one]))
    return hasWritten
  }

  /** Objects are never changed in place: whoever has read one keeps it as it was. */
  #store(pod: PodObject): void {
    this.stored.pods.set(pod.metadata.name, pod)
  }

  /** One that is there is never overwritten by who takes it for a new one. */
  #writeSecret(
    secret: SecretObject,
    observed: Stored,
    write: (what: string, change: (stored: Stored) => void) => void,
  ): void {
    const { name } = secret.metadata
    const found = this.stored.secrets.get(name)
    if (observed.secrets.has(name) !== (found !== undefined)) return
    if (isDeepStrictEqual(found?.data, secret.data)) return
    if (this.holdNextSecret && found !== undefined) {
      this.holdNextSecret = false
      this.later(LATE_S, () => this.stored.secrets.has(name) && this.stored.secrets.set(name, secret))
      throw new Crash()
    }
    write(`${found ? 'change' : 'create'} secret ${name}`, (stored) => stored.secrets.set(name, secret))
  }

  #create<T extends PodObject | ClaimObject>(there: Map<string, T>, object: T): void {
    const metadata = { ...object.metadata, uid: String(++this.#uids), creationTimestamp: this.now.toISOString() }
    there.set(object.metadata.name, { ...object, metadata })
  }

  #judge(before: Record<string, unknown>, after: Record<string, unknown>): void {
    if (after['restoring'] !== before['restoring'] && after['restoring'] !== undefined)
      this.#formedBefore = this.etcds.formed
    if (after['restoredFrom'] !== before['restoredFrom'] && this.etcds.formed === this.#formedBefore)
      this.broken.push('a restore was told that has not been made')
    if (this.recovery.judge(before, after)) this.#isFormed = false
  }

  get #isRestoring(): boolean {
    return this.stored.status['restoring'] !== undefined
  }

  #changeImage(name: string, wanted: PodObject): void {
    const found = this.stored.pods.get(name)
    if (found === undefined || found.metadata.deletionTimestamp !== undefined) return
    this.#act('the image of a pod', () => {
      this.etcds.stop(name)
      this.#startsAt.set(name, this.etcd.now + RESTART_S)
      this.#store({ ...found, spec: wanted.spec! })
    })
  }

  #deletePod(name: string): void {
    const isHit = this.#deaths > this.#deathsKnown
    const process = this.etcd.processes.get(name)
    const isMember = this.etcd.members.some(({ id }) => id === process?.id)
    if (process?.isUp && isMember && !this.etcd.hasQuorum && !isHit && !this.#isRestoring)
      this.broken.push(`pod ${name}, which has data, was deleted without a quorum`)
    this.#act(`the deletion of pod ${name}`, () => {
      this.#gone.add(name)
      this.#endPod(name)
    })
  }

  #deleteClaim(name: string): void {
    const isHit = this.#deaths > this.#deathsKnown
    if (!this.etcd.hasQuorum && !isHit) this.broken.push(`volume ${name} was deleted without a quorum`)
    if (this.etcd.members.some(({ peerURL }) => peerURL.includes(`//${name}.`)))
      this.broken.push(`volume ${name} of a member was deleted`)
    this.stored.claims.delete(name)
    this.etcds.loseData(name)
  }

  /** An act of ours. It must not take the quorum, but a cluster of one or two has none to spare. */
  #act(what: string, act: () => void): void {
    const before = this.etcd.hasQuorum
    const { length } = this.etcd.voters
    act()
    const isHit = this.#deaths > this.#deathsKnown
    if (before && !this.etcd.hasQuorum && length > 2 && !isHit && !this.#isRestoring)
      this.broken.push(`${what} has taken the quorum`)
    if (this.etcd.members.filter(({ isLearner }) => isLearner).length > 1) this.broken.push('there are two learners')
  }

  #perform(effect: EtcdEffect): Run['performed'] {
    this.happens({ at: 'effect', effect })
    if (this.holdNextEffect) {
      this.holdNextEffect = false
      this.#late.push({ effect, at: this.etcd.now + 7 })
      throw new Crash()
    }
    return this.#arrive(effect)
  }

  #arrive(effect: EtcdEffect): Run['performed'] {
    this.effects.push(effect)
    let failure: string | undefined
    const etcd = this.etcds.of(effect.via)
    const size = etcd.voters.length
    const before = etcd.hasQuorum
    const isOther = this.#deaths > this.#deathsKnown
    if (effect.kind === 'remove' && effect.id === etcd.leader?.id && !isOther)
      this.broken.push('the leader was removed')
    if (effect.kind === 'addLearner' && this.#used.has(effect.peerURL) && !this.#isMember(effect.peerURL))
      this.broken.push(`${effect.peerURL} is used a second time`)
    try {
      this.#act(JSON.stringify(effect), () => etcd.perform(effect))
      if (effect.kind === 'addLearner') this.#used.add(effect.peerURL)
      // A change of the members may not lose the quorum of any size. A learner that dies at that very moment does.
      const isHit = effect.kind === 'promote' && this.#deaths > this.#deathsKnown
      if (before && !etcd.hasQuorum && !isHit)
        this.broken.push(`${effect.kind} at ${size} members has taken the quorum`)
    } catch (error) {
      failure = (error as Error).message
    }
    if (etcd.voters.length === 0) this.broken.push('no member is left')
    return { effect, ...(failure !== undefined && { error: failure }) }
  }

  readonly #used = new Set<string>()
  #isMember = (url: string): boolean => this.etcd.members.some(({ peerURL }) => peerURL === url)

  // What happens from outside.

  /** Somebody deletes the pod. */
  killPod(name: string): void {
    this.#deaths++
    this.#endPod(name)
  }

  #endPod(name: string): void {
    const pod = this.stored.pods.get(name)
    if (pod === undefined) return
    this.#store({ ...pod, metadata: { ...pod.metadata, deletionTimestamp: this.now.toISOString() } })
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
    this.#silent.add(name)
  }

  readonly #agenda: { at: number; act: () => unknown }[] = []

  later(seconds: number, act: () => unknown): void {
    this.#agenda.push({ at: this.etcd.now + seconds, act })
  }

  reconnect(name: string): void {
    this.#silent.delete(name)
  }

  /** A second for etcd and the kubelet. */
  pass(): void {
    this.etcds.pass()
    for (const { act } of this.#agenda.filter(({ at }) => at === this.etcd.now)) act()
    for (const { effect } of this.#late.filter(({ at }) => at === this.etcd.now)) this.#arrive(effect)
    for (const pod of this.pods) this.#kubelet(pod)
    this.trust.pass()
    this.broken.push(...this.trust.faults)
    if (this.#isRestoring) this.#isFormed = false
    if (this.#isFormed && this.etcd.formed > this.#formed) this.broken.push('a second cluster was formed')
    this.#isFormed ||= !this.#isRestoring && this.stored.conditions['Available']?.status === 'True'
    this.#formed = this.etcd.formed
    this.recovery.pass()
  }

  #kubelet(pod: PodObject): void {
    const { name, deletionTimestamp } = pod.metadata
    if (this.#silent.has(name)) {
      if (pod.status) this.#store({ ...pod, status: { ...pod.status, conditions: [this.#condition(pod, false)] } })
      return
    }
    if (deletionTimestamp !== undefined) return void this.stored.pods.delete(name)
    const restarts = pod.status?.containerStatuses?.[0]?.restartCount ?? 0
    const etcd = this.etcds.of(name)
    const isUp = etcd.processes.get(name)?.isUp === true
    const isBusy = (this.#startsAt.get(name) ?? 0) > this.etcd.now
    if (isBusy) return
    if (!this.trust.mount(pod)) return
    if (!isUp) this.trust.started(name)
    const started = isUp || this.etcds.start(startOf(pod, etcd.processes.has(name)), sourcesOf(pod))
    const its = this.etcds.of(name)
    const isVoter = its.voters.some((one) => one.name === name)
    const container = {
      name: 'etcd',
      image: imageOf(pod),
      imageID: '',
      ready: started,
      restartCount: started ? restarts : restarts + 1,
      state: started ? {} : { waiting: { reason: 'CrashLoopBackOff' } },
    }
    const status: NonNullable<PodObject['status']> = {
      phase: 'Running',
      podIP: name,
      conditions: [this.#condition(pod, started && isVoter && its.hasQuorum)],
      containerStatuses: [container],
    }
    this.#store({ ...pod, status })
  }

  #condition(pod: PodObject, isReady: boolean) {
    const status = isReady ? 'True' : 'False'
    const before = pod.status?.conditions?.[0]
    return before?.status === status ? before : { type: 'Ready', status, lastTransitionTime: this.now.toISOString() }
  }

  peerURL = (name: string): string => peerUrlOf(this.object, name)
}

const copyOf = ({ status, conditions, pods, claims, secrets }: Stored): Stored => ({
  status: { ...status },
  conditions,
  pods: new Map(pods),
  claims: new Map(claims),
  secrets: new Map(secrets),
})
