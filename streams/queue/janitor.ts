import { setImmediate as endOfTurn } from 'node:timers/promises'
import { ConnectionClosedError, findConsumer, type StoredMessage } from '#nats'
import { pause } from '#primitives'
import { tokenFrom } from './codec.ts'
import { type Core, operate } from './core.ts'
import { declareConsumers } from './declare.ts'
import { Overdue } from './overdue.ts'
import type { Lane } from './record.ts'
import { deadTokens, type Suspects } from './tokens.ts'
import { transitions } from './transitions.ts'

/** The shortest time between looks. With jitter, looks are 30 to 60 s apart. */
const PASS_MS = 30_000
/** A removal that is under way has ended after this time. */
const RECHECK_MS = 3000

interface Chore {
  /** Left out: it concerns all Reconcilers. */
  readonly reconciler?: string
  /** Whether a look has found suspects. The next look must follow soon. */
  readonly isWaiting: boolean
  /** Looks once, and returns the number of repaired keys. */
  look(): Promise<number>
}

interface Served {
  core: Core
  tokens: StuckTokens
  workers: number
}

/**
 * Looks after all Reconcilers that this process serves: for each of them at once, after each reconnect, and every 30 to
 * 60 s. The records of all of them are read together, because the server looks at each record of the stream for each
 * read.
 */
export class Janitor {
  readonly #core: Core
  readonly #overdue: Overdue
  readonly #served = new Map<string, Served>()
  /** When each chore is due, in milliseconds of this process's monotonic clock. */
  readonly #due = new Map<Chore, number>()
  #stopping: AbortController | undefined
  #wake = new AbortController()

  constructor(core: Core) {
    this.#core = core
    this.#overdue = new Overdue(core, { coreOf: (reconciler) => this.#served.get(reconciler)?.core })
  }

  /** Looks after a Reconciler until the returned function is called. */
  enter(core: Core, reconciler: string): () => void {
    const served = this.#served.get(reconciler) ?? { core, tokens: new StuckTokens(core, reconciler), workers: 0 }
    served.workers++
    this.#served.set(reconciler, served)
    for (const chore of [served.tokens, this.#overdue]) this.#due.set(chore, 0)
    this.#start()
    return () => this.#leave(served)
  }

  #leave(served: Served): void {
    if (--served.workers > 0) return
    this.#served.delete(served.tokens.reconciler)
    this.#due.delete(served.tokens)
    if (this.#served.size > 0) return
    this.#stopping?.abort()
    this.#stopping = undefined
  }

  #start(): void {
    if (this.#stopping) return this.#wake.abort()
    const { signal } = (this.#stopping = new AbortController())
    void this.#keepLooking(signal)
    void this.#lookOnReconnect(signal)
  }

  async #keepLooking(signal: AbortSignal): Promise<void> {
    // Reconcilers that enter in one turn are looked after together.
    await endOfTurn()
    while (!signal.aborted) {
      this.#wake = new AbortController()
      for (const [chore, due] of this.#due) {
        if (signal.aborted || this.#core.js.nc.isClosed()) return
        if (due <= performance.now()) await this.#look(chore)
      }
      const next = Math.min(...this.#due.values()) - performance.now()
      if (next > 0) await pause(next, AbortSignal.any([this.#wake.signal, signal]))
    }
  }

  async #look(chore: Chore): Promise<void> {
    const { random, log, js } = this.#core
    // A Reconciler that is entered, or a reconnect, during the look makes it due again.
    this.#due.set(chore, Number.POSITIVE_INFINITY)
    let pauseMs = PASS_MS * (1 + random())
    try {
      const mended = await chore.look()
      if (mended > 0 || chore.isWaiting) pauseMs = RECHECK_MS
    } catch (error) {
      const isOver = this.#stopping === undefined || js.nc.isClosed()
      if (isOver || error instanceof ConnectionClosedError) return
      log.warn({ err: error, reconciler: chore.reconciler }, 'janitor could not look: will try again')
      pauseMs = RECHECK_MS
    }
    if (this.#due.get(chore) === Number.POSITIVE_INFINITY) this.#due.set(chore, performance.now() + pauseMs)
  }

  async #lookOnReconnect(signal: AbortSignal): Promise<void> {
    for await (const { type } of this.#core.js.nc.status()) {
      if (signal.aborted) return
      if (type !== 'reconnect') continue
      for (const chore of this.#due.keys()) this.#due.set(chore, 0)
      this.#wake.abort()
    }
  }
}

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
