import { backoffMs, DEFAULT_BACKOFF } from './backoff.ts'
import { type Claim, dueAt, queuedAt } from './claim.ts'
import { isWatchdog } from './codec.ts'
import type { Core } from './core.ts'
import { endingOf, timely } from './due.ts'
import type { HeldKey } from './lease.ts'
import { LeasedKey } from './leased-key.ts'
import { messageOf } from './message-of.ts'
import type { OwnTimers } from './own-timers.ts'
import type { Finish, HandBack, ServeOptions } from './types.ts'

const HANDBACK: HandBack = { kind: 'handback' }

/** Runs the handler of a worker for leased keys, and stores how each run ended. */
export class HandlerRuns {
  readonly #core: Core
  readonly #options: ServeOptions
  readonly #timers: OwnTimers
  readonly #leased = new Set<LeasedKey>()
  /** The latest run of each key. */
  readonly #current = new Map<string, LeasedKey>()

  constructor(core: Core, options: ServeOptions, timers: OwnTimers) {
    this.#core = core
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

  takeBack(): void {
    for (const run of this.#leased) run.takeBack()
  }

  async run(key: string, held: HeldKey, claim: Claim, isDraining: boolean): Promise<void> {
    const { reconciler, onFinished } = this.#options
    const { message } = claim
    const enqueuedAt = this.#core.clock.dateOf(queuedAt(this.#core, claim))
    const fired = dueAt(claim) !== undefined
    const run = new LeasedKey(this.#core, reconciler, key, held, { fired, enqueuedAt })
    if (isDraining) return void (await run.end(() => HANDBACK))
    if (message && isWatchdog(message) && run.suspect) return this.#postpone(run)
    this.#leased.add(run)
    this.#current.set(key, run)
    try {
      const began = performance.now()
      const finish = await this.#handle(run)
      const result = await run.end(endingOf(finish, this.#core.clock))
      if (result.kind === 'waiting') this.#timers.remember(key, result.record)
      const isFenced = result.kind === 'fenced'
      if (!isFenced) this.#core.observer.onFinish?.(reconciler, finish.kind, performance.now() - began)
      onFinished?.(run, isFenced ? 'fenced' : 'finished')
    } finally {
      this.#leased.delete(run)
      if (this.#current.get(key) === run) this.#current.delete(key)
    }
  }

  /** Delays a key whose runs crash their process, so that it does not crash one process after the other. */
  async #postpone(run: LeasedKey): Promise<void> {
    const { reconciler, key, cuts } = run
    const { clock, log } = this.#core
    log.warn({ reconciler, key, cuts }, 'run cut short again, its process was lost: the key waits')
    await run.end(() => ({
      kind: 'postponed',
      at: clock.now() + this.#backoffMs(cuts - 1),
      message: `its process was lost during the run, ${cuts === 1 ? 'once' : `${cuts} times in a row`}`,
    }))
  }

  #backoffMs(attempt: number): number {
    return backoffMs(attempt, this.#options.backoff ?? DEFAULT_BACKOFF, this.#core.random)
  }

  async #handle(run: LeasedKey): Promise<Finish | HandBack> {
    try {
      const finish = timely(await this.#options.handler(run))
      return run.isTakenBack ? HANDBACK : finish
    } catch (error) {
      if (run.isTakenBack) return HANDBACK
      const { reconciler, key } = run
      if (!run.signal.aborted) this.#core.log.warn({ err: error, reconciler, key }, 'run failed')
      return { kind: 'error', message: messageOf(error), retryAt: { afterMs: this.#backoffMs(run.attempt) } }
    }
  }
}
