import { setTimeout as sleep } from 'node:timers/promises'
import { nuid } from 'nats'
import { ConnectionClosedError, type Delivery, Puller } from '#jetstream'
import { backoffMs, DEFAULT_BACKOFF } from './backoff.ts'
import { dueOf, isFired, isWatchdog, tokenFrom } from './codec.ts'
import { type Core, measured, operate } from './core.ts'
import { type Due, isTime } from './due.ts'
import type { Ending } from './finish.ts'
import { Janitor } from './janitor.ts'
import type { Held } from './lease.ts'
import { messageOf } from './message-of.ts'
import type { Lane } from './record.ts'
import { Run } from './run.ts'
import { allowances, type LaneLoad, type Sharer } from './slots.ts'
import type { TakeInput } from './take.ts'
import { transitions } from './transitions.ts'
import type { Finish, HandBack, ServeOptions, Worker } from './types.ts'

interface LaneInHand extends LaneLoad {
  lane: Lane
  puller: Puller
}

/** What a key is to be taken by. */
interface Claim {
  input: Pick<TakeInput, 'token' | 'direct'>
  fired: boolean
  /** When it came here, a moment of the clock. */
  cameAt: number
  /** How long after that it may be taken. */
  freshMs: number
  delivery: Delivery | undefined
}

/**
 * How long handing back may take. A run that does not heed its signal keeps its lease, which ends with it or with the
 * process; so do all when NATS does not answer.
 */
const HANDBACK_MS = 2000
const HANDBACK: HandBack = { kind: 'handback' }

/** Serves one function: takes tokens of both lanes while slots are free, and runs the handler under a lease. */
export class QueueWorker implements Worker, Sharer {
  readonly #core: Core
  readonly #options: ServeOptions
  readonly #lanes: Record<Lane, LaneInHand>
  readonly #janitor: Janitor
  readonly #runs = new Set<Run>()
  /** The latest run of each key. */
  readonly #current = new Map<string, Run>()
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
    this.#janitor = new Janitor(core, options.fn)
    this.#janitor.start()
    core.slots.join(this)
  }

  get running(): number {
    return this.#runs.size
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
    const { js, names } = this.#core
    const puller = new Puller(js, {
      stream: names.stream,
      consumer: names.consumer(this.#options.fn, lane),
      free: () => this.#allowances[lane],
      // The high lane is always waited for: what is kept for it then costs no further request.
      expected: () => lane === 'low' && inHand.backlog > 0,
      onEmpty: () => {
        inHand.backlog = 0
      },
      onMessage: (delivery) => this.#receive(inHand, delivery),
    })
    const inHand: LaneInHand = { lane, busy: 0, backlog: 0, puller }
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
    this.#lastLane = inHand.lane
    this.#occupy(inHand, place.key, {
      input: { token: tokenFrom(delivery, inHand.lane) },
      fired: isFired(delivery),
      cameAt: clock.moment(),
      freshMs: ackWaitMs / 2,
      delivery,
    })
  }

  /** Only a key that nothing here is about, and only where no token waits that would be overtaken. */
  #takeDirectly(key: string): Promise<boolean> | undefined {
    const { high } = this.#lanes
    if (high.backlog > 0 || this.#allowances.direct === 0 || this.#current.has(key)) return undefined
    const { clock, ackWaitMs } = this.#core
    const input = { token: { lane: high.lane, attempt: 0 }, direct: true }
    const claim = { input, fired: false, cameAt: clock.moment(), freshMs: ackWaitMs / 4, delivery: undefined }
    this.#occupy(high, key, claim)
    return this.#arriving.get(key)
  }

  #occupy(inHand: LaneInHand, key: string, claim: Claim): void {
    inHand.busy++
    this.poke()
    const work = this.#work(key, claim).finally(() => {
      this.#inHand.delete(work)
      inHand.busy--
      this.#core.slots.released(this)
    })
    this.#inHand.add(work)
  }

  /** Never rejects: what fails here is delivered again, or queued by its watchdog. */
  async #work(key: string, claim: Claim): Promise<void> {
    const { fn, onError } = this.#options
    try {
      if (claim.delivery && (await this.#current.get(key)?.note(claim.delivery))) return
      const held = await this.#arrive(key, this.#take(key, claim))
      if (held) await this.#run(key, held, claim)
    } catch (error) {
      if (error instanceof ConnectionClosedError || this.#abandon.signal.aborted) return
      this.#core.log.error({ err: error, fn, key }, 'key left to the queue')
      onError?.(error)
    }
  }

  async #arrive(key: string, taking: Promise<Held | undefined>): Promise<Held | undefined> {
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

  async #take(key: string, claim: Claim): Promise<Held | undefined> {
    const { clock, terms, observer, log, instance } = this.#core
    const { fn } = this.#options
    const { signal } = this.#abandon
    const { delivery } = claim
    if (clock.sure() === undefined) await measured(this.#core, { signal })
    const freshUntil = clock.timeOf(claim.cameAt) + claim.freshMs
    const claimed = { ...claim.input, freshUntil, nonce: nuid.next(), by: instance, terms }
    const result = await operate(this.#core, transitions.take, claimed, { fn, key }, { delivery, signal })
    if (result.kind === 'dropped') log.warn({ fn, key, because: result.because }, 'token not taken')
    if (result.kind !== 'leased') return undefined
    const due = delivery && dueOf(delivery)
    const queuedAt = this.#queuedAt(claim)
    observer.onTake?.(fn, clock.now() - queuedAt, due && queuedAt - due)
    return result.held
  }

  /** Since when its key waits, by the server's clock. */
  #queuedAt({ cameAt, delivery }: Claim): number {
    return delivery?.storedAt ?? this.#core.clock.timeOf(cameAt)
  }

  async #run(key: string, held: Held, claim: Claim): Promise<void> {
    const { fn, onFinished } = this.#options
    const { fired, delivery } = claim
    const enqueuedAt = this.#core.clock.dateOf(this.#queuedAt(claim))
    const run = new Run(this.#core, fn, key, held, { fired, enqueuedAt })
    if (this.#drained) return void (await run.end(() => HANDBACK))
    if (delivery && isWatchdog(delivery) && run.suspect) return this.#postpone(run)
    this.#runs.add(run)
    this.#current.set(key, run)
    try {
      const began = performance.now()
      const finish = await this.#handle(run)
      const result = await run.end(this.#endingOf(finish))
      if (result === 'finished') this.#core.observer.onFinish?.(fn, finish.kind, performance.now() - began)
      onFinished?.(run, result)
    } finally {
      this.#runs.delete(run)
      if (this.#current.get(key) === run) this.#current.delete(key)
    }
  }

  /** A run that takes its process along shall not do so again at once, in one process after the other. */
  async #postpone(run: Run): Promise<void> {
    const { fn, key, attempt } = run
    const { clock, log } = this.#core
    log.warn({ fn, key, attempt }, 'run cut short again, its process was lost: the key waits')
    await run.end(() => ({
      kind: 'postponed',
      at: clock.now() + this.#backoffMs(attempt - 1),
      message: `its process was lost during the run, attempt ${attempt}`,
    }))
  }

  #backoffMs(attempt: number): number {
    return backoffMs(attempt, this.#options.backoff ?? DEFAULT_BACKOFF, this.#core.random)
  }

  async #handle(run: Run): Promise<Finish | HandBack> {
    try {
      const finish = timely(await this.#options.handler(run))
      return run.isTakenBack ? HANDBACK : finish
    } catch (error) {
      if (run.isTakenBack) return HANDBACK
      const { log } = this.#core
      if (!run.signal.aborted) log.warn({ err: error, fn: run.fn, key: run.key }, 'run failed')
      return { kind: 'error', message: messageOf(error), retryAt: { afterMs: this.#backoffMs(run.attempt) } }
    }
  }

  /** Delays count from here. */
  #endingOf(finish: Finish | HandBack): () => Ending {
    const { clock } = this.#core
    const endedAt = performance.now()
    const timeOf = (due: Due) =>
      due instanceof Date ? clock.at(due) : clock.now() + due.afterMs - (performance.now() - endedAt)
    return () => {
      if (finish.kind === 'requeue') return { kind: 'requeue', at: timeOf(finish.at) }
      if (finish.kind !== 'error') return finish
      const { message, retryAt, isCounted = true } = finish
      return { kind: 'error', message, at: timeOf(retryAt), isCounted }
    }
  }

  async #drain(): Promise<void> {
    this.#janitor.stop()
    await Promise.all(Object.values(this.#lanes).map(({ puller }) => within(HANDBACK_MS, puller.drain())))
    await Promise.race([Promise.all(this.#inHand), this.#graceOver.promise])
    for (const run of this.#runs) run.takeBack()
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

/** A time that is none can be waited for by nobody. */
function timely<Ended extends Finish | HandBack>(finish: Ended): Ended {
  const due = finish.kind === 'requeue' ? finish.at : finish.kind === 'error' ? finish.retryAt : undefined
  if (due !== undefined && !isTime(due)) throw new Error(`the run ended in ${finish.kind} at no valid time`)
  return finish
}
