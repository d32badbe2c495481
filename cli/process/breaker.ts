import { type BridgeStatus, silentWatch } from '#bridge'
import type { RequestReport } from '#kube'

/** So many failures within this time show that the API server is away, and not that one request has failed. */
const FAILURES = 3
const WITHIN_MS = 30_000

/** Thrown for a cluster that has to be left until it answers again. */
export class ClusterAwayError extends Error {
  override readonly name = 'ClusterAwayError'
}

/**
 * Notices that the API server of a cluster no longer answers: 3 requests without an answer, or with a refused credential,
 * within 30 s, or a watch that is silent for 75 s.
 */
export class Breaker {
  readonly #open: (why: ClusterAwayError) => void
  readonly #now: () => number
  #failures: number[] = []

  /** `open` may be called several times. */
  constructor(open: (why: ClusterAwayError) => void, now: () => number = Date.now) {
    this.#open = open
    this.#now = now
  }

  readonly requested = ({ isUnanswered, code, method, path }: RequestReport): void => {
    if (!isUnanswered && code !== '401') return
    const now = this.#now()
    this.#failures = [...this.#failures.filter((at) => now - at < WITHIN_MS), now]
    if (this.#failures.length < FAILURES) return
    const how = isUnanswered ? 'was not answered' : 'was refused: the server does not accept the credential'
    this.#open(
      new ClusterAwayError(`${FAILURES} requests failed within ${WITHIN_MS / 1000} s: ${method} ${path} ${how}`),
    )
  }

  /** Judges the watches of the bridge. */
  watched(status: BridgeStatus): void {
    const resource = silentWatch(status, new Date(this.#now()))
    if (resource !== undefined) this.#open(new ClusterAwayError(`the watch of ${resource} is silent`))
  }
}
