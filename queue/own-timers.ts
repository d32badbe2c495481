import type { ServerClock } from './clock.ts'
import type { KeyRecord } from './record.ts'

/** How long before the due time the process takes the key. At the due time the server would fire the timer. */
const LEAD_MS = 50
/** Timers that are due later than this are left to the server. */
const HORIZON_MS = 10 * 60_000
/** The number of remembered timers of one Reconciler, about 1 MiB. Further timers are left to the server. */
const REMEMBERED = 2000

interface OwnTimer {
  record: KeyRecord
  timeout: NodeJS.Timeout
}

/**
 * The timers that runs of this process have set and, as far as this process knows, no other process has taken. Taking
 * one over costs one write. A timer that the server fires costs a token, its delivery and its acknowledgement, and is
 * up to 250 ms late. The retry of a failed run is left to the server, because it may succeed in another process.
 */
export class OwnTimers {
  readonly #clock: ServerClock
  readonly #onDue: (key: string, record: KeyRecord) => void
  readonly #known = new Map<string, OwnTimer>()

  constructor(clock: ServerClock, onDue: (key: string, record: KeyRecord) => void) {
    this.#clock = clock
    this.#onDue = onDue
  }

  remember(key: string, record: KeyRecord): void {
    this.take(key)
    const waitMs = record.at - LEAD_MS - this.#clock.now()
    if (record.reason !== 'Requeue' || waitMs < 0 || waitMs > HORIZON_MS || this.#known.size >= REMEMBERED) return
    const timeout = setTimeout(() => this.#due(key), waitMs).unref()
    this.#known.set(key, { record, timeout })
  }

  /** Returns the record of a key and forgets it, because the caller takes the key. */
  take(key: string): KeyRecord | undefined {
    const known = this.#known.get(key)
    if (known === undefined) return undefined
    clearTimeout(known.timeout)
    this.#known.delete(key)
    return known.record
  }

  clear(): void {
    for (const key of this.#known.keys()) this.take(key)
  }

  #due(key: string): void {
    const record = this.take(key)
    // If this process was busy at the due time, the server has fired the timer by now.
    if (record && record.at > this.#clock.now()) this.#onDue(key, record)
  }
}
