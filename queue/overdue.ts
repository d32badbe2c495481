import { recordFrom } from './codec.ts'
import { type Core, enqueueKey, measured, operate } from './core.ts'
import { TIMERS } from './names.ts'
import { Probe } from './probe.ts'
import type { KeyRecord } from './record.ts'
import { bucketIn, keyOf, slotsOf } from './sleep.ts'
import { transitions } from './transitions.ts'

/** Read at each look: with more records than that, the next look goes on behind them. */
const AT_ONCE = 10_000
/** What the server itself is to carry out. The server has 50,000 or so of these, however many timers sleep. */
const ARMED = ['waiting', 'running'] as const

interface OverdueRecord {
  key: string
  record: KeyRecord
}

/**
 * Timers and watchdogs that the server will not carry out any more. It tries each only once: where the token could not be
 * stored, because there was no room for it, the schedule stands for ever (nats-server 2.15, until its next start). That
 * it has tried is known from a probe: a schedule that was stored after them, is due after them, and has fired.
 */
export class Overdue {
  readonly #core: Core
  readonly #reconciler: string
  readonly #atOnce: number
  readonly #first = { all: 1, waiting: 1, running: 1 }
  #level = 0
  /** Found by an earlier look, and the probe that was armed after that. */
  #suspects: { found: OverdueRecord[]; probe: Probe } | undefined

  constructor(core: Core, reconciler: string, atOnce = AT_ONCE) {
    this.#core = core
    this.#reconciler = reconciler
    this.#atOnce = atOnce
  }

  /** Some are waited for: look again soon. */
  get isWaiting(): boolean {
    return this.#suspects !== undefined
  }

  /** Gives the number of those that were armed anew. */
  async look(): Promise<number> {
    const rearmed = await this.#rearmSuspects()
    if (this.#suspects) return rearmed
    const found = await this.#find()
    if (found.length > 0) this.#suspects = { found, probe: await Probe.arm(this.#core, this.#reconciler) }
    return rearmed
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

  async #rearm({ key, record }: OverdueRecord): Promise<boolean> {
    const { log, observer } = this.#core
    const of = { reconciler: this.#reconciler, key }
    const result = await operate(this.#core, transitions.rearm, { record, nonce: this.#core.nonce() }, of)
    if (result !== 'rearmed') return false
    observer.onRevive?.(this.#reconciler)
    log.warn({ ...of, was: record.state }, 'timer that would never have fired armed anew')
    return true
  }

  /**
   * With more records than one look reads, what the server carries has laps of its own, and of each slot the record that is
   * there longest is read: of the earliest of its buckets.
   */
  async #find(): Promise<OverdueRecord[]> {
    const { names } = this.#core
    const now = await measured(this.#core)
    const found = await this.#overdueIn('all', names.all('key', this.#reconciler), now)
    if (this.#first.all === 1) return found
    const known = new Set(found.map(({ key }) => key))
    for (const state of ARMED) {
      const more = await this.#overdueIn(state, names.recordsIn(this.#reconciler, state), now)
      found.push(...more.filter(({ key }) => !known.has(key)))
    }
    await this.#openFirstOf(slotsOf(this.#level++), now)
    return found
  }

  async #overdueIn(lap: 'all' | (typeof ARMED)[number], subject: string, now: number): Promise<OverdueRecord[]> {
    const { js, names } = this.#core
    const found: OverdueRecord[] = []
    const buckets = new Set<string>()
    let read = 0
    for await (const message of js.scan(names.stream, subject, { first: this.#first[lap] })) {
      const place = names.placeOf(message.subject)
      const record = recordFrom(message, names)
      if (place && record && record.at < now) {
        if (record.slot === undefined) found.push({ key: place.key, record })
        else buckets.add(keyOf(bucketIn(record.slot, record.at)))
      }
      this.#first[lap] = message.sequence + 1
      if (++read === this.#atOnce) break
    }
    if (read < this.#atOnce) this.#first[lap] = 1
    for (const key of buckets) await this.#open(key)
    return found
  }

  async #openFirstOf(slots: readonly string[], now: number): Promise<void> {
    const { js, names } = this.#core
    for (const slot of slots) {
      const message = await js.nextFrom(names.stream, 1, names.asleepOf(this.#reconciler, slot))
      const record = message && recordFrom(message, names)
      if (record && record.at < now) await this.#open(keyOf(bucketIn(slot, record.at)))
    }
  }

  /** A bucket that nobody has opened, or whose run is not through: then this makes one more. */
  async #open(key: string): Promise<void> {
    await enqueueKey(this.#core, { reconciler: TIMERS, key }, { lane: 'high', attempt: 0 })
  }
}
