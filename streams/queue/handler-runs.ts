import type { Delivery, StoredMessage } from '#nats'
import type { ServerClock } from './clock.ts'
import { measured, operate, type QueueDeps } from './core.ts'
import { LeasedKey } from './leased-key.ts'
import type { HeldKey } from './machine.ts'
import type { KeyRecord } from './record.ts'
import { type TakeInput, take } from './take.ts'
import { endingOf, messageOf, timely } from './terms.ts'
import { backoffMs, DEFAULT_BACKOFF, type Finish, type HandBack, type ServeOptions } from './types.ts'
import { dueOf, hasBegun, isWatchdog, ownerOf } from './wire.ts'

const HANDBACK: HandBack = { kind: 'handback' }

/**
 * So many runs of a key may be cut short after they have changed something, until the key waits longer each time: a
 * function that changes something and then ends its process would otherwise end one process after the other.
 */
const LOSSES_WITH_PROGRESS = 8
/**
 * The wait after them stops doubling here: at 16 s with the default backoff. Something else may end the processes, and the
 * key gets further in each run.
 */
const MOST_COUNTED = 6

/** Runs the handler of a worker for leased keys, and stores how each run ended. */
export class HandlerRuns {
  readonly #deps: QueueDeps
  readonly #options: ServeOptions
  readonly #timers: OwnTimers
  readonly #leased = new Set<LeasedKey>()
  /** The latest run of each key. */
  readonly #current = new Map<string, LeasedKey>()

  constructor(deps: QueueDeps, options: ServeOptions, timers: OwnTimers) {
    this.#deps = deps
    this.#options = options
    this.#timers = timers
  }

  get size(): number {
    return this.#leased.size
  }

  /** Returns the latest run of a key, if it has not ended. */
  of(key: string): LeasedKey | undefined {
    return this.#current.get(key)
  }

  /**
   * Whether this token counts a run as cut short. Not if that run lives in this process, and only NATS was late or its
   * function was not called yet.
   */
  counts(key: string, message: StoredMessage): boolean {
    const run = this.#current.get(key)
    return run === undefined || run.owner !== ownerOf(message) || (run.isCalled && !run.isUnanswered)
  }

  takeBack(): void {
    for (const run of this.#leased) run.takeBack()
  }

  /**
   * Runs a key that this process holds, or queues it again if the run may not begin. `isPermitted` is asked before the
   * record says that the run begins, so that no lease ends between, `mayBegin` after that, and the clock last. Returns
   * whether the function was called.
   */
  async run(key: string, held: HeldKey, claim: KeyClaim, { isPermitted, mayBegin }: Turn): Promise<boolean> {
    const { message } = claim
    const enqueuedAt = this.#deps.clock.dateOf(queuedAt(this.#deps, claim))
    const fired = dueAt(claim) !== undefined
    const run = new LeasedKey(this.#deps, this.#options.reconciler, key, held, { fired, enqueuedAt })
    if (message && isWatchdog(message) && run.suspect) {
      await this.#postpone(run, claim.counts !== false && hasBegun(message))
      return false
    }
    this.#leased.add(run)
    this.#current.set(key, run)
    try {
      const mayRun = (await isPermitted()) && (await run.begin()) && mayBegin() && run.isInTime
      await (mayRun ? this.#toItsEnd(run) : run.end(() => HANDBACK))
      return mayRun
    } finally {
      this.#leased.delete(run)
      if (this.#current.get(key) === run) this.#current.delete(key)
    }
  }

  async #toItsEnd(run: LeasedKey): Promise<void> {
    const { reconciler, key } = run
    const began = performance.now()
    run.isCalled = true
    const finish = await this.#handle(run)
    const result = await run.end(endingOf(finish, this.#deps.clock))
    if (result.kind === 'waiting') this.#timers.remember(key, result.record)
    const isFenced = result.kind === 'fenced'
    if (!isFenced) this.#deps.observer.onFinish?.(reconciler, finish.kind, performance.now() - began)
    this.#options.onFinished?.(run, isFenced ? 'fenced' : 'finished')
  }

  /**
   * Delays a suspect whose lease has ended, so that it does not crash one process after the other. A lease under which no
   * run began adds the shortest wait only: the wait for a run before it may have ended in that lease.
   */
  async #postpone(run: LeasedKey, isCounted: boolean): Promise<void> {
    const { reconciler, key, cuts, losses } = run
    const { clock, log, observer } = this.#deps
    const fields = { reconciler, key, cuts, losses }
    if (isCounted) observer.onLost?.(reconciler)
    if (isCounted) log.warn(fields, 'run cut short again, its process was lost: the key waits')
    else log.warn(fields, 'the lease of a suspect was lost in vain: the key waits for a moment')
    await run.end(() => ({
      kind: 'postponed',
      at: clock.now() + this.#backoffMs(isCounted ? countedLosses(cuts, losses) : 0),
      message: isCounted ? lostMessage(cuts) : 'its lease was lost in vain',
    }))
  }

  #backoffMs(attempt: number): number {
    return backoffMs(attempt, this.#options.backoff ?? DEFAULT_BACKOFF, this.#deps.random)
  }

  async #handle(run: LeasedKey): Promise<Finish | HandBack> {
    try {
      const finish = timely(await this.#options.handler(run))
      return run.isTakenBack ? HANDBACK : finish
    } catch (error) {
      if (run.isTakenBack) return HANDBACK
      const { reconciler, key } = run
      if (!run.signal.aborted) this.#deps.log.warn({ err: error, reconciler, key }, 'run failed')
      return { kind: 'error', message: messageOf(error), retryAt: { afterMs: this.#backoffMs(run.attempt) } }
    }
  }
}

/** Whether a run may begin, apart from its lease. */
interface Turn {
  isPermitted: () => Promise<boolean>
  mayBegin: () => boolean
}

/** The input for taking a key. */
export interface KeyClaim {
  input: Pick<TakeInput, 'token' | 'direct' | 'seen' | 'waiting' | 'isDue'>
  /** The token of the key, as it is stored. */
  message: StoredMessage | undefined
  /** The moment when the claim reached this process, as the clock's `moment()` returns it. */
  cameAt: number
  /** The time after `cameAt` during which the key may be taken, in milliseconds. */
  freshMs: number
  /** The delivery of the token. Undefined: the token was not delivered. */
  delivery: Delivery | undefined
  /** False: `message` follows from a lease whose end does not count. */
  counts?: boolean
  /** True: a token of the key with a count of failures may exist although none was delivered. It is looked up first. */
  mayBeQueued?: boolean
  onOccupied?: () => void
}

/** Returns when the key began to wait, in the server's time. */
const queuedAt = ({ clock }: QueueDeps, claim: KeyClaim): number =>
  claim.message?.storedAt ?? dueAt(claim) ?? clock.timeOf(claim.cameAt)

/** Returns when the timer that caused this claim was due, in the server's time. Undefined: no timer caused it. */
export const dueAt = ({ message, input }: KeyClaim): number | undefined =>
  input.isDue ? input.waiting?.at : message && dueOf(message)

/** Takes the key under a lease. Undefined: the key must not run now, or not in this process. */
export async function takeKey(
  deps: QueueDeps,
  of: { reconciler: string; key: string },
  claim: KeyClaim,
  signal: AbortSignal,
): Promise<HeldKey | undefined> {
  const { js, names, clock, terms, observer, log, instance } = deps
  const { delivery } = claim
  if (claim.mayBeQueued && (await js.lastOf(names.stream, names.tokens(of.reconciler, of.key)))) return undefined
  if (clock.sure() === undefined) await measured(deps, { signal })
  const freshUntil = clock.timeOf(claim.cameAt) + claim.freshMs
  const claimed = { ...claim.input, freshUntil, nonce: deps.nonce(), by: instance, terms }
  const result = await operate(deps, take, claimed, of, { delivery, signal })
  if (result.kind === 'dropped') log.warn({ ...of, because: result.because }, 'token not taken')
  if (result.kind === 'occupied') claim.onOccupied?.()
  if (result.kind !== 'leased') return undefined
  const due = dueAt(claim)
  const queued = queuedAt(deps, claim)
  observer.onTake?.(of.reconciler, Math.max(0, clock.now() - queued), due && queued - due)
  return result.held
}

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

const lostMessage = (cuts: number): string =>
  `its process was lost again, during ${cuts === 1 ? 'the run' : `${cuts} runs in a row`}`

/** Returns the number of lost runs by which a key waits: those in a row, or some of those that changed something. */
export const countedLosses = (cuts: number, losses: number): number =>
  Math.max(cuts - 1, Math.min(losses - LOSSES_WITH_PROGRESS, MOST_COUNTED))
