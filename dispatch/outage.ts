import { setTimeout as sleep } from 'node:timers/promises'
import { ApiConnectionError, ApiError, type KubeClient } from '#kube'
import { pause } from '#primitives'

/** How long one look for the API server may take. */
const LOOK_MS = 5000
/** The pause between two looks. */
const PAUSE_MS = { first: 250, most: 2000 }
/**
 * How long an API server that answers may report that it is not ready. It may do so for hours and serve all the same,
 * for example while the plugin that encrypts Secrets is away, and a proxy may answer the look itself.
 */
const NOT_READY_MS = 60_000
/** How long a run waits for the API server. Then its key waits in the queue, and its next run observes again. */
const PATIENCE_MS = 30_000

type Found = 'ready' | 'not ready' | 'away'

/** The API server does not answer, or is not ready, so the request and its run are not the cause. */
export class ApiServerAwayError extends ApiConnectionError {}

/**
 * Knows whether the API server is away. After a broken request, one look decides: if the API server answers, the request
 * may be the cause, and the error stays as it is. Otherwise no request of a run is sent until the API server answers.
 * Runs keep their slots meanwhile, so their workers take no further keys, and all other keys keep their place in the
 * queue.
 */
export class Outage {
  readonly #kube: Pick<KubeClient, 'get'>
  readonly #random: () => number
  readonly #notReadyMs: number
  #looking: Promise<Found> | undefined
  /** The outage at present. Resolves when it is over. */
  #present: { error: ApiServerAwayError; over: Promise<void> } | undefined

  constructor(kube: Pick<KubeClient, 'get'>, random: () => number, notReadyMs = NOT_READY_MS) {
    this.#kube = kube
    this.#random = random
    this.#notReadyMs = notReadyMs
  }

  get isPresent(): boolean {
    return this.#present !== undefined
  }

  /**
   * Resolves when the API server is not known to be away. Rejects with an ApiServerAwayError after a while, and at once
   * for a caller without a signal, because that caller may be about to end with its process.
   */
  async over(signal: AbortSignal | undefined): Promise<void> {
    const present = this.#present
    if (present === undefined) return
    if (signal !== undefined) {
      const enough = new AbortController()
      try {
        await Promise.race([present.over, pause(PATIENCE_MS, AbortSignal.any([signal, enough.signal]))])
      } finally {
        enough.abort()
      }
      signal.throwIfAborted()
    }
    if (this.#present !== undefined) throw present.error
  }

  /** Returns the error to throw for a request that has failed. */
  async judge(error: unknown): Promise<unknown> {
    if (!(error instanceof ApiConnectionError)) return error
    if (this.#present === undefined && (await this.#look()) === 'ready') return error
    const { message, server, mayHaveTakenEffect } = error
    const away = new ApiServerAwayError(message, { cause: error, server, mayHaveTakenEffect })
    this.#present ??= { error: away, over: this.#untilOver() }
    return away
  }

  async #untilOver(): Promise<void> {
    let notReadySince: number | undefined
    for (let waitMs = PAUSE_MS.first; ; waitMs = Math.min(2 * waitMs, PAUSE_MS.most)) {
      await sleep(waitMs * (0.5 + this.#random()), undefined, { ref: false })
      const found = await this.#look()
      if (found === 'ready') break
      notReadySince = found === 'away' ? undefined : (notReadySince ?? performance.now())
      if (notReadySince !== undefined && performance.now() - notReadySince >= this.#notReadyMs) break
    }
    this.#present = undefined
  }

  /**
   * Looks once for all that ask at the same time. An API server that starts answers before it knows who may do what, and
   * is not ready until then.
   */
  #look(): Promise<Found> {
    this.#looking ??= this.#kube
      .get('/readyz', { timeoutMs: LOOK_MS })
      .then(
        (): Found => 'ready',
        (error: unknown): Found => {
          if (error instanceof ApiConnectionError) return 'away'
          return error instanceof ApiError && error.code >= 500 ? 'not ready' : 'ready'
        },
      )
      .finally(() => {
        this.#looking = undefined
      })
    return this.#looking
  }
}
