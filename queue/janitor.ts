import { ConnectionClosedError, findConsumer, type StoredMessage } from '#jetstream'
import { pause } from '#primitives'
import { tokenFrom } from './codec.ts'
import { type Core, operate } from './core.ts'
import { declareConsumers } from './declare.ts'
import { Overdue } from './overdue.ts'
import type { Lane } from './record.ts'
import { deadTokens, type Suspects } from './tokens.ts'
import { transitions } from './transitions.ts'

interface StuckToken extends StoredMessage {
  lane: Lane
  key: string
}

/** The shortest time between passes. With jitter, passes are 30 to 60 s apart. */
const PASS_MS = 30_000
/** A removal that is under way has ended after this time. */
const RECHECK_MS = 3000

/**
 * Finds tokens that no consumer will deliver, timers that the server has given up, and deleted consumers. A single
 * server that is killed can bring back messages whose acknowledgement it had confirmed, and every later ENQUEUE would
 * coalesce into such a token.
 */
export class Janitor {
  readonly #core: Core
  readonly #reconciler: string
  readonly #overdue: Overdue
  readonly #stopping = new AbortController()
  #suspects: Suspects = new Map()
  #wake = new AbortController()

  constructor(core: Core, reconciler: string, atOnce?: number) {
    this.#core = core
    this.#reconciler = reconciler
    this.#overdue = new Overdue(core, reconciler, atOnce)
  }

  /** Looks at once, after each reconnect, and every 30 to 60 s. */
  start(): void {
    void this.#keepLooking()
    void this.#wakeOnReconnect()
  }

  stop(): void {
    this.#stopping.abort()
  }

  /**
   * Makes one pass, and returns the number of repaired keys. A token is repaired only after two passes in a row have
   * found it.
   */
  async pass(): Promise<number> {
    return (await this.#revive()) + (await this.#overdue.look())
  }

  async #revive(): Promise<number> {
    const { observer, log } = this.#core
    const found = [...(await this.#belowFloor('high')), ...(await this.#belowFloor('low'))]
    let revived = 0
    for (const token of deadTokens(this.#suspects, found)) {
      const { key, lane } = token
      const result = await operate(this.#core, transitions.revive, tokenFrom(token, lane), {
        reconciler: this.#reconciler,
        key,
      })
      if (result !== 'revived') continue
      revived++
      observer.onRevive?.(this.#reconciler)
      log.warn({ reconciler: this.#reconciler, key }, 'token that would never have been delivered replaced')
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
      const message = await js.firstFrom(names.stream, from, names.tokensOf(this.#reconciler, lane))
      if (message === undefined || message.sequence > floor.stream_seq) break
      const place = names.placeOf(message.subject)
      if (place?.kind === 'token') found.push({ ...message, lane, key: place.key })
      from = message.sequence + 1
    }
    return found
  }

  async #floor(lane: Lane): Promise<{ stream_seq: number }> {
    const { js, names, ackWaitMs, log } = this.#core
    const found = await findConsumer(js, names.stream, names.consumer(this.#reconciler, lane))
    if (found !== undefined) return found.ack_floor
    await declareConsumers(js, names, this.#reconciler, ackWaitMs)
    log.warn({ reconciler: this.#reconciler, lane }, 'deleted consumer created again')
    return { stream_seq: 0 }
  }

  async #keepLooking(): Promise<void> {
    const { log, random } = this.#core
    while (!this.#stopping.signal.aborted) {
      let pauseMs = PASS_MS * (1 + random())
      try {
        await this.#core.clock.measure()
        const mended = await this.pass()
        if (mended > 0 || this.#suspects.size > 0 || this.#overdue.isWaiting) pauseMs = RECHECK_MS
      } catch (error) {
        if (error instanceof ConnectionClosedError || this.#core.js.nc.isClosed()) return
        log.warn({ err: error, reconciler: this.#reconciler }, 'janitor could not look: will try again')
        pauseMs = RECHECK_MS
      }
      this.#wake = new AbortController()
      await pause(pauseMs, AbortSignal.any([this.#wake.signal, this.#stopping.signal]))
    }
  }

  async #wakeOnReconnect(): Promise<void> {
    for await (const { type } of this.#core.js.nc.status()) {
      if (this.#stopping.signal.aborted) return
      if (type === 'reconnect') this.#wake.abort()
    }
  }
}
