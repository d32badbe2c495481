import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { isAlreadyExists, type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { Deployment } from '#sdk'
import { playNode, type SeenPod } from '../../support/node-player.ts'
import { until } from '../../support/wait.ts'
import type { Operator } from './functions.ts'

export const NAMESPACE = 'fleet'
const AT_ONCE = 16
const SIZES = 5
const LOOK_MS = 1000
const LONGEST_MS = 600_000
const FAR = '2099-01-01T00:00:00Z'
const LONG_AGO = '2020-01-01T00:00:00Z'
/** New Ats are due after one second to so many. */
const SOON_SECONDS = 20

interface Owned extends KubeObject {
  spec?: { replicas?: number }
}

interface Target {
  operator: Operator
  name: string
  size: number
  isNew?: true
}

export interface Edit {
  operator: Operator
  name: string
  /** Milliseconds from the answer to the edit, or from the time of a new At, until it is followed; undefined: never. */
  ms: number | undefined
}

/**
 * The objects of the fleet, and edits of them in turn: of a Memcached its size, which its Deployment follows, and of an At
 * its time, which a pod follows. Each At is edited once; when all have been, only Memcacheds are, or Ats are made.
 */
export class FleetEdits {
  /** By the name of an edited At, the earliest time of its pod: a whole second, in milliseconds. */
  readonly due = new Map<string, number>()
  /** All that were ever there, by UID. */
  pods: ReadonlyMap<string, SeenPod> = new Map()
  readonly #kube: KubeClient
  readonly #makesAts: boolean
  /** Of these, Ats are made. */
  #ofAts: readonly Operator[] = []
  #made = 0
  readonly #memcacheds: Target[] = []
  readonly #ats: Target[] = []
  /** By the name of the object. */
  readonly #waiting = new Map<string, { size: number; followed: () => void }>()
  #next = 0

  constructor(kube: KubeClient, { makesAts = false } = {}) {
    this.#kube = kube
    this.#makesAts = makesAts
  }

  /** Edits that nothing has followed so far, although their time has come. */
  get open(): number {
    return [...this.#waiting.keys()].filter((name) => (this.due.get(name) ?? 0) <= Date.now()).length
  }

  /** One object of each operator after the other, as edits take them. */
  async create(operators: readonly Operator[], each: number): Promise<void> {
    const targets = Array.from({ length: each }, (_, index) =>
      operators.map((operator) => ({ operator, name: `${operator.kind.toLowerCase()}-${index}`, size: 1 })),
    ).flat()
    await forEachAtMost(AT_ONCE, targets, (target) => this.#make(target, FAR))
    this.#made = each
    this.#ofAts = operators.filter(({ is }) => is === 'At')
    for (const target of targets) (target.operator.is === 'At' ? this.#ats : this.#memcacheds).push(target)
  }

  /** Resolves when operators have worked on each object once. */
  async settled(operators: readonly Operator[], each: number): Promise<void> {
    const end = Date.now() + LONGEST_MS
    for (;;) {
      let missing = -(await this.#count(Deployment))
      for (const { is, ref } of operators) missing += each - (is === 'At' ? await this.#count(ref, isPending) : 0)
      if (missing <= 0) return
      if (Date.now() > end) throw new Error(`${missing} objects are not settled`)
      await sleep(LOOK_MS)
    }
  }

  /** Follows pods and Deployments until aborted. Plays the node: each pod succeeds at once. */
  async watch(signal: AbortSignal): Promise<void> {
    void this.#followDeployments(signal)
    this.pods = await playNode(this.#kube, NAMESPACE, signal, ({ owner }) => this.#seen(owner, 0))
  }

  /** So many edits a second. Resolves when all are followed, or after `longestMs` more. */
  async during(seconds: number, perSecond: number, longestMs: number): Promise<Edit[]> {
    const made: Promise<Edit>[] = []
    const began = Date.now()
    const longest = began + seconds * 1000 + longestMs
    for (let index = 0; index < seconds * perSecond; index++) {
      await sleep(Math.max(0, began + (index * 1000) / perSecond - Date.now()))
      const target = this.#target()
      if (target !== undefined) made.push(this.#edit(target, longest))
    }
    return Promise.all(made)
  }

  /** Edits one Memcached of each operator that has some, at once. */
  oneOfEach(longestMs: number): Promise<Edit[]> {
    const byOperator = new Map(this.#memcacheds.map((target) => [target.operator.number, target]))
    return Promise.all(Array.from(byOperator.values(), (target) => this.#edit(target, Date.now() + longestMs)))
  }

  /** An object whose last edit is followed. */
  #target(): Target | undefined {
    const at = this.#next % 2 === 0 ? (this.#ats.shift() ?? this.#newAt()) : undefined
    if (at !== undefined) {
      this.#next++
      return at
    }
    for (let tries = 0; tries < this.#memcacheds.length; tries++) {
      const target = this.#memcacheds[this.#next++ % this.#memcacheds.length]
      if (target !== undefined && !this.#waiting.has(target.name)) return target
    }
    return undefined
  }

  #newAt(): Target | undefined {
    const operator = this.#makesAts ? this.#ofAts[this.#made++ % this.#ofAts.length] : undefined
    return operator && { operator, name: `${operator.kind.toLowerCase()}-${this.#made}`, size: 0, isNew: true }
  }

  async #make({ operator: { is, kind, ref }, name }: Target, schedule: string): Promise<void> {
    const spec = is === 'At' ? { schedule, command: 'echo YAY' } : { size: 1, image: 'memcached:1.6' }
    const body = { apiVersion: `${ref.group}/${ref.version}`, kind, metadata: { name }, spec }
    await this.#kube.create(resourcePath(ref, NAMESPACE), body).catch((error: unknown) => {
      if (!isAlreadyExists(error)) throw error
    })
  }

  async #edit(target: Target, longest: number): Promise<Edit> {
    const { operator, name } = target
    const isAt = operator.is === 'At'
    target.size = isAt ? 0 : (target.size % SIZES) + 1
    const { promise, resolve } = Promise.withResolvers<number>()
    this.#waiting.set(name, { size: target.size, followed: () => resolve(performance.now()) })
    const now = 1000 * Math.floor(Date.now() / 1000)
    const due = target.isNew ? now + 1000 * (1 + (this.due.size % SOON_SECONDS)) : now
    if (isAt) this.due.set(name, due)
    const spec = isAt ? { schedule: LONG_AGO } : { size: target.size }
    await until(async () => {
      if (target.isNew) await this.#make(target, new Date(due).toISOString())
      else await this.#kube.patch(resourcePath(operator.ref, NAMESPACE, name), { spec }, 'merge')
    })
    const acknowledged = performance.now() + Math.max(0, due - Date.now())
    const late = new AbortController()
    const tooLate = sleep(Math.max(0, longest - Date.now()), undefined, { signal: late.signal }).catch(() => undefined)
    const followed = await Promise.race([promise, tooLate])
    late.abort()
    this.#waiting.delete(name)
    return { operator, name, ms: followed === undefined ? undefined : Math.max(0, followed - acknowledged) }
  }

  /** The server ends watches that it cannot serve in time. */
  async #followDeployments(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        for await (const { type, object } of this.#kube.watch<Owned>(resourcePath(Deployment, NAMESPACE), { signal }))
          if (type === 'ADDED' || type === 'MODIFIED')
            this.#seen(object.metadata.ownerReferences?.[0]?.name, object.spec?.replicas)
      } catch {
        await sleep(LOOK_MS)
      }
    }
  }

  #seen(owner: string | undefined, size: number | undefined): void {
    const waiting = this.#waiting.get(owner ?? '')
    if (size === waiting?.size) waiting?.followed()
  }

  async #count(ref: Operator['ref'], isCounted: (object: KubeObject) => boolean = () => true): Promise<number> {
    let count = 0
    for await (const { items } of this.#kube.list(resourcePath(ref, NAMESPACE))) count += items.filter(isCounted).length
    return count
  }
}

const isPending = ({ status }: KubeObject): boolean => (status as { phase?: string } | undefined)?.phase === 'PENDING'
