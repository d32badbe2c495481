import { ApiConnectionError, ApiError, type RequestReport } from '#kube'

/** So many probes fail in a row before a cluster is left. A restart of an API server takes less time than they do. */
const FAILURES = 3

/**
 * Decides that the API server of a cluster is away. A request that hangs does not show it, and neither does a watch: the
 * webhook of one tenant may be the cause. A probe asks for one object, and counts as failed only if no other request of this
 * process was answered since the probe before.
 */
export class Breaker {
  #failures = 0

  /** Notes a request that has ended. */
  readonly requested = ({ code }: Pick<RequestReport, 'code'>): void => {
    // A server that has lost its store answers too, and so does one that does not accept the credential.
    if (Number(code) < 500 && code !== '401') this.#failures = 0
  }

  /**
   * Returns the answer of the probe. Undefined: it has failed, which says nothing yet. Rejects with its error when the cluster
   * has to be left. `alone`: requests that hang may hold all other connections.
   */
  async judge<T>(probe: (how: { alone: boolean }) => Promise<T>): Promise<T | undefined> {
    try {
      const answer = await probe({ alone: this.#failures > 0 })
      this.#failures = 0
      return answer
    } catch (error) {
      if (!isFailure(error)) return undefined
      if (++this.#failures >= FAILURES) throw error
      return undefined
    }
  }
}

const isFailure = (error: unknown): boolean =>
  error instanceof ApiConnectionError || (error instanceof ApiError && (error.code === 401 || error.code >= 500))
