import type { Failure } from './failure.ts'
import type { ResourceStatus } from './types.ts'
import type { State } from './watch-state.ts'

/** A watch that was answered, but interrupted within this time, counts as failed. */
const SETTLED_MS = 1000

/** Whether the API server sends data to one watch, and since when an answer is missing. */
export class WatchHealth {
  readonly #now: () => Date
  #unansweredSince: Date | undefined
  #openedAt: Date | undefined
  #heardAt: Date | undefined
  #failing: { since: Date; failure: Failure } | undefined

  constructor(now: () => Date) {
    this.#now = now
  }

  /** Notes that the request for a watch is sent. */
  asked(): void {
    this.#unansweredSince = this.#now()
  }

  /** Notes that the server has accepted the watch. */
  opened(): void {
    this.#unansweredSince = undefined
    this.#openedAt = this.#now()
    this.#heardAt = this.#openedAt
  }

  /** Notes a complete list, or data of a watch. */
  succeeded(): void {
    this.#heardAt = this.#now()
    this.#failing = undefined
  }

  /** Notes the end of the watch. */
  closed(): void {
    if (this.#isSettled()) this.#failing = undefined
    this.#openedAt = undefined
  }

  /** Notes the result of an attempt. A request that was given up has failed since it was sent. */
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
