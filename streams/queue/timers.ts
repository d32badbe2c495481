import type { StoredMessage } from '#nats'
import { BoundedMap, forEachAtMost, pause, Serial } from '#primitives'
import {
  type Bucket,
  bucketFor,
  bucketOf,
  type Core,
  isIn,
  keyOf,
  measured,
  opensAt,
  type Patience,
  publishOnce,
  type SleepingTimers,
  slotOf,
} from './core.ts'
import type { Bed, Ending } from './finish.ts'
import type { KeyRecord } from './record.ts'
import { ProcessSlots } from './slots.ts'
import { timerAgain, timerOf } from './tokens.ts'
import type { Finish, HandBack, Lease, ServeOptions, Worker } from './types.ts'
import { recordFrom, TIMERS } from './wire.ts'

/**
 * The number of timers that the server carries before others sleep. It fires 100,000 in 0.7 s, and stores nothing else
 * meanwhile.
 */
export const DEFAULT_ARMED_LIMIT = 50_000
/** The server's timers are counted again after this many far timers of this process, or after COUNT_MS. */
const COUNT_AFTER = 5000
const COUNT_MS = 10_000
/**
 * The number of timers in a bucket that one look hands to the server before they are due. Further timers wait for a
 * later look until they are due, so that the server never has more to fire at once.
 */
const ARMED_AHEAD = 10_000
/** The number of timers that are moved at the same time. */
const IN_FLIGHT = 64
/** The pause between two looks. After an outage, a lease may have ended at the moment when a bucket opens. */
const SETTLE_MS = 2000
const REMEMBERED_ALARMS = 1000

/**
 * Lets timers sleep while the server carries many. The server fires all due timers without a pause, and after an outage
 * all timers of the outage are due. Buckets of sleeping timers are keys of the queue, so each bucket opens on time,
 * whichever process dies.
 */
export class Timers implements SleepingTimers {
  readonly #core: Core
  readonly #limit: number
  /** The buckets whose alarm is set. */
  readonly #alarms = new BoundedMap<string, true>(REMEMBERED_ALARMS)
  #armed = 0
  #uncounted = COUNT_AFTER
  #countedAt = 0
  /** Opens one bucket after the other, so that other writers to the stream are not held up. */
  readonly #looks = new Serial()

  constructor(core: Core, armedLimit: number) {
    this.#core = core
    this.#limit = armedLimit
  }

  bucketFor(ending: Ending, leaseEndsAt: number): Bucket | undefined {
    return 'at' in ending ? bucketFor(ending.at, Math.max(leaseEndsAt, this.#core.clock.now())) : undefined
  }

  async bedIn(bucket: Bucket, patience: Patience): Promise<Bed | undefined> {
    if (!(await this.#isCrowded())) return undefined
    await this.#setAlarm(bucket, patience)
    return { slot: slotOf(bucket), opensAt: opensAt(bucket) }
  }

  /** The handler that opens buckets, until `stopped` is aborted. */
  opening =
    (stopped: AbortSignal) =>
    async ({ key }: Lease): Promise<Finish | HandBack> => {
      const bucket = bucketOf(key)
      const early = opensAt(bucket) - this.#core.clock.now()
      if (early > 0) return { kind: 'requeue', at: { afterMs: early } }
      await this.#looks.run(() => this.#look(bucket, stopped))
      for (;;) {
        await pause(SETTLE_MS, stopped)
        if (stopped.aborted) return { kind: 'handback' }
        if ((await this.#looks.run(() => this.#look(bucket, stopped))) === 0) return { kind: 'done' }
      }
    }

  async #isCrowded(): Promise<boolean> {
    const { js, names } = this.#core
    if (++this.#uncounted >= COUNT_AFTER || performance.now() - this.#countedAt > COUNT_MS) {
      this.#uncounted = 0
      this.#countedAt = performance.now()
      const counted = js.count(names.stream, names.recordsIn(undefined, 'waiting')).then(({ count }) => count)
      // A failed count must not fail the run.
      this.#armed = await counted.catch(() => this.#armed)
    }
    return this.#armed >= this.#limit
  }

  async #setAlarm(bucket: Bucket, patience?: Patience): Promise<void> {
    const key = keyOf(bucket)
    if (this.#alarms.has(key)) return
    const now = await measured(this.#core, patience)
    const alarm = timerOf({ at: opensAt(bucket), now, nonce: this.#core.nonce() })
    await publishOnce(this.#core, { reconciler: TIMERS, key }, alarm, patience)
    this.#alarms.set(key, true)
  }

  /**
   * Moves the timers of a bucket and returns how many it found. A timer that cannot be moved does not stop the others.
   */
  async #look(bucket: Bucket, stopped: AbortSignal): Promise<number> {
    const failures: unknown[] = []
    const found = await forEachAtMost(
      IN_FLIGHT,
      this.#asleepIn(bucket, stopped),
      async ({ message, record }, index) => {
        const now = this.#core.clock.now()
        const next = bucketFor(record.at, now)
        if (index >= ARMED_AHEAD && next === undefined && record.at > now) return
        await this.#move(message, record, next).catch((error: unknown) => void failures.push(error))
      },
    )
    if (failures.length > 0) throw failures[0]
    return found
  }

  async *#asleepIn(
    bucket: Bucket,
    stopped: AbortSignal,
  ): AsyncGenerator<{ message: StoredMessage; record: KeyRecord }> {
    const { js, names } = this.#core
    for await (const message of js.scan(names.stream, names.asleepIn(slotOf(bucket)))) {
      if (stopped.aborted) return
      const record = recordFrom(message, names)
      if (record !== undefined && isIn(record.at, bucket)) yield { message, record }
    }
  }

  /** Moves a timer to a narrower bucket. If there is none, the server carries it. */
  async #move({ subject }: StoredMessage, record: KeyRecord, next: Bucket | undefined): Promise<void> {
    const place = this.#core.names.placeOf(subject)
    if (place?.kind !== 'record') return
    if (next) await this.#setAlarm(next)
    await publishOnce(this.#core, place, timerAgain(record, this.#core.nonce(), next && slotOf(next)))
  }
}

/** More than the number of buckets in all levels of the wheel. */
const BUCKETS_AT_ONCE = 64
/** How long it may take to hand back runs that open buckets. */
const HANDBACK_MS = 1000

/** Opens the buckets of sleeping timers of all Reconcilers while this process serves at least one Reconciler. */
export class Opener {
  readonly #core: Core
  readonly #timers: Timers
  readonly #serve: (core: Core, options: ServeOptions) => Worker
  readonly #serving = new Set<Worker>()
  #opening: { worker: Worker; stop: AbortController } | undefined

  constructor(core: Core, timers: Timers, serve: (core: Core, options: ServeOptions) => Worker) {
    // Runs that open buckets do not count towards the slots and metrics of Reconcilers.
    this.#core = { ...core, slots: new ProcessSlots(Number.POSITIVE_INFINITY, core.js.outbox), observer: {} }
    this.#timers = timers
    this.#serve = serve
  }

  enter(worker: Worker): void {
    this.#serving.add(worker)
    if (this.#opening) return
    const stop = new AbortController()
    const handler = this.#timers.opening(stop.signal)
    const opener = this.#serve(this.#core, { reconciler: TIMERS, slots: BUCKETS_AT_ONCE, handler })
    this.#opening = { worker: opener, stop }
  }

  /** Stops the opener when the last worker leaves. */
  async leave(worker: Worker): Promise<void> {
    if (!this.#serving.delete(worker) || this.#serving.size > 0) return
    const opening = this.#opening
    this.#opening = undefined
    opening?.stop.abort()
    await opening?.worker.drain(HANDBACK_MS)
  }
}
