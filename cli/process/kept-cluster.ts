import { isDeepStrictEqual } from 'node:util'
import type { RunLog, Runnable } from '#contracts'
import type { Dispatcher } from '#dispatch'
import { ApiConnectionError, ApiError, type KubeClient } from '#kube'
import { NatsUnreachableError, StreamLostError } from '#nats'
import { allEnded, doubling, pause, repeat, retry, unlessAborted } from '#primitives'
import { Breaker } from './breaker.ts'
import { AnotherClusterError, clusterId, requireSameCluster } from './kube.ts'
import type { ServedCluster, ServeTerms } from './served-cluster.ts'

export interface ClusterStatus {
  /**
   * Starting: it was not served yet. Up: it is served. Away: it, or NATS, does not answer. Refused: somebody has to change
   * something first, such as its credential.
   */
  state: 'Starting' | 'Up' | 'Away' | 'Refused'
  /** Since when it is served, or is not. */
  since: Date
  reason?: string
}

export interface KeptClusterDeps {
  open: (hooks: Pick<ServeTerms, 'onRequest' | 'lost' | 'admit'>) => Promise<ServedCluster>
  /** Notes the UID of the cluster until it is disposed. Throws if another entry has it. */
  claim: (uid: string) => Disposable
  /** Returns what the connection is made of, without tokens, which are renewed while it is open. */
  access: () => Promise<unknown>
  /** Aborted when the process ends. */
  ending: AbortSignal
  log: RunLog
  random?: () => number
}

/** How long the API server may take to answer a probe. */
const PROBE_MS = 5000
/** The pauses between two attempts to open the cluster. */
const [FIRST_PAUSE_MS, LAST_PAUSE_MS] = [5000, 30_000]
/** A cluster that was served for so long is opened again at once, or after the first pause. */
const STEADY_MS = 60_000
const LOOK_EVERY_MS = 5000
const CALLS_EVERY_MS = 100

/** Thrown when a cluster is left only to be opened again. */
class ReopenError extends Error {}

/**
 * Serves one of the clusters of a process while it answers. While it is away, it has no bridge and no dispatcher: no key is
 * taken, and what waits stays in its streams. Probes find out when it is back. Then everything continues from the streams,
 * as after a start of the process, and the keys run in the order of the queue. None of this is an error of the process.
 */
export class KeptCluster implements Runnable {
  readonly #deps: KeptClusterDeps
  #status: ClusterStatus = { state: 'Starting', since: new Date() }
  #served: ServedCluster | undefined
  /** The cluster that was served last. While it is away, no copy of it is served in its place. */
  #claimed: { id: string; claim: DisposableStack } | undefined
  #openedAt = Number.POSITIVE_INFINITY
  #calls: ReturnType<Dispatcher['calls']> = []

  constructor(deps: KeptClusterDeps) {
    this.#deps = deps
  }

  get status(): ClusterStatus {
    return this.#status
  }

  /** Undefined: it is not open. A cluster that is away is open until it has drained. */
  get served(): ServedCluster | undefined {
    return this.#served
  }

  /** The calls of functions that had not ended when the cluster was closed. */
  get calls(): ReturnType<Dispatcher['calls']> {
    return this.#calls
  }

  /** Resolves when the signal is aborted and everything has ended. Each other end is followed by a probe. */
  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    await this.#keep(signal, graceMs).finally(() => this.#claimed?.claim.dispose())
  }

  async #keep(signal: AbortSignal, graceMs: number): Promise<void> {
    const { random = Math.random } = this.#deps
    let pauseMs = doubling(FIRST_PAUSE_MS, LAST_PAUSE_MS)
    while (!signal.aborted) {
      this.#openedAt = Number.POSITIVE_INFINITY
      let isReopening = false
      try {
        await this.#serve(signal, graceMs)
      } catch (error) {
        if (signal.aborted) return
        this.#note(error)
        isReopening = isReopened(error)
      }
      if (performance.now() - this.#openedAt > STEADY_MS) {
        if (isReopening) continue
        pauseMs = doubling(FIRST_PAUSE_MS, LAST_PAUSE_MS)
      }
      // Clusters behind one broken network are not probed together.
      await pause(pauseMs() * (0.75 + random() / 4), signal)
    }
  }

  /** Serves the cluster until the signal, or until it has to be left, and throws the reason when everything has ended. */
  async #serve(signal: AbortSignal, graceMs: number): Promise<void> {
    const left = new AbortController()
    const leave = (why: unknown) => {
      if (left.signal.aborted) return
      left.abort(why)
      if (this.#served !== undefined && !signal.aborted) this.#note(why)
    }
    const breaker = new Breaker()
    const stop = AbortSignal.any([signal, left.signal])
    // A plugin for credentials may hang.
    const access = await unlessAborted(this.#deps.access(), stop)
    using claims = new DisposableStack()
    const probe = (kube: KubeClient, how = {}) => clusterId(kube, { timeoutMs: PROBE_MS, signal: stop, ...how })
    let id = ''
    const admit = async (kube: KubeClient) => {
      id = await probe(kube)
      // Nobody would give the claim of a cluster back that was left meanwhile.
      stop.throwIfAborted()
      if (id !== this.#claimed?.id) claims.use(this.#deps.claim(id))
    }
    await using served = await this.#opened({ onRequest: breaker.requested, lost: leave, admit }, stop)
    this.#served = served
    if (id !== this.#claimed?.id) {
      this.#claimed?.claim.dispose()
      this.#claimed = { id, claim: claims.move() }
    }
    this.#openedAt = performance.now()
    this.#set({ state: 'Up' })
    const { runtime, kube } = served
    const look = async () => {
      const now = await breaker.judge((how) => probe(kube, how))
      if (now !== undefined) requireSameCluster(now, id)
    }
    const follow = this.#followAccess(access, stop)
    try {
      const often = { signal: stop, everyMs: LOOK_EVERY_MS, failed: leave }
      const running = [runtime.run(stop, graceMs), repeat(look, often), repeat(follow, often)]
      for (const part of running) part.catch(leave)
      await allEnded(running)
      // A call that ignores its signal keeps the lease of its key while this connection to NATS is open.
      const { ending } = this.#deps
      while (!ending.aborted && runtime.dispatcher?.calls().length) await pause(CALLS_EVERY_MS, ending)
      // Runs may have stored what they have written there.
      if (left.signal.reason instanceof AnotherClusterError) await this.#unlisted(served, signal)
    } finally {
      this.#calls = runtime.dispatcher?.calls() ?? []
      this.#served = undefined
    }
    left.signal.throwIfAborted()
  }

  /**
   * Returns a look at the kubeconfig, which rejects when it was changed. A change that is there for one look only does not
   * count: a file that is being written may show a part of itself.
   */
  #followAccess(access: unknown, signal: AbortSignal): () => Promise<void> {
    let seen = access
    return async () => {
      const now = await unlessAborted(this.#deps.access(), signal).catch(() => access)
      const isChanged = !isDeepStrictEqual(now, access) && isDeepStrictEqual(now, seen)
      seen = now
      if (isChanged) throw new ReopenError('its kubeconfig has changed')
    }
  }

  async #unlisted({ runtime }: ServedCluster, signal: AbortSignal): Promise<void> {
    const pauseMs = (error: unknown) => {
      this.#deps.log.warn({ err: error }, 'that everything has to be listed again could not be stored: it is repeated')
      return FIRST_PAUSE_MS
    }
    await retry(async () => runtime.bridge?.unlist(), { signal, pauseMs })
  }

  /** Does not wait for servers that hang when the cluster is to be left. */
  async #opened(hooks: Parameters<KeptClusterDeps['open']>[0], stop: AbortSignal): Promise<ServedCluster> {
    const opening = this.#deps.open(hooks)
    try {
      return await unlessAborted(opening, stop)
    } catch (error) {
      void opening.then((late) => late[Symbol.asyncDispose]()).catch(() => undefined)
      throw error
    }
  }

  #note(error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error)
    this.#set({ state: isReopened(error) ? 'Starting' : isAway(error) ? 'Away' : 'Refused', reason })
  }

  #set({ state, reason }: Omit<ClusterStatus, 'since'>): void {
    const { state: before, reason: known, since } = this.#status
    const isSame = (state === 'Up') === (before === 'Up')
    this.#status = { state, since: isSame ? since : new Date(), ...(reason !== undefined && { reason }) }
    if (state === 'Up') this.#deps.log.info({ state }, 'cluster')
    else if (state !== before || reason !== known) this.#deps.log.warn({ state, because: reason }, 'cluster')
  }
}

const isReopened = (error: unknown): boolean =>
  [ReopenError, StreamLostError, AnotherClusterError].some((one) => error instanceof one)

const isAway = (error: unknown): boolean =>
  error instanceof ApiConnectionError ||
  error instanceof NatsUnreachableError ||
  (error instanceof ApiError && (error.code >= 500 || error.code === 429))
