import { findConsumer, type StoredMessage } from '#jetstream'
import { tokenFrom } from './codec.ts'
import { type Core, operate } from './core.ts'
import { declareConsumers } from './declare.ts'
import type { Lane } from './record.ts'
import { deadTokens, type Suspects } from './tokens.ts'
import { transitions } from './transitions.ts'

interface StuckToken extends StoredMessage {
  lane: Lane
  key: string
}

/**
 * Finds tokens of one Reconciler that no consumer will deliver, and deleted consumers. A single server that is killed
 * can bring back messages whose acknowledgement it had confirmed, and every later ENQUEUE would coalesce into such a
 * token.
 */
export class StuckTokens {
  readonly reconciler: string
  readonly #core: Core
  #suspects: Suspects = new Map()

  constructor(core: Core, reconciler: string) {
    this.#core = core
    this.reconciler = reconciler
  }

  /** Whether a look has found suspects. The next look must follow soon. */
  get isWaiting(): boolean {
    return this.#suspects.size > 0
  }

  /** Looks once, and returns the number of replaced tokens. A token is replaced if two looks in a row have found it. */
  async look(): Promise<number> {
    const { observer, log } = this.#core
    const { reconciler } = this
    const found = [...(await this.#belowFloor('high')), ...(await this.#belowFloor('low'))]
    let revived = 0
    for (const token of deadTokens(this.#suspects, found)) {
      const { key, lane } = token
      const result = await operate(this.#core, transitions.revive, tokenFrom(token, lane), { reconciler, key })
      if (result !== 'revived') continue
      revived++
      observer.onRevive?.(reconciler)
      log.warn({ reconciler, key }, 'token that would never have been delivered replaced')
    }
    this.#suspects = new Map(found.map(({ subject, sequence }) => [subject, sequence]))
    return revived
  }

  /**
   * Returns tokens that the consumer counts as acknowledged although the stream still holds them. A healthy queue has
   * none, so this costs one read.
   */
  async #belowFloor(lane: Lane): Promise<StuckToken[]> {
    const { js, names } = this.#core
    const floor = await this.#floor(lane)
    const found: StuckToken[] = []
    for (let from = 1; from <= floor.stream_seq; ) {
      const message = await js.firstFrom(names.stream, from, names.tokensOf(this.reconciler, lane))
      if (message === undefined || message.sequence > floor.stream_seq) break
      const place = names.placeOf(message.subject)
      if (place?.kind === 'token') found.push({ ...message, lane, key: place.key })
      from = message.sequence + 1
    }
    return found
  }

  async #floor(lane: Lane): Promise<{ stream_seq: number }> {
    const { js, names, ackWaitMs, log } = this.#core
    const { reconciler } = this
    const found = await findConsumer(js, names.stream, names.consumer(reconciler, lane))
    if (found !== undefined) return found.ack_floor
    await declareConsumers(js, names, reconciler, ackWaitMs)
    log.warn({ reconciler, lane }, 'deleted consumer created again')
    return { stream_seq: 0 }
  }
}
