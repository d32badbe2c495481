import { setTimeout as sleep } from 'node:timers/promises'
import { nuid } from 'nats'
import { ConnectionClosedError, type Delivery, type StoredMessage } from '#jetstream'
import { backoffMs, DEFAULT_BACKOFF } from './backoff.ts'
import { dueOf, isFired, isWatchdog, tokenFrom } from './codec.ts'
import { type Core, measured, operate } from './core.ts'
import { endingOf, timely } from './due.ts'
import { Janitor } from './janitor.ts'
import { LaneInHand } from './lane.ts'
import type { HeldKey } from './lease.ts'
import { LeasedKey } from './leased-key.ts'
import { messageOf } from './message-of.ts'
import type { Lane } from './record.ts'
import { allowances, type Sharer } from './slots.ts'
import type { TakeInput } from './take.ts'
import { transitions } from './transitions.ts'
import type { Finish, HandBack, ServeOptions, Worker } from './types.ts'

/** What a key is to be taken by. */
interface Claim {
  input: Pick<TakeInput, 'token' | 'direct' | 'seen'>
  /** Its token, as it is stored. */
  message: StoredMessage | undefined
  /** When it came here, a moment of the clock. */
  cameAt: number
  /** How long after that it may be taken. */
  freshMs: number
  /** Of the token, if it was delivered. */
  delivery: Delivery | undefined
  onOccupied?: () => void
}

/**
 * How long handing back may take. A run that does not heed its signal keeps its lease, which ends with it or with the
 * process; so do all when NATS does not answer.
 */
const HANDBACK_MS = 2000
const HANDBACK: HandBack = { kind: 'handback' }

/** Serves one Reconciler: takes tokens of both lanes while slots are free, and runs the handler under a lease. */
export class QueueWorker implements Worker, Sharer {
  readonly #core: Core
  readonly #options: ServeOptions
  readonly #lanes: Record<Lane, LaneInHand>
  readonly #janitor: Janitor
  readonly #leased = new Set<LeasedKey>()
  /** The latest run of each key. */
  readonly #current = new Map<string, LeasedKey>()
  /** Keys on their way to a run here, which will read state when it begins; false: it did not come to that. */
  readonly #arriving = new Map<string, Promise<boolean>>()
  readonly #inHand = new Set<Promise<void>>()
  readonly #abandon = new AbortController()
  #lastLane: Lane = 'low'
  readonly #graceOver = Promise.withResolvers<void>()
  #drained: Promise<void> | undefined

  constructor(core: Core, options: ServeOptions) {
    this.#core = core
    this.#options = options
    this.#lanes = { high: this.#openLane('high'), low: this.#openLane('low') }
    this.#janitor = new Janitor(core, options.reconciler)
    this.#janitor.start()
    core.slots.join(this)
  }

  get running(): number {
    return this.#leased.size
  }

  get busy(): number {
    return this.#lanes.high.busy + this.#lanes.low.busy
  }

  get promised(): number {
    const { high, low } = this.#lanes
    return Math.min(high.backlog, high.puller.outstanding) + Math.min(low.backlog, low.puller.outstanding)
  }

  poke(): void {
    this.#lanes.high.puller.poke()
    this.#lanes.low.puller.poke()
  }

  drain(graceMs: number): Promise<void> {
    const timer = setTimeout(this.#graceOver.resolve, graceMs)
    this.#drained ??= this.#drain()
    return this.#drained.finally(() => clearTimeout(timer))
  }

  /**
   * A change that this process was told of: for the run of its key here, or for one that a free slot can begin at once.
   * `covered` is false if the change has to be queued all the same. Undefined: neither of them.
   */
  announce(key: string, lane: Lane): { noted: boolean; covered: Promise<boolean> } | undefined {
    if (this.#drained) return undefined
    const covered = this.#current.get(key)?.note()
    if (covered) return { noted: true, covered }
    const arrival = this.#arriving.get(key) ?? (lane === 'high' ? this.#takeDirectly(key) : undefined)
    return arrival && { noted: false, covered: arrival }
  }

  #openLane(lane: Lane): LaneInHand {
    const { reconciler, slots } = this.#options
    const inHand: LaneInHand = new LaneInHand(this.#core, {
      reconciler,
      lane,
      slots,
      allowed: () => this.#allowances[lane],
      free: () => this.#free,
      onMessage: (delivery) => this.#receive(inHand, delivery),
      onTurn: (namespace) => this.#occupy(inHand, this.#takeOf(namespace, inHand)),
    })
    return inHand
  }

  get #free(): number {
    return this.#core.slots.free(this.#options.slots - this.busy, this)
  }

  get #allowances(): ReturnType<typeof allowances> {
    return allowances({ slots: this.#options.slots, free: this.#free, ...this.#lanes, lastLane: this.#lastLane })
  }

  #receive(inHand: LaneInHand, delivery: Delivery): void {
    inHand.backlog = delivery.pending
    if (this.#drained || this.#free === 0) {
      inHand.backlog++
      return delivery.nak()
    }
    const place = this.#core.names.placeOf(delivery.subject)
    if (place?.kind !== 'token') return
    const { clock, ackWaitMs } = this.#core
    inHand.delivered(place.key, delivery)
    this.#lastLane = inHand.lane
    const claim: Claim = {
      input: { token: tokenFrom(delivery, inHand.lane) },
      message: delivery,
      cameAt: clock.moment(),
      freshMs: ackWaitMs / 2,
      delivery,
    }
    this.#occupy(inHand, this.#work(place.key, claim))
  }

  /** A key of this namespace, although others are before it in the line. */
  async #takeOf(namespace: string, inHand: LaneInHand): Promise<void> {
    const { clock, ackWaitMs } = this.#core
    this.#lastLane = inHand.lane
    const found = await inHand.find(namespace)
    if (found === undefined || this.#drained) return
    const { key, message } = found
    const { sequence } = message
    const onOccupied = () => inHand.passOver(key)
    if (this.#current.has(key) || this.#arriving.has(key)) return onOccupied()
    const input = { token: tokenFrom(message, inHand.lane), seen: { sequence } }
    const freshMs = ackWaitMs / 4
    await this.#work(key, { input, message, cameAt: clock.moment(), freshMs, delivery: undefined, onOccupied })
  }

  /** Only a key that nothing here is about, and only where no token waits that would be overtaken. */
  #takeDirectly(key: string): Promise<boolean> | undefined {
    const { high } = this.#lanes
    if (high.backlog > 0 || this.#allowances.direct === 0 || this.#current.has(key)) return undefined
    const { clock, ackWaitMs } = this.#core
    const input = { token: { lane: high.lane, attempt: 0 }, direct: true }
    const claim = { input, message: undefined, cameAt: clock.moment(), freshMs: ackWaitMs / 4, delivery: undefined }
    this.#occupy(high, this.#work(key, claim))
    return this.#arriving.get(key)
  }

  #occupy(inHand: LaneInHand, working: Promise<void>): void {
    inHand.busy++
    this.poke()
    const work = working.finally(() => {
      this.#inHand.delete(work)
      inHand.busy--
      this.#core.slots.released(this)
    })
    this.#inHand.add(work)
  }

  /** Never rejects: what fails here is delivered again, or queued by its watchdog. */
  async #work(key: string, claim: Claim): Promise<void> {
    const { reconciler, onError } = this.#options
    try {
      if (claim.delivery && (await this.#current.get(key)?.note(claim.delivery))) return
      const held = await this.#arrive(key, this.#take(key, claim))
      if (held) await this.#run(key, held, claim)
    } catch (error) {
      if (error instanceof ConnectionClosedError || this.#abandon.signal.aborted) return
      this.#core.log.error({ err: error, reconciler, key }, 'key left to the queue')
      onError?.(error)
    }
  }

  async #arrive(key: string, taking: Promise<HeldKey | undefined>): Promise<HeldKey | undefined> {
    const arrival = taking.then(
      (held) => held !== undefined,
      () => false,
    )
    this.#arriving.set(key, arrival)
    try {
      return await taking
    } finally {
      if (this.#arriving.get(key) === arrival) this.#arriving.delete(key)
    }
  }

  async #take(key: string, claim: Claim): Promise<HeldKey | undefined> {
    const { clock, terms, observer, log, instance } = this.#core
    const { reconciler } = this.#options
    const { signal } = this.#abandon
    const { delivery } = claim
    if (clock.sure() === undefined) await measured(this.#core, { signal })
    const freshUntil = clock.timeOf(claim.cameAt) + claim.freshMs
    const claimed = { ...claim.input, freshUntil, nonce: nuid.next(), by: instance, terms }
    const result = await operate(this.#core, transitions.take, claimed, { reconciler, key }, { delivery, signal })
    if (result.kind === 'dropped') log.warn({ reconciler, key, because: result.because }, 'token not taken')
    if (result.kind === 'occupied') claim.onOccupied?.()
    if (result.kind !== 'leased') return undefined
    const due = claim.message && dueOf(claim.message)
    const queuedAt = this.#queuedAt(claim)
    observer.onTake?.(reconciler, clock.now() - queuedAt, due && queuedAt - due)
    return result.held
  }

  /** Since when its key waits, by the server's clock. */
  #queuedAt({ cameAt, message }: Claim): number {
    return message?.storedAt ?? this.#core.clock.timeOf(cameAt)
  }

  async #run(key: string, held: HeldKey, claim: Claim): Promise<void> {
    const { reconciler, onFinished } = this.#options
    const { message } = claim
    const enqueuedAt = this.#core.clock.dateOf(this.#queuedAt(claim))
    const fired = message !== undefined && isFired(message)
    const run = new LeasedKey(this.#core, reconciler, key, held, { fired, enqueuedAt })
    if (this.#drained) return void (await run.end(() => HANDBACK))
    if (message && isWatchdog(message) && run.suspect) return this.#postpone(run)
    this.#leased.add(run)
    this.#current.set(key, run)
    try {
      const began = performance.now()
      const finish = await this.#handle(run)
      const result = await run.end(endingOf(finish, this.#core.clock))
      if (result === 'finished') this.#core.observer.onFinish?.(reconciler, finish.kind, performance.now() - began)
      onFinished?.(run, result)
    } finally {
      this.#leased.delete(run)
      if (this.#current.get(key) === run) this.#current.delete(key)
    }
  }

  /** A run that takes its process along shall not do so again at once, in one process after the other. */
  async #postpone(run: LeasedKey): Promise<void> {
    const { reconciler, key, attempt } = run
    const { clock, log } = this.#core
    log.warn({ reconciler, key, attempt }, 'run cut short again, its process was lost: the key waits')
    await run.end(() => ({
      kind: 'postponed',
      at: clock.now() + this.#backoffMs(attempt - 1),
      message: `its process was lost during the run, attempt ${attempt}`,
    }))
  }

  #backoffMs(attempt: number): number {
    return backoffMs(attempt, this.#options.backoff ?? DEFAULT_BACKOFF, this.#core.random)
  }

  async #handle(run: LeasedKey): Promise<Finish | HandBack> {
    try {
      const finish = timely(await this.#options.handler(run))
      return run.isTakenBack ? HANDBACK : finish
    } catch (error) {
      if (run.isTakenBack) return HANDBACK
      const { log } = this.#core
      if (!run.signal.aborted) log.warn({ err: error, reconciler: run.reconciler, key: run.key }, 'run failed')
      return { kind: 'error', message: messageOf(error), retryAt: { afterMs: this.#backoffMs(run.attempt) } }
    }
  }

  async #drain(): Promise<void> {
    this.#janitor.stop()
    await Promise.all(Object.values(this.#lanes).map((lane) => within(HANDBACK_MS, lane.drain())))
    await Promise.race([Promise.all(this.#inHand), this.#graceOver.promise])
    for (const run of this.#leased) run.takeBack()
    await within(HANDBACK_MS, Promise.all(this.#inHand))
    this.#abandon.abort(new Error('the worker has drained'))
    this.#core.slots.leave(this)
  }
}

/** Until the work is done, or for so long. */
async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const stop = new AbortController()
  await Promise.race([
    work.catch(() => undefined),
    sleep(ms, undefined, { signal: stop.signal }).catch(() => undefined),
  ])
  stop.abort()
}
