import type { Delivery } from '#jetstream'
import { type Core, enqueueKey, measured, operate } from './core.ts'
import type { Ending, FinishResult } from './finish.ts'
import { type Laps, laps } from './laps.ts'
import { type Held, leaseEnd } from './lease.ts'
import { transitions } from './transitions.ts'
import { type Lease, LeaseLostError } from './types.ts'

/** What the run was begun by. */
export interface Origin {
  fired: boolean
  enqueuedAt: Date
}

/** A change that came while the key ran. */
interface Note {
  /** The token that told of it, unacknowledged. */
  delivery: Delivery | undefined
  /** True: it is covered. False: it has to be queued, or its token taken. */
  settle: (covered: boolean) => void
}

const OVERTAKEN = 'the key was changed since it was read'

/** One key in the hands of this process: its lease is renewed every third of its length until the run ends. */
export class Run implements Lease {
  readonly fn: string
  readonly key: string
  readonly attempt: number
  readonly cutShort: boolean
  readonly suspect: boolean
  readonly fired: boolean
  readonly enqueuedAt: Date
  readonly #core: Core
  readonly #abort = new AbortController()
  #held: Held
  #laps: Laps<Note> = laps.none
  #overtaken = new AbortController()
  #renewal: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #lost = false
  #takenBack = false
  #ended = false

  constructor(core: Core, fn: string, key: string, held: Held, { fired, enqueuedAt }: Origin) {
    this.#core = core
    this.fn = fn
    this.key = key
    this.attempt = held.record.attempt
    this.cutShort = held.record.reason === 'CutShort'
    this.suspect = held.record.suspect === true
    this.fired = fired
    this.enqueuedAt = enqueuedAt
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

  /** What it comes to is not stored: its key is queued as it was. */
  get isTakenBack() {
    return this.#takenBack
  }

  get overtaken() {
    return this.#overtaken.signal
  }

  async lap(): Promise<void> {
    const { unseen } = this.#laps
    this.#laps = laps.begin(this.#laps)
    if (this.overtaken.aborted) this.#overtaken = new AbortController()
    for (const { delivery } of unseen) if (delivery) await this.#absorb(delivery)
  }

  async #absorb(delivery: Delivery): Promise<void> {
    const input = { held: this.#held, terms: this.#core.terms }
    const result = await operate(this.#core, transitions.absorb, input, this, { delivery, signal: this.signal })
    if (result === 'late') this.#lose('it ran out before it was renewed')
    this.signal.throwIfAborted()
  }

  /**
   * Tells the run of a change; with its token, if it has one. Resolves to true when the run's end, or what follows it,
   * is stored and covers the change. Undefined: the run does not look again.
   */
  note(delivery?: Delivery): Promise<boolean> | undefined {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const note: Note = { delivery, settle: resolve }
    const noted = laps.note(this.#laps, note)
    if (noted === undefined) return undefined
    this.#laps = noted
    this.#overtaken.abort(OVERTAKEN)
    const timer = setTimeout(() => this.#withdraw(note), this.#core.ackWaitMs / 4)
    return promise.finally(() => clearTimeout(timer))
  }

  /** Stores how the run ended, which is asked for when the time is known; if its lease was lost instead, queues the key: its writes may have silenced the watch. */
  async end(endingNow: () => Ending): Promise<'finished' | 'fenced'> {
    this.#laps = laps.close(this.#laps)
    let stored = false
    try {
      const result = await this.#conclude(endingNow)
      stored = true
      return result
    } finally {
      this.#settle(stored)
    }
  }

  async #conclude(endingNow: () => Ending): Promise<'finished' | 'fenced'> {
    const result = await this.#stop(endingNow)
    if (result !== 'fenced' && result !== 'unclear') return 'finished'
    this.#lose('it was lost before the run ended')
    this.#core.observer.onFenced?.(this.fn)
    this.#core.log.warn({ fn: this.fn, key: this.key, result }, 'run fenced: its key is queued again')
    await enqueueKey(this.#core, this, { lane: this.lane, attempt: 0 })
    return 'fenced'
  }

  /** Tells the run to stop. Its lease is renewed until it has, so that no other run of its key begins before. */
  takeBack(): void {
    this.#takenBack = true
    this.#abortBecause('the worker shuts down')
  }

  async #stop(endingNow: () => Ending): Promise<FinishResult> {
    this.#ended = true
    clearTimeout(this.#timer)
    await this.#renewal
    if (this.#lost) return 'fenced'
    if (this.#core.clock.sure() === undefined) await measured(this.#core)
    const ending = endingNow()
    const { timers } = this.#core
    const bucket = timers?.bucketFor(ending, this.#held.record.at)
    const bed = bucket && (await timers?.bedIn(bucket, {}))
    return operate(this.#core, transitions.finish, { held: this.#held, ending, bed }, this)
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
      const result = await operate(this.#core, transitions.renew, { held: this.#held, terms }, this, {
        until: this.#end,
      })
      if (result.kind === 'lost') return this.#lose('another worker may own the key')
      this.#held = result.held
      log.debug({ fn: this.fn, key: this.key, leaseUntil: this.until }, 'lease renewed')
    } catch (error) {
      log.error(
        { err: error, fn: this.fn, key: this.key },
        'lease not renewed: the run ends if it cannot finish in time',
      )
      if (this.#core.clock.now() > this.#end) return this.#lose('it could not be renewed')
    }
    if (!this.#ended) this.#renewInTime()
  }

  #settle(stored: boolean): void {
    const { covered, refused } = laps.settle(this.#laps, stored)
    for (const { settle } of covered) settle(true)
    for (const { settle } of refused) settle(false)
  }

  /** A lap that is so long in coming shall not keep the change from other processes, and from the stream. */
  #withdraw(note: Note): void {
    const without = laps.withdraw(this.#laps, note)
    if (without === undefined) return
    this.#laps = without
    note.settle(false)
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
