import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { Deployment, Pod } from '#sdk'
import type { Operator } from './functions.ts'

export const NAMESPACE = 'fleet'
const AT_ONCE = 16
const SIZES = 5
const LOOK_MS = 1000
const LONGEST_MS = 120_000
const FAR = '2099-01-01T00:00:00Z'
const LONG_AGO = '2020-01-01T00:00:00Z'

interface Owned extends KubeObject {
  spec?: { replicas?: number }
}

interface Target {
  operator: Operator
  name: string
  size: number
}

export interface Edit {
  operator: Operator
  /** Milliseconds from the answer to the edit until it is followed; undefined: nothing has followed it. */
  ms: number | undefined
}

/**
 * The objects of the fleet, and edits of them in turn: of a Memcached its size, which its Deployment follows, and of an At
 * its time, which a pod follows. Each At is edited once; when all have been, only Memcacheds are.
 */
export class FleetEdits {
  readonly #kube: KubeClient
  readonly #memcacheds: Target[] = []
  readonly #ats: Target[] = []
  /** By the name of the object. */
  readonly #waiting = new Map<string, { size: number; followed: () => void }>()
  #next = 0

  constructor(kube: KubeClient) {
    this.#kube = kube
  }

  /** One object of each operator after the other, as edits take them. */
  async create(operators: readonly Operator[], each: number): Promise<void> {
    const targets = Array.from({ length: each }, (_, index) =>
      operators.map((operator) => ({ operator, name: `${operator.kind.toLowerCase()}-${index}`, size: 1 })),
    ).flat()
    await forEachAtMost(AT_ONCE, targets, async ({ operator: { is, kind, ref }, name }) => {
      const spec = is === 'At' ? { schedule: FAR, command: 'echo YAY' } : { size: 1, image: 'memcached:1.6' }
      const apiVersion = `${ref.group}/${ref.version}`
      await this.#kube.create(resourcePath(ref, NAMESPACE), { apiVersion, kind, metadata: { name }, spec })
    })
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
  watch(signal: AbortSignal): void {
    void this.#follow(Deployment, signal, ({ spec }) => spec?.replicas)
    void this.#follow(Pod, signal, (pod) => {
      const path = `${resourcePath(Pod, NAMESPACE, pod.metadata.name)}/status`
      void this.#kube.patch(path, { status: { phase: 'Succeeded' } }, 'merge').catch(() => undefined)
      return 0
    })
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
    const at = this.#next % 2 === 0 ? this.#ats.shift() : undefined
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

  async #edit(target: Target, longest: number): Promise<Edit> {
    const { operator, name } = target
    const isAt = operator.is === 'At'
    target.size = isAt ? 0 : (target.size % SIZES) + 1
    const { promise, resolve } = Promise.withResolvers<number>()
    this.#waiting.set(name, { size: target.size, followed: () => resolve(performance.now()) })
    const spec = isAt ? { schedule: LONG_AGO } : { size: target.size }
    await this.#kube.patch(resourcePath(operator.ref, NAMESPACE, name), { spec }, 'merge')
    const acknowledged = performance.now()
    const late = new AbortController()
    const tooLate = sleep(Math.max(0, longest - Date.now()), undefined, { signal: late.signal }).catch(() => undefined)
    const followed = await Promise.race([promise, tooLate])
    late.abort()
    this.#waiting.delete(name)
    return { operator, ms: followed === undefined ? undefined : Math.max(0, followed - acknowledged) }
  }

  /** The server ends watches that it cannot serve in time. */
  async #follow(
    ref: typeof Pod | typeof Deployment,
    signal: AbortSignal,
    sizeOf: (object: Owned) => number | undefined,
  ) {
    const seen = (object: Owned) => {
      const owner = object.metadata.ownerReferences?.[0]?.name ?? ''
      const waiting = this.#waiting.get(owner)
      if (sizeOf(object) === waiting?.size) waiting?.followed()
    }
    while (!signal.aborted) {
      try {
        for await (const { type, object } of this.#kube.watch<Owned>(resourcePath(ref, NAMESPACE), { signal }))
          if (type === 'ADDED' || (type === 'MODIFIED' && ref === Deployment)) seen(object)
      } catch {
        await sleep(LOOK_MS)
      }
    }
  }

  async #count(ref: Operator['ref'], isCounted: (object: KubeObject) => boolean = () => true): Promise<number> {
    let count = 0
    for await (const { items } of this.#kube.list(resourcePath(ref, NAMESPACE))) count += items.filter(isCounted).length
    return count
  }
}

const isPending = ({ status }: KubeObject): boolean => (status as { phase?: string } | undefined)?.phase === 'PENDING'
