import type { decide } from '../../../../functions/etcd/operator/decide.ts'
import type { EtcdEffect } from '../../../../functions/etcd/operator/seen.ts'
import { Crash } from './stored.ts'
import type { EtcdWorld } from './world.ts'

type Performed = Parameters<typeof decide>[0]['performed']

/** A change of etcd whose process has stalled arrives so much later, in seconds. */
const LATE_S = 7

/** Changes of etcd that are asked for, and what must hold of each. */
export class Effects {
  readonly #world: EtcdWorld
  readonly done: EtcdEffect[] = []
  /** Those that have been sent, and have not arrived. */
  readonly #late: { effect: EtcdEffect; at: number }[] = []
  readonly #used = new Set<string>()
  holdNext = false

  constructor(world: EtcdWorld) {
    this.#world = world
  }

  perform(effect: EtcdEffect): Performed {
    this.#world.happens({ at: 'effect', effect })
    if (this.holdNext) {
      this.holdNext = false
      this.#late.push({ effect, at: this.#world.etcd.now + LATE_S })
      throw new Crash()
    }
    return this.#arrive(effect)
  }

  /** A second. */
  pass(): void {
    for (const { effect } of this.#late.filter(({ at }) => at === this.#world.etcd.now)) this.#arrive(effect)
  }

  #arrive(effect: EtcdEffect): Performed {
    const { broken, etcds } = this.#world
    this.done.push(effect)
    let failure: string | undefined
    const etcd = etcds.of(effect.via)
    const size = etcd.voters.length
    const before = etcd.hasQuorum
    const isOther = this.#world.isHit
    if (effect.kind === 'remove' && effect.id === etcd.leader?.id && !isOther) broken.push('the leader was removed')
    if (effect.kind === 'addLearner' && this.#used.has(effect.peerURL) && !this.#isMember(effect.peerURL))
      broken.push(`${effect.peerURL} is used a second time`)
    try {
      this.#world.act(JSON.stringify(effect), () => etcd.perform(effect))
      if (effect.kind === 'addLearner') this.#used.add(effect.peerURL)
      // A change of the members may not lose the quorum of any size. A learner that dies at that very moment does.
      const isHit = effect.kind === 'promote' && this.#world.isHit
      if (before && !etcd.hasQuorum && !isHit) broken.push(`${effect.kind} at ${size} members has taken the quorum`)
    } catch (error) {
      failure = (error as Error).message
    }
    if (etcd.voters.length === 0) broken.push('no member is left')
    return { effect, ...(failure !== undefined && { error: failure }) }
  }

  #isMember = (url: string): boolean => this.#world.etcd.members.some(({ peerURL }) => peerURL === url)
}
