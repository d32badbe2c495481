import type { Delivery } from '#jetstream'
import { isFired } from './codec.ts'
import { type Core, enqueueKey, operate } from './core.ts'
import type { Ending, FinishResult } from './finish.ts'
import { type Held, leaseEnd } from './lease.ts'
import { transitions } from './transitions.ts'
import { type Lease, LeaseLostError } from './types.ts'

/** One key in the hands of this process: its lease is renewed every third of its length until the run ends. */
export class Run implements Lease {
  readonly fn: string
  readonly key: string
  readonly attempt: number
  readonly cutShort: boolean
  readonly fired: boolean
  readonly enqueuedAt: Date
  readonly #core: Core
  readonly #abort = new AbortController()
  #held: Held
  #renewal: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #lost = false
  #ended = false

  constructor(core: Core, fn: string, key: string, held: Held, delivery: Delivery) {
    this.#core = core
    this.fn = fn
    this.key = key
    this.attempt = held.record.attempt
    this.cutShort = held.record.reason === 'CutShort'
    this.fired = isFired(delivery)
    this.enqueuedAt = core.clock.dateOf(delivery.storedAt)
    this.#held = held
    this.#renewInTime()
  }

  get owner() {
    return this.#held.record.owner
  }

  get lane() {
    return this.#held.record.lane
  }

  get until() {
    return this.#core.clock.dateOf(this.#end)
  }

  get signal() {
    return this.#abort.signal
  }

  hold(): void {
    if (this.#core.clock.now() > this.#end) this.#lose('its lease ran out before it was renewed')
    this.signal.throwIfAborted()
  }

  /** Stores how the run ended; if its lease was lost instead, queues the key: its writes may have silenced the watch. */
  async end(ending: Ending): Promise<'finished' | 'fenced'> {
    const result = this.#ended ? 'fenced' : await this.#stop(ending)
    if (result !== 'fenced' && result !== 'unclear') return 'finished'
    this.#lose('it was lost before the run ended')
    this.#core.observer.onFenced?.(this.fn)
    this.#core.log.warn({ fn: this.fn, key: this.key, result }, 'run fenced: its key is queued again')
    await enqueueKey(this.#core, this, { lane: this.lane, attempt: 0 })
    return 'fenced'
  }

  /** Takes the lease away from a run that goes on, and queues its key for somebody else. */
  async handBack(signal: AbortSignal): Promise<void> {
    if (this.#ended) return
    this.#abortBecause('the worker shuts down')
    await this.#stop({ kind: 'handback' }, signal)
  }

  async #stop(ending: Ending, signal?: AbortSignal): Promise<FinishResult> {
    this.#ended = true
    clearTimeout(this.#timer)
    await this.#renewal
    if (this.#lost) return 'fenced'
    return operate(this.#core, transitions.finish, { held: this.#held, ending }, this, signal && { signal })
  }

  get #end(): number {
    return leaseEnd(this.#held.record, this.#core.terms)
  }

  #renewInTime(): void {
    const { terms, clock } = this.#core
    const due = this.#held.record.at - (terms.leaseMs * 2) / 3
    this.#timer = setTimeout(
      () => {
        this.#renewal = this.#renew()
      },
      Math.max(0, due - clock.now()),
    )
  }

  async #renew(): Promise<void> {
    const { terms, log } = this.#core
    try {
      const result = await operate(this.#core, transitions.renew, { held: this.#held, terms }, this)
      if (result.kind === 'lost') return this.#lose('another worker may own the key')
      this.#held = result.held
    } catch (error) {
      log.error(
        { err: error, fn: this.fn, key: this.key },
        'lease not renewed: the run ends if it cannot finish in time',
      )
      if (this.#core.clock.now() > this.#end) return this.#lose('it could not be renewed')
    }
    if (!this.#ended) this.#renewInTime()
  }

  #lose(why: string): void {
    this.#lost = true
    this.#abortBecause(why)
  }

  #abortBecause(why: string): void {
    if (!this.signal.aborted)
      this.#abort.abort(new LeaseLostError(`the lease on ${this.fn} ${this.key} is over: ${why}`))
  }
}
