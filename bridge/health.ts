import type { BridgeStatus, ResourceStatus } from './types.ts'
import type { Failure, State } from './watch-state.ts'

/**
 * The time after which an unanswered request, a watch that fails, or an unconfirmed change is no longer a temporary
 * failure.
 */
const PATIENCE_MS = 30_000
/** Within this time an open watch has received something, or it was opened again and the server has answered. */
const SILENCE_MS = 90_000

/**
 * Returns the reasons why a bridge does not work now; an empty list if it works. A resource that is missing or not
 * permitted does not count, because it is a fault of the Reconciler.
 */
export function troubles({ resources }: BridgeStatus, now: Date): string[] {
  if (resources.length === 0) return ['the bridge has not begun to watch']
  return resources.flatMap((resource) => {
    const trouble = troubleOf(resource, now)
    const where = resource.namespace === undefined ? '' : ` in ${resource.namespace}`
    return trouble === undefined ? [] : [`${resource.resource}${where}: ${trouble}`]
  })
}

/** Whether the API server refuses the watch, until somebody mends the cause. */
export const isRefused = ({ failure }: ResourceStatus): boolean =>
  failure !== undefined && ['absent', 'forbidden', 'rejected'].includes(failure.kind)

function troubleOf(resource: ResourceStatus, now: Date): string | undefined {
  const { failure, failingSince, heldBackSince, phase, unansweredSince, heardAt, synced } = resource
  const msSince = (date: Date): number => now.getTime() - date.getTime()
  const secondsSince = (date: Date): number => Math.round(msSince(date) / 1000)
  if (isRefused(resource)) return undefined
  if (heldBackSince && msSince(heldBackSince) > PATIENCE_MS)
    return `a change is not confirmed by NATS since ${secondsSince(heldBackSince)} s`
  if (failingSince && msSince(failingSince) > PATIENCE_MS)
    return `the watch fails since ${secondsSince(failingSince)} s${failure ? `: ${failure.message}` : ''}`
  if (unansweredSince && msSince(unansweredSince) > PATIENCE_MS)
    return `the API server has not answered the request for the watch for ${secondsSince(unansweredSince)} s`
  if (phase === 'watching' && heardAt && msSince(heardAt) > SILENCE_MS)
    return `the API server has sent nothing for ${secondsSince(heardAt)} s`
  return synced ? undefined : 'not synced yet'
}

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
