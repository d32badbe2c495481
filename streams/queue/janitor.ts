import { setImmediate as endOfTurn } from 'node:timers/promises'
import { ConnectionClosedError, findConsumer, type StoredMessage } from '#nats'
import { forEachAtMost, Wake } from '#primitives'
import { measured, publishOnce, type QueueDeps } from './core.ts'
import { declareConsumers } from './declare.ts'
import type { KeyRecord, Lane } from './record.ts'
import { deadTokens, type Suspects, timerAgain, tokenAgain } from './tokens.ts'
import { isAsleep, recordFrom, tokenFrom } from './wire.ts'

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
  tokens: StuckTokens
  workers: number
}

/**
 * Looks after all Reconcilers that this process serves: for each of them at once, after each reconnect, and every 30 to
 * 60 s. The records of all of them are read together, because the server looks at each record of the stream for each
 * read.
 */
export class Janitor {
  readonly #deps: QueueDeps
  readonly #overdue: Overdue
  readonly #served = new Map<string, Served>()
  /** When each chore is due, in milliseconds of this process's monotonic clock. */
  readonly #due = new Map<Chore, number>()
  readonly #wake = new Wake()
  #stopping: AbortController | undefined

  constructor(deps: QueueDeps) {
    this.#deps = deps
    this.#overdue = new Overdue(deps, { serves: (reconciler) => this.#served.has(reconciler) })
    deps.js.onReconnect(() => this.#lookAtOnce())
  }

  /** Looks after a Reconciler until the returned function is called. */
  enter(reconciler: string): () => void {
    const served = this.#served.get(reconciler) ?? { tokens: new StuckTokens(this.#deps, reconciler), workers: 0 }
    served.workers++
    this.#served.set(reconciler, served)
    for (const chore of [served.tokens, this.#overdue]) this.#due.set(chore, 0)
    this.#wake.poke()
    if (this.#stopping === undefined) void this.#keepLooking((this.#stopping = new AbortController()).signal)
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

  async #keepLooking(signal: AbortSignal): Promise<void> {
    // Reconcilers that enter in one turn are looked after together.
    await endOfTurn()
    while (!signal.aborted) {
      for (const [chore, due] of this.#due) {
        if (signal.aborted || this.#deps.js.nc.isClosed()) return
        if (due <= performance.now()) await this.#look(chore)
      }
      const next = Math.min(...this.#due.values()) - performance.now()
      if (next > 0) await this.#wake.next(next, signal)
    }
  }

  async #look(chore: Chore): Promise<void> {
    const { random, log, js } = this.#deps
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

  #lookAtOnce(): void {
    for (const chore of this.#due.keys()) this.#due.set(chore, 0)
    this.#wake.poke()
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
  readonly #deps: QueueDeps
  #suspects: Suspects = new Map()

  constructor(deps: QueueDeps, reconciler: string) {
    this.#deps = deps
    this.reconciler = reconciler
  }

  /** Whether a look has found suspects. The next look must follow soon. */
  get isWaiting(): boolean {
    return this.#suspects.size > 0
  }

  /** Looks once, and returns the number of replaced tokens. A token is replaced if two looks in a row have found it. */
  async look(): Promise<number> {
    const { observer, log } = this.#deps
    const { reconciler } = this
    const found = [...(await this.#belowFloor('high')), ...(await this.#belowFloor('low'))]
    let revived = 0
    for (const token of deadTokens(this.#suspects, found)) {
      const { key, lane } = token
      const again = tokenAgain(tokenFrom(token, lane))
      if ((await publishOnce(this.#deps, { reconciler, key }, again)) === 'conflict') continue
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
    const { js, names } = this.#deps
    const floor = await this.#floor(lane)
    const found: StuckToken[] = []
    for (let from = 1; from <= floor.stream_seq; ) {
      const message = await js.nextFrom(names.stream, from, names.tokensOf(this.reconciler, lane), 'leader')
      if (message === undefined || message.sequence > floor.stream_seq) break
      const place = names.placeOf(message.subject)
      if (place?.kind === 'token') found.push({ ...message, lane, key: place.key })
      from = message.sequence + 1
    }
    return found
  }

  async #floor(lane: Lane): Promise<{ stream_seq: number }> {
    const { js, names, log } = this.#deps
    const { reconciler } = this
    const found = await findConsumer(js, names.stream, names.consumer(reconciler, lane))
    if (found !== undefined) return found.ack_floor
    await declareConsumers(this.#deps, reconciler)
    log.warn({ reconciler, lane }, 'deleted consumer created again')
    return { stream_seq: 0 }
  }
}

const AT_ONCE = 10_000
/** The number of sleeping timers that are handed to the server at the same time. */
const IN_FLIGHT = 64

interface FoundRecord {
  reconciler: string
  key: string
  record: KeyRecord
}

interface OverdueOptions {
  /** Whether a Reconciler is looked after. */
  serves: (reconciler: string) => boolean
  /** The number of records that one look reads. With more records, the next look continues behind them. */
  atOnce?: number
}

/**
 * Finds timers and watchdogs of all Reconcilers that the server will not fire any more. The server tries each schedule
 * only once: if it could not store the token because the stream was full, the schedule stays until the server restarts
 * (nats-server 2.15). A probe shows that the server has tried them: a schedule that was stored after them, is due after
 * them, and has fired.
 *
 * Timers that an earlier version has put to sleep are handed to the server at once, whichever Reconciler they belong to,
 * because only processes of that version wake them. Until a whole scan of the records has found none, looks follow soon.
 */
export class Overdue {
  readonly #deps: QueueDeps
  readonly #serves: OverdueOptions['serves']
  readonly #atOnce: number
  /** Where the next look begins, and where this scan of the records ends. */
  #first = 1
  #scanEndsAt = 0
  #scanFoundAsleep = false
  #maySleep = true
  /** The records that an earlier look found, and the probe that was armed after that look. */
  #suspects: { found: FoundRecord[]; probe: Probe } | undefined

  constructor(deps: QueueDeps, { serves, atOnce = AT_ONCE }: OverdueOptions) {
    this.#deps = deps
    this.#serves = serves
    this.#atOnce = atOnce
  }

  /** Whether the next look must follow soon: timers may sleep, or suspects wait for the probe. */
  get isWaiting(): boolean {
    return this.#maySleep || this.#suspects !== undefined
  }

  /** Looks once, and returns the number of schedules that were armed again. */
  async look(): Promise<number> {
    await this.#deps.clock.measure()
    const rearmed = await this.#rearmSuspects()
    if (this.#suspects) return rearmed
    const { overdue, asleep } = await this.#find()
    const woken = await this.#wake(asleep)
    const [first] = overdue
    if (first) this.#suspects = { found: overdue, probe: await Probe.arm(this.#deps, first.reconciler) }
    return rearmed + woken
  }

  async #rearmSuspects(): Promise<number> {
    if (this.#suspects === undefined) return 0
    const { found, probe } = this.#suspects
    const state = await probe.look()
    if (state === 'waiting') return 0
    this.#suspects = undefined
    let rearmed = 0
    if (state === 'fired') for (const one of found) if (await this.#rearm(one)) rearmed++
    return rearmed
  }

  async #rearm(one: FoundRecord): Promise<boolean> {
    if (!(await this.#arm(one))) return false
    const { reconciler, key, record } = one
    this.#deps.observer.onRevive?.(reconciler)
    this.#deps.log.warn({ reconciler, key, was: record.state }, 'timer that would never have fired set again')
    return true
  }

  async #wake(asleep: readonly FoundRecord[]): Promise<number> {
    let woken = 0
    await forEachAtMost(IN_FLIGHT, asleep, async (one) => {
      if (await this.#arm(one)) woken++
    })
    if (woken > 0) this.#deps.log.info({ timers: woken }, 'sleeping timers of an earlier version handed to NATS')
    return woken
  }

  async #arm({ record, ...of }: FoundRecord): Promise<boolean> {
    return (await publishOnce(this.#deps, of, timerAgain(record, this.#deps.nonce()))) === 'stored'
  }

  /** Reads the next part of the records. */
  async #find(): Promise<{ overdue: FoundRecord[]; asleep: FoundRecord[] }> {
    const { js, names } = this.#deps
    const now = await measured(this.#deps)
    const overdue: FoundRecord[] = []
    const asleep: FoundRecord[] = []
    if (this.#first === 1) this.#scanEndsAt = await js.lastSequence(names.stream)
    let read = 0
    for await (const message of js.scan(names.stream, names.all('key', undefined), { first: this.#first })) {
      if (read === this.#atOnce || message.sequence > this.#scanEndsAt) break
      read++
      this.#first = message.sequence + 1
      const place = names.placeOf(message.subject)
      const record = recordFrom(message, names)
      if (place === undefined || record === undefined) continue
      const { reconciler, key } = place
      if (isAsleep(record)) asleep.push({ reconciler, key, record })
      else if (record.at < now && this.#serves(reconciler)) overdue.push({ reconciler, key, record })
    }
    this.#scanFoundAsleep ||= asleep.length > 0
    if (read < this.#atOnce) this.#beginScan()
    return { overdue, asleep }
  }

  #beginScan(): void {
    this.#first = 1
    this.#maySleep = this.#scanFoundAsleep
    this.#scanFoundAsleep = false
  }
}

/** After this time, the server may have given up the probe itself. */
const PATIENCE_MS = 30_000
/** Expiry of the probe's messages: twice PATIENCE_MS, so that the firing can be read before it expires. */
const TTL = '60s'

/**
 * A schedule that is due at once. nats-server fires schedules in rounds; each round fires everything that is due, in
 * the order in which it was stored. When the probe has fired, the server has tried all schedules that were stored
 * before it and due before it, however late the server is.
 */
export class Probe {
  readonly #deps: QueueDeps
  readonly #fired: string
  readonly #armedAt = performance.now()

  private constructor(deps: QueueDeps, fired: string) {
    this.#deps = deps
    this.#fired = fired
  }

  static async arm(deps: QueueDeps, reconciler: string): Promise<Probe> {
    const { schedule, fired } = deps.names.probe(reconciler, deps.nonce())
    const at = new Date(Math.ceil(await measured(deps)))
    await deps.js.publish(schedule, '', {
      'Nats-Schedule': `@at ${at.toISOString()}`,
      'Nats-Schedule-Target': fired,
      'Nats-Schedule-TTL': TTL,
      'Nats-TTL': TTL,
    })
    return new Probe(deps, fired)
  }

  async look(): Promise<'waiting' | 'fired' | 'lost'> {
    const { js, names } = this.#deps
    if ((await js.lastOf(names.stream, this.#fired)) !== undefined) return 'fired'
    return performance.now() - this.#armedAt > PATIENCE_MS ? 'lost' : 'waiting'
  }
}
