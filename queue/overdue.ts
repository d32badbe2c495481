import { recordFrom } from './codec.ts'
import { type Core, enqueueKey, measured, operate } from './core.ts'
import { TIMERS } from './names.ts'
import { Probe } from './probe.ts'
import type { KeyRecord } from './record.ts'
import { bucketIn, keyOf } from './sleep.ts'
import { transitions } from './transitions.ts'

/** Read at each look: with more records than that, the next look goes on behind them. */
const AT_ONCE = 10_000

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
  #first = 1
  /** Found by an earlier look, and the probe that was armed after that. */
  #suspects: { found: OverdueRecord[]; probe: Probe } | undefined

  constructor(core: Core, reconciler: string) {
    this.#core = core
    this.#reconciler = reconciler
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

  async #find(): Promise<OverdueRecord[]> {
    const { js, names } = this.#core
    const now = await measured(this.#core)
    const found: OverdueRecord[] = []
    const buckets = new Set<string>()
    let read = 0
    for await (const message of js.scan(names.stream, names.all('key', this.#reconciler), { first: this.#first })) {
      const place = names.placeOf(message.subject)
      const record = recordFrom(message, names)
      if (place && record && record.at < now) {
        if (record.slot === undefined) found.push({ key: place.key, record })
        else buckets.add(keyOf(bucketIn(record.slot, record.at)))
      }
      this.#first = message.sequence + 1
      if (++read === AT_ONCE) break
    }
    if (read < AT_ONCE) this.#first = 1
    for (const key of buckets) await this.#open(key)
    return found
  }

  /** A bucket that nobody has opened, or whose run is not through: then this makes one more. */
  async #open(key: string): Promise<void> {
    await enqueueKey(this.#core, { reconciler: TIMERS, key }, { lane: 'high', attempt: 0 })
  }
}
