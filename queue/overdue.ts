import { nuid } from 'nats'
import { recordFrom } from './codec.ts'
import { type Core, measured, operate } from './core.ts'
import type { KeyRecord } from './record.ts'
import { transitions } from './transitions.ts'

/** Read at each look: with more records than that, the next look goes on behind them. */
const AT_ONCE = 1000
/** No load makes the server that late. */
const LATE_MS = 5000

interface Found {
  key: string
  record: KeyRecord
}

/**
 * Timers and watchdogs that the server will not carry out any more. It tries each only once: where the token could not be
 * stored, because there was no room for it, the schedule stands for ever (nats-server 2.15, until its next start).
 */
export class Overdue {
  readonly #core: Core
  readonly #fn: string
  #first = 1

  constructor(core: Core, fn: string) {
    this.#core = core
    this.#fn = fn
  }

  /** Gives the number of those that were armed anew. */
  async look(): Promise<number> {
    const { log, observer } = this.#core
    let rearmed = 0
    for (const { key, record } of await this.#find()) {
      const of = { fn: this.#fn, key }
      const result = await operate(this.#core, transitions.rearm, { record, nonce: nuid.next() }, of)
      if (result !== 'rearmed') continue
      rearmed++
      observer.onRevive?.(this.#fn)
      log.warn({ ...of, was: record.state }, 'timer that would never have fired armed anew')
    }
    return rearmed
  }

  async #find(): Promise<Found[]> {
    const { js, names } = this.#core
    const late = (await measured(this.#core)) - LATE_MS
    const found: Found[] = []
    let read = 0
    for await (const message of js.scan(names.stream, names.all('key', this.#fn), { first: this.#first })) {
      const place = names.placeOf(message.subject)
      const record = recordFrom(message, names)
      if (place && record && record.at < late) found.push({ key: place.key, record })
      this.#first = message.sequence + 1
      if (++read === AT_ONCE) return found
    }
    this.#first = 1
    return found
  }
}
