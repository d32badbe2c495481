import type { Delivery } from '#nats'
import { pause } from '#primitives'
import { enqueueKey, measured, operate, type QueueDeps } from './core.ts'
import { type Ending, type FinishResult, finish } from './finish.ts'
import { type HeldKey, leaseEnd, nearlyOver } from './machine.ts'
import { type Causes, wasCut, withCauses } from './record.ts'
import { renew } from './take.ts'
import { absorb } from './tokens.ts'
import { type Lease, LeaseLostError } from './types.ts'

/** The cause of the run. */
export interface LeaseOrigin {
  fired: boolean
  enqueuedAt: Date
}

/** A change that arrived while the key ran. */
interface ChangeNote {
  /** The unacknowledged token that announced the change. Undefined: this process observed the change itself. */
  delivery: Delivery | undefined
  causes: Causes | undefined
  /** True: the change is safe. False: the change must be queued, or its token taken. */
  resolve: (isSafe: boolean) => void
}

const STALE = 'the key was changed since it was read'

/** A key whose lease this process holds. The lease is renewed every third of its length until the run ends. */
export class LeasedKey implements Lease {
  readonly reconciler: string
  readonly key: string
  readonly attempt: number
  readonly cuts: number
  readonly losses: number
  readonly cutShort: boolean
  readonly suspect: boolean
  readonly fired: boolean
  readonly enqueuedAt: Date
  /** True: the function was called. */
  isCalled = false
  readonly #deps: QueueDeps
  readonly #abort = new AbortController()
  #held: HeldKey
  #passes: Passes<ChangeNote> = passes.none
  #stale = new AbortController()
  #renewal: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #causes: Causes | undefined
  #progressed = false
  #begun = false
  #lost = false
  #isUnanswered = false
  #takenBack = false
  #ended = false

  constructor(deps: QueueDeps, reconciler: string, key: string, held: HeldKey, { fired, enqueuedAt }: LeaseOrigin) {
    this.#deps = deps
    this.reconciler = reconciler
    this.key = key
    this.attempt = held.record.attempt
    this.cuts = held.record.cuts ?? 0
    this.losses = held.record.losses ?? 0
    this.cutShort = held.record.reason === 'CutShort'
    this.suspect = held.record.suspect === true
    this.fired = fired
    this.enqueuedAt = enqueuedAt
    this.#held = held
    this.#causes = held.record.causes
    this.#renewInTime()
  }

  get owner() {
    return this.#held.record.owner
  }

  get causes(): Causes {
    return this.#causes ?? []
  }

  get lane() {
    return this.#held.record.lane
  }

  get until() {
    return this.#deps.clock.dateOf(this.#end)
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  hold(): number {
    const leftMs = this.#end - this.#deps.clock.now()
    if (leftMs < 0) this.#lose('its lease ran out before it was renewed')
    this.signal.throwIfAborted()
    return leftMs
  }

  progressed(): void {
    if (this.#progressed) return
    this.#progressed = true
    // Without a timer a renewal is under way, or the run is over. A renewal sets the timer when it ends.
    if (this.#held.record.cuts === undefined || this.#timer === undefined) return
    clearTimeout(this.#timer)
    this.#renewInTime()
  }

  /**
   * Call before the function. If the key was cut short before, notes in its record that the run begins, so that the end of
   * the lease counts. Resolves to false if the run must not begin: the note is not stored, or was stored so late that the
   * lease is nearly over.
   */
  async begin(): Promise<boolean> {
    this.#begun = true
    if (!wasCut({ ...this.#held.record, cutShort: this.cutShort })) return true
    // A renewal that is under way was sent without the note.
    if (this.#timer === undefined) await this.#renewal
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (!this.signal.aborted) await (this.#renewal = this.#renew())
    return this.#held.record.begun === true && this.isInTime
  }

  /** Whether the function may still be called: the lease is not over, nor nearly. */
  get isInTime(): boolean {
    const { terms, clock } = this.#deps
    return !this.signal.aborted && !nearlyOver(this.#held.record, terms, clock.now())
  }

  /**
   * True: the lease is over because NATS did not answer a renewal, although this process had sent it in time and waited for
   * the answer without a pause. So the function is not the cause.
   */
  get isUnanswered(): boolean {
    return this.#isUnanswered
  }

  /** True: the result of the run is not stored, and its key is queued as it was. */
  get isTakenBack() {
    return this.#takenBack
  }

  get stale(): AbortSignal {
    return this.#stale.signal
  }

  async beginPass(): Promise<'announced here' | 'announced by a token'> {
    const { unseen } = this.#passes
    this.#passes = passes.begin(this.#passes)
    this.#causes = withCauses(this.#causes, ...unseen.map(({ causes }) => causes)).causes
    if (this.stale.aborted) this.#stale = new AbortController()
    for (const { delivery } of unseen) if (delivery) await this.#absorb(delivery)
    return unseen.some(({ delivery }) => delivery) ? 'announced by a token' : 'announced here'
  }

  async #absorb(delivery: Delivery): Promise<void> {
    const input = { held: this.#held, terms: this.#deps.terms }
    const result = await operate(this.#deps, absorb, input, this, { delivery, signal: this.signal })
    if (result === 'late') this.#lose('it ran out before it was renewed')
    this.signal.throwIfAborted()
  }

  /**
   * Informs the run of a change, with the token if one was delivered. Resolves to true when the change is safe: the end
   * of the run that has seen it, or the message that follows that run, is stored. Undefined: the run does not read
   * again.
   */
  note(causes: Causes | undefined, delivery?: Delivery): Promise<boolean> | undefined {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const note: ChangeNote = { delivery, causes, resolve }
    const noted = passes.note(this.#passes, note)
    if (noted === undefined) return undefined
    this.#passes = noted
    this.#stale.abort(STALE)
    const timer = setTimeout(() => this.#withdraw(note), this.#deps.ackWaitMs / 4)
    return promise.finally(() => clearTimeout(timer))
  }

  /**
   * Stores how the run ended. `endingNow` is called when the server's time is known. If the lease was lost, queues the
   * key instead: a bridge may have ignored watch events of the run's own writes.
   */
  async end(endingNow: () => Ending): Promise<FinishResult> {
    this.#passes = passes.close(this.#passes)
    let stored = false
    try {
      const result = await this.#conclude(endingNow)
      stored = true
      return result
    } finally {
      this.#resolveNotes(stored)
    }
  }

  async #conclude(endingNow: () => Ending): Promise<FinishResult> {
    const result = await this.#stop(endingNow)
    if (result.kind !== 'fenced' && result.kind !== 'unclear' && result.kind !== 'handed back') return result
    this.#lose('it was lost before the run ended')
    this.#deps.observer.onFenced?.(this.reconciler)
    this.#deps.log.warn(
      { reconciler: this.reconciler, key: this.key, result: result.kind },
      'run fenced: its key is queued again',
    )
    // A run that did not begin has written nothing, and another process may have set its timer.
    if (result.kind !== 'handed back' && this.isCalled)
      await enqueueKey(this.#deps, this, { lane: this.lane, attempt: 0, ...withCauses(this.#causes) })
    return { kind: 'fenced' }
  }

  /**
   * Aborts the run's signal. The lease is renewed until the run ends, so that no other run of the key begins before.
   */
  takeBack(): void {
    this.#takenBack = true
    this.#abortBecause('the worker shuts down')
  }

  async #stop(endingNow: () => Ending): Promise<FinishResult | { kind: 'handed back' }> {
    this.#ended = true
    clearTimeout(this.#timer)
    this.#timer = undefined
    await this.#renewal
    if (this.#deps.clock.sure() === undefined) await measured(this.#deps)
    const ending = endingNow()
    if (!this.#lost || ending.kind === 'postponed')
      return operate(this.#deps, finish, { held: this.#held, ending }, this)
    if (!this.#isUnanswered && ending.kind !== 'handback') return { kind: 'fenced' }
    // The record may still stand, also renewed by a request whose answer did not come. Then a token takes its place, so that
    // its end does not count as a run that was cut short.
    const result = await operate(this.#deps, finish, { held: this.#held, ending: { kind: 'handback' } }, this)
    return result.kind === 'queued' ? { kind: 'handed back' } : result
  }

  get #end(): number {
    return leaseEnd(this.#held.record, this.#deps.terms)
  }

  #renewInTime(): void {
    const { terms, clock } = this.#deps
    const { at, cuts } = this.#held.record
    const isOverdue = this.#progressed && cuts !== undefined
    const waitMs = isOverdue ? 0 : Math.max(0, at - (terms.leaseMs * 2) / 3 - clock.now())
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      this.#renewal = this.#renew()
    }, waitMs)
  }

  async #renew(): Promise<void> {
    const { terms, log } = this.#deps
    const answered = this.#watchForAnswer()
    try {
      const input = { held: this.#held, terms, progressed: this.#progressed, begins: this.#begun }
      const result = await operate(this.#deps, renew, input, this, { until: this.#end })
      if (result.kind === 'lost') return this.#lose('another worker may own the key')
      this.#held = result.held
      if (!this.#lost) this.#isUnanswered = false
      log.debug({ reconciler: this.reconciler, key: this.key, leaseUntil: this.until }, 'lease renewed')
    } catch (error) {
      log.error(
        { err: error, reconciler: this.reconciler, key: this.key },
        'lease not renewed: the run ends if it cannot finish in time',
      )
      // NATS refuses at once, and perhaps each time.
      await pause(terms.leaseMs / 10)
      if (this.#deps.clock.now() > this.#end) return this.#lose('it could not be renewed')
    } finally {
      answered()
    }
    if (!this.#ended) this.#renewInTime()
  }

  /**
   * Notes if the lease ends before NATS answers a renewal that is sent now. Not if it is sent late, or if the event loop
   * pauses meanwhile: then the answer may have waited for this process. Returns what to call when the answer has come.
   */
  #watchForAnswer(): () => void {
    const { terms, clock } = this.#deps
    const endsAt = this.#end
    let timer: NodeJS.Timeout | undefined
    const watch = () => {
      const waitMs = Math.min(endsAt - clock.now(), terms.leaseMs / 5)
      const dueAt = performance.now() + waitMs
      timer = setTimeout(() => {
        if (performance.now() - dueAt > terms.leaseMs / 5) return
        if (clock.now() >= endsAt) this.#isUnanswered = true
        else watch()
      }, waitMs)
    }
    if (clock.now() < endsAt - terms.leaseMs / 2) watch()
    return () => clearTimeout(timer)
  }

  #resolveNotes(stored: boolean): void {
    const { safe, unsafe } = passes.divide(this.#passes, stored)
    for (const { resolve } of safe) resolve(true)
    for (const { resolve } of unsafe) resolve(false)
  }

  /**
   * Withdraws a change from a run that takes long to read again. The change is then queued, so that the stream and
   * other processes have it.
   */
  #withdraw(note: ChangeNote): void {
    const without = passes.withdraw(this.#passes, note)
    if (without === undefined) return
    this.#passes = without
    note.resolve(false)
  }

  #lose(why: string): void {
    this.#lost = true
    this.#abortBecause(why)
  }

  #abortBecause(why: string): void {
    if (!this.signal.aborted)
      this.#abort.abort(new LeaseLostError(`the lease on ${this.reconciler} ${this.key} is over: ${why}`))
  }
}

/**
 * The changes that reached a run while it ran. A note is one change of its key; a pass sees the changes that were noted
 * before it began. A run that takes notes reads again before it ends, under the same record, instead of being followed
 * by another run. Changes that no pass has seen must be queued.
 */
export interface Passes<Note> {
  /** True from the beginning of the first pass until the run ends. */
  open: boolean
  /** The notes that came after the present pass had begun. */
  unseen: readonly Note[]
  /** The notes that are safe once the run's end is stored. */
  seen: readonly Note[]
}

export const passes = {
  /** The state of a run that takes no notes yet, because it may never read again. */
  none: { open: false, unseen: [], seen: [] },

  /** Begins the first or a further pass. Call before reading anything. */
  begin: <Note>({ unseen, seen }: Passes<Note>): Passes<Note> => ({
    open: true,
    unseen: [],
    seen: unseen.length === 0 ? seen : [...seen, ...unseen],
  }),

  /** Adds a note. Undefined: the run does not read again. */
  note: <Note>(present: Passes<Note>, note: Note): Passes<Note> | undefined =>
    present.open ? { ...present, unseen: [...present.unseen, note] } : undefined,

  /** Removes a note. Undefined: too late, because a pass has seen it. */
  withdraw: <Note>(present: Passes<Note>, note: Note): Passes<Note> | undefined =>
    present.unseen.includes(note)
      ? { ...present, unseen: present.unseen.filter((other) => other !== note) }
      : undefined,

  /** Ends the passes: from here on, the run reads nothing. */
  close: <Note>(present: Passes<Note>): Passes<Note> => ({ ...present, open: false }),

  /**
   * Divides the notes into safe changes and changes that must be queued. `stored`: the run's end, or a token instead of
   * it, is stored.
   */
  divide: <Note>(
    { seen, unseen }: Passes<Note>,
    stored: boolean,
  ): { safe: readonly Note[]; unsafe: readonly Note[] } =>
    stored ? { safe: seen, unsafe: unseen } : { safe: [], unsafe: [...seen, ...unseen] },
}
