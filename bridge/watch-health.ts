import type { Failure } from './failure.ts'
import type { ResourceStatus } from './types.ts'
import type { State } from './watch-state.ts'

/** A watch that was answered and broke off within this time has not got on. */
const SETTLED_MS = 1000

/** Whether the API server still speaks to one watch, and since when it owes an answer. */
export class WatchHealth {
  readonly #now: () => Date
  #unansweredSince: Date | undefined
  #openedAt: Date | undefined
  #heardAt: Date | undefined
  #failing: { since: Date; failure: Failure } | undefined

  constructor(now: () => Date) {
    this.#now = now
  }

  /** The request for a watch goes out. */
  asked(): void {
    this.#unansweredSince = this.#now()
  }

  /** The server has accepted it. */
  opened(): void {
    this.#unansweredSince = undefined
    this.#openedAt = this.#now()
    this.#heardAt = this.#openedAt
  }

  /** A list is complete, or a watch gave something. */
  succeeded(): void {
    this.#heardAt = this.#now()
    this.#failing = undefined
  }

  /** The watch is over. */
  closed(): void {
    if (this.#isSettled()) this.#failing = undefined
    this.#openedAt = undefined
  }

  /** What was tried has ended so: a request that was given up has failed for as long as it waited. */
  moved(to: State): void {
    if (to.phase === 'waiting') {
      const since = this.#failing?.since ?? this.#unansweredSince ?? this.#now()
      this.#failing = { since, failure: to.failure }
    }
    this.#unansweredSince = undefined
  }

  status(): Pick<ResourceStatus, 'open' | 'unansweredSince' | 'heardAt' | 'failingSince' | 'failure'> {
    const failing = this.#isSettled() ? undefined : this.#failing
    return {
      open: this.#openedAt !== undefined,
      unansweredSince: this.#unansweredSince,
      heardAt: this.#heardAt,
      failingSince: failing?.since,
      failure: failing?.failure,
    }
  }

  #isSettled(): boolean {
    return this.#openedAt !== undefined && this.#now().getTime() - this.#openedAt.getTime() >= SETTLED_MS
  }
}
