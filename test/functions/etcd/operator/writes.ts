import { isDeepStrictEqual } from 'node:util'
import type { Decision } from '../../../../functions/etcd/operator/decide.ts'
import type { ClaimObject, PodObject, SecretObject } from '../../../../functions/etcd/operator/parts.ts'
import { imageOf } from './kubelet.ts'
import { Crash, copyOf, type Stored } from './stored.ts'
import type { EtcdWorld } from './world.ts'

/** A request of a process that has stalled arrives so much later, in seconds. */
const LATE_S = 20

/** What a decision asks of the API server, write by write. */
export class Writes {
  readonly #world: EtcdWorld
  /** The store as it was before the last write. */
  before: Stored
  /** The next change of a Secret has been sent, and arrives later. */
  holdNextSecret = false
  #count = 0
  #uids = 0

  constructor(world: EtcdWorld) {
    this.#world = world
    this.before = world.stored
  }

  /** False: nothing was to be written. */
  write({ apply, status: wanted, conditions = [] }: Decision, observed: Stored): boolean {
    const { stored } = this.#world
    const count = this.#count
    if (apply !== undefined) this.#apply(apply, observed)
    const status = { ...(wanted ?? stored.status) }
    if (JSON.stringify(status) !== JSON.stringify(stored.status))
      this.#write('status', () => {
        this.#world.recovery.judge(stored.status, status)
        stored.status = status
      })
    const kept = conditions.filter((one) => one.status !== null)
    stored.conditions = Object.fromEntries(kept.map(({ type, ...one }) => [type, one]))
    return this.#count > count
  }

  #write(what: string, change: (stored: Stored) => void): void {
    this.#world.happens({ at: 'write', what })
    this.before = copyOf(this.#world.stored)
    change(this.#world.stored)
    this.#count++
  }

  #apply(apply: NonNullable<Decision['apply']>, observed: Stored): void {
    const { stored } = this.#world
    const pods = apply.filter(({ kind }) => kind === 'Pod') as PodObject[]
    const claims = apply.filter(({ kind }) => kind === 'PersistentVolumeClaim') as ClaimObject[]
    const secrets = apply.filter(({ kind }) => kind === 'Secret') as SecretObject[]
    for (const secret of secrets) this.#applySecret(secret, observed)
    for (const claim of claims)
      if (!stored.claims.has(claim.metadata.name))
        this.#write(`create claim ${claim.metadata.name}`, () => this.#create(stored.claims, claim))
    for (const pod of pods) this.#applyPod(pod, observed)
    const goes = <T extends PodObject | ClaimObject | SecretObject>(there: Map<string, T>, kept: T[]) =>
      [...there.keys()].filter((name) => kept.every(({ metadata }) => metadata.name !== name))
    for (const name of goes(observed.pods, pods))
      if (stored.pods.get(name)?.metadata.deletionTimestamp === undefined)
        this.#write(`delete pod ${name}`, () => this.#world.deletePod(name))
    for (const name of goes(observed.secrets, secrets))
      this.#write(`delete secret ${name}`, () => stored.secrets.delete(name))
    for (const name of goes(observed.claims, claims))
      if (stored.claims.has(name)) this.#write(`delete claim ${name}`, () => this.#world.deleteClaim(name))
  }

  #applyPod(pod: PodObject, observed: Stored): void {
    const { stored, recovery } = this.#world
    const { name } = pod.metadata
    const found = stored.pods.get(name)
    if (found === undefined && observed.pods.has(name)) return
    if (found === undefined)
      this.#write(`create pod ${name}`, () => {
        recovery.judgePod(name)
        this.#create(stored.pods, pod)
      })
    else if (found.metadata.deletionTimestamp === undefined && imageOf(found) !== imageOf(pod))
      this.#write(`image of pod ${name}`, () => this.#world.changeImage(name, pod))
  }

  /** One that is there is never overwritten by who takes it for a new one. */
  #applySecret(secret: SecretObject, observed: Stored): void {
    const { secrets } = this.#world.stored
    const { name } = secret.metadata
    const found = secrets.get(name)
    if (observed.secrets.has(name) !== (found !== undefined)) return
    if (isDeepStrictEqual(found?.data, secret.data)) return
    if (this.holdNextSecret && found !== undefined) {
      this.holdNextSecret = false
      this.#world.later(LATE_S, () => secrets.has(name) && secrets.set(name, secret))
      throw new Crash()
    }
    this.#write(`${found ? 'change' : 'create'} secret ${name}`, () => secrets.set(name, secret))
  }

  #create<T extends PodObject | ClaimObject>(there: Map<string, T>, object: T): void {
    const creationTimestamp = this.#world.now.toISOString()
    const metadata = { ...object.metadata, uid: String(++this.#uids), creationTimestamp }
    there.set(object.metadata.name, { ...object, metadata })
  }
}
