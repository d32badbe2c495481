import { setTimeout as sleep } from 'node:timers/promises'
import { ApiConnectionError, ApiError, type KubeClient } from '#kube'
import { pause } from '#primitives'
import { SERVER_AWAY, STORE_FULL } from '#reconcile'

/** The order of one reconciler's writes. Lower values go first. */
export const PRIORITY = { create: 0, delete: 1, status: 2 } as const
export type Priority = (typeof PRIORITY)[keyof typeof PRIORITY]

export interface Caller {
  reconciler: string
  /** The namespace of the primary. Undefined: it has none, or the request is for the Reconciler itself. */
  namespace?: string | undefined
  kind: 'read' | 'event' | Priority
}

/** The result of a request that was dropped before its turn. */
export const DROPPED: unique symbol = Symbol('dropped')

export interface GateOptions {
  signal?: AbortSignal
  /** When aborted, the request leaves the line and is dropped. */
  unwanted?: AbortSignal
}

type Class = 'read' | 'write' | 'event'

/**
 * The order of turns while all classes wait. A turn that its class does not need goes to the first waiting class of
 * FALLBACK.
 */
const CYCLE: readonly Class[] = ['write', 'read', 'write', 'read', 'write', 'read', 'write', 'event']
const FALLBACK: readonly Class[] = ['write', 'read', 'event']

/**
 * Limits the concurrent API requests of all reconcilers together. While all classes wait, four of eight requests are
 * writes, three are reads and one is an Event. Within a class, reconcilers take turns. A status waits for the creates
 * and deletes of the same reconciler, but at most for one stage of each other key, because a key whose status waits
 * sends no other request.
 */
export class Gate {
  readonly #limit: number
  readonly #outage: Outage | undefined
  readonly #requested: (caller: Caller) => void
  readonly #waiting: Record<Class, FairQueue<() => void>> = {
    read: new FairQueue(),
    write: new FairQueue(),
    event: new FairQueue(),
  }
  readonly #pace = new Pace()
  #inFlight = 0
  #turn = 0

  /**
   * `outage`: requests wait while the API server is away. Left out: each request is sent in its turn. `requested`: called
   * after each request.
   */
  constructor(limit: number, outage?: Outage, requested: (caller: Caller) => void = () => undefined) {
    this.#limit = limit
    this.#outage = outage
    this.#requested = requested
  }

  get inFlight(): number {
    return this.#inFlight
  }

  get waiting(): number {
    return FALLBACK.reduce((sum, one) => sum + this.#waiting[one].size, 0)
  }

  /** Why requests wait, or that they take long. Undefined: neither. */
  get trouble(): string | undefined {
    return this.#outage?.why ?? this.#pace.trouble
  }

  /** Rejects with the signal's reason if the signal is aborted before the request begins. */
  async run<T>(
    caller: Caller,
    request: () => Promise<T>,
    { signal, unwanted }: GateOptions = {},
  ): Promise<T | typeof DROPPED> {
    signal?.throwIfAborted()
    if (this.#outage?.isPresent) await this.#outage.over(signal)
    if (unwanted?.aborted) return DROPPED
    if ((await this.#admission(caller, signal, unwanted)) === DROPPED) return DROPPED
    const began = performance.now()
    try {
      const answer = await request()
      if (typeof caller.kind === 'number') this.#outage?.wrote()
      return answer
    } catch (error) {
      throw this.#outage === undefined ? error : await this.#outage.judge(error)
    } finally {
      this.#pace.note(performance.now() - began)
      this.#requested(caller)
      this.#inFlight--
      this.#admit()
    }
  }

  #admission(
    { reconciler, kind }: Caller,
    signal?: AbortSignal,
    unwanted?: AbortSignal,
  ): Promise<typeof DROPPED | void> {
    return new Promise((resolve, reject) => {
      const turns = this.#waiting[typeof kind === 'number' ? 'write' : kind]
      const stopListening = () => {
        signal?.removeEventListener('abort', refuse)
        unwanted?.removeEventListener('abort', drop)
      }
      const leave = () => {
        stopListening()
        turns.remove(reconciler, start)
      }
      const start = () => (stopListening(), this.#inFlight++, resolve())
      const refuse = () => (leave(), reject(signal?.reason as Error))
      const drop = () => (leave(), resolve(DROPPED))
      turns.add(reconciler, start, typeof kind === 'number' ? kind : 0)
      signal?.addEventListener('abort', refuse)
      unwanted?.addEventListener('abort', drop)
      this.#admit()
    })
  }

  #admit(): void {
    while (this.#inFlight < this.#limit) {
      const start = this.#next()
      if (start === undefined) return
      start()
    }
  }

  #next(): (() => void) | undefined {
    const whose = [CYCLE[this.#turn] ?? 'write', ...FALLBACK].find((one) => this.#waiting[one].size > 0)
    if (whose === undefined) return undefined
    this.#turn = (this.#turn + 1) % CYCLE.length
    return this.#waiting[whose].take()
  }
}

/** Half of the last requests took longer than this: the server is overloaded or far away, or a webhook of it is slow. */
const SLOW_MS = 1000
/** So many requests are judged, if they have ended within this time. */
const JUDGED = { requests: 16, withinMs: 60_000 }

/** How long the last requests took. */
class Pace {
  #last: { at: number; ms: number }[] = []

  note(ms: number): void {
    this.#last = [...this.#last, { at: performance.now(), ms }].slice(-JUDGED.requests)
  }

  get trouble(): string | undefined {
    const since = performance.now() - JUDGED.withinMs
    const recent = this.#last.flatMap(({ at, ms }) => (at > since ? [ms] : [])).toSorted((a, b) => a - b)
    const median = recent[recent.length >> 1] ?? 0
    if (recent.length < JUDGED.requests || median < SLOW_MS) return undefined
    return `the API server is slow: half of the last ${JUDGED.requests} requests took longer than ${(median / 1000).toFixed(1)} s`
  }
}

/** A fair queue of the items of several parties. The parties take turns: each take() returns an item of the next party. */
export class FairQueue<Item> {
  /** Items by party and rank. The next party is the first entry. A party without items has no entry. */
  readonly #waiting = new Map<string, Item[][]>()
  #size = 0

  get size(): number {
    return this.#size
  }

  sizeOf(party: string): number {
    return countOf(this.#waiting.get(party) ?? [])
  }

  /** Adds an item. Within one party, items of a lower rank are taken first. */
  add(party: string, item: Item, rank = 0): void {
    const lines = this.#waiting.get(party) ?? []
    while (lines.length <= rank) lines.push([])
    lines[rank]?.push(item)
    this.#waiting.set(party, lines)
    this.#size++
  }

  take(): Item | undefined {
    const [turn] = this.#waiting
    if (turn === undefined) return undefined
    const [party, lines] = turn
    const item = lines.find((line) => line.length > 0)?.shift()
    this.#waiting.delete(party)
    if (countOf(lines) > 0) this.#waiting.set(party, lines)
    this.#size--
    return item
  }

  remove(party: string, item: Item): void {
    const lines = this.#waiting.get(party) ?? []
    const line = lines.find((one) => one.includes(item))
    if (line === undefined) return
    line.splice(line.indexOf(item), 1)
    this.#size--
    if (countOf(lines) === 0) this.#waiting.delete(party)
  }

  /** Removes the first item of the party's lowest rank. */
  dropOldest(party: string): void {
    const oldest = this.#waiting.get(party)?.find((line) => line.length > 0)?.[0]
    if (oldest !== undefined) this.remove(party, oldest)
  }
}

const countOf = (lines: readonly unknown[][]): number => lines.reduce((sum, line) => sum + line.length, 0)

/** How long one look for the API server may take. */
const LOOK_MS = 5000
/** The pause between two looks. */
const PAUSE_MS = { first: 250, most: 2000 }
/**
 * How long an API server that answers may report that it is not ready. It may do so for hours and serve all the same, and
 * a proxy may answer the look itself.
 */
const NOT_READY_MS = 60_000
/** The pause between two tries of an API server whose store is full. */
const FULL_PAUSE_MS = 10_000
/** How long a run waits for the API server. Then its key waits in the queue, and its next run observes again. */
const PATIENCE_MS = 30_000

/**
 * What a look has found, and why. Without etcd an API server can neither read nor write, so it is as good as one that does
 * not answer.
 */
type Found = { state: 'ready' } | { state: 'not ready' | 'away'; why: string }

/** The API server does not answer, is not ready or cannot write, so the request and its run are not the cause. */
export class ApiServerAwayError extends ApiConnectionError {
  override readonly name = 'ApiServerAwayError'
  constructor(why: string, options: ErrorOptions & { server: string; wasSent: boolean; isFull?: boolean }) {
    super((options.isFull === true ? STORE_FULL : SERVER_AWAY) + why, options)
  }
}

/**
 * Knows whether the API server is away. After a request that was not handled, one look decides: if the API server is ready,
 * the request may be the cause, and the error stays as it is. Otherwise no request of a run is sent until it is ready.
 * Runs keep their slots meanwhile, so their workers take no further keys, and all other keys keep their place in the
 * queue.
 */
export class Outage {
  readonly #kube: Pick<KubeClient, 'get' | 'host'>
  readonly #random: () => number
  readonly #notReadyMs: number
  #looking: Promise<Found> | undefined
  /** The outage at present. Resolves when it is over. */
  #present: { why: string; over: Promise<void> } | undefined
  /** Its store is full: it answers reads and refuses writes. Requests are sent again at that time, and find out. */
  #full: { why: string; retryAt: number } | undefined
  /** It has reported for long that it is not ready, so that it probably serves all the same. */
  #servesUnready = false
  readonly #ended = new AbortController()

  constructor(kube: Pick<KubeClient, 'get' | 'host'>, random: () => number, notReadyMs = NOT_READY_MS) {
    this.#kube = kube
    this.#random = random
    this.#notReadyMs = notReadyMs
  }

  get isPresent(): boolean {
    return this.#present !== undefined || this.#full !== undefined
  }

  get why(): string | undefined {
    if (this.#present !== undefined) return SERVER_AWAY + this.#present.why
    return this.#full && STORE_FULL + this.#full.why
  }

  /** Notes that the API server has written something. */
  wrote(): void {
    this.#full = undefined
  }

  /**
   * Resolves when the API server is not known to be away, or is to be tried again. Rejects with an ApiServerAwayError after a while, and at once
   * for a caller without a signal, because that caller may be about to end with its process.
   */
  async over(signal: AbortSignal | undefined): Promise<void> {
    if (this.#full !== undefined) await this.#untilTried(this.#full, signal)
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
    if (this.#present !== undefined)
      throw new ApiServerAwayError(this.#present.why, { server: this.#kube.host, wasSent: false })
  }

  async #untilTried(
    { why, retryAt }: { why: string; retryAt: number },
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (signal === undefined)
      throw new ApiServerAwayError(why, { server: this.#kube.host, wasSent: false, isFull: true })
    await pause(Math.max(0, retryAt - performance.now()), signal)
    signal.throwIfAborted()
  }

  /** Returns the error to throw for a request that has failed. */
  async judge(error: unknown): Promise<unknown> {
    if (!mayBeAway(error)) return error
    if (isOfFullStore(error)) {
      const why = `${this.#kube.host} has no space left (${NO_SPACE})`
      this.#full = { why, retryAt: performance.now() + FULL_PAUSE_MS * (0.5 + this.#random()) }
      return new ApiServerAwayError(error.message, {
        cause: error,
        server: this.#kube.host,
        wasSent: true,
        isFull: true,
      })
    }
    if (this.#present === undefined && !(await this.#begins()) && !isUnsent(error)) return error
    const wasSent = error instanceof ApiError || error.wasSent
    return new ApiServerAwayError(error.message, { cause: error, server: this.#kube.host, wasSent })
  }

  /** Looks no more: nobody waits for the API server. */
  end(): void {
    this.#ended.abort()
  }

  /** Looks for the API server. Returns whether an outage is present then. */
  async #begins(): Promise<boolean> {
    const found = await this.#look()
    if (found.state === 'ready') this.#servesUnready = false
    if (found.state === 'ready' || (found.state === 'not ready' && this.#servesUnready)) return false
    this.#present ??= { why: found.why, over: this.#untilOver() }
    return true
  }

  async #untilOver(): Promise<void> {
    let notReadySince: number | undefined
    for (let waitMs = PAUSE_MS.first; ; waitMs = Math.min(2 * waitMs, PAUSE_MS.most)) {
      const { signal } = this.#ended
      await sleep(waitMs * (0.5 + this.#random()), undefined, { ref: false, signal }).catch(() => undefined)
      if (signal.aborted) break
      const { state } = await this.#look()
      if (state === 'ready') break
      notReadySince = state === 'away' ? undefined : (notReadySince ?? performance.now())
      this.#servesUnready = notReadySince !== undefined && performance.now() - notReadySince >= this.#notReadyMs
      if (this.#servesUnready) break
    }
    this.#present = undefined
  }

  /**
   * Looks once for all that ask at the same time. An API server that starts answers before it knows who may do what, and
   * is not ready until then. While the plugin that encrypts Secrets is away, it serves everything else.
   */
  #look(): Promise<Found> {
    this.#looking ??= this.#kube
      .get('/readyz?exclude=kms-providers', { timeoutMs: LOOK_MS })
      .then(
        (): Found => ({ state: 'ready' }),
        (error: unknown): Found => {
          if (error instanceof ApiConnectionError) return { state: 'away', why: error.message }
          // Nobody may do anything until the credential is renewed.
          if (error instanceof ApiError && error.code === 401) return { state: 'away', why: error.message }
          if (!(error instanceof ApiError) || error.code < 500) return { state: 'ready' }
          const failed = [...error.said.matchAll(/^\[-\](\S+) failed/gm)].map(([, check = '']) => check)
          const why = `${this.#kube.host} is not ready${failed.length === 0 ? '' : ` (${failed.join(', ')})`}`
          return { state: failed.includes('etcd') ? 'away' : 'not ready', why }
        },
      )
      .finally(() => {
        this.#looking = undefined
      })
    return this.#looking
  }
}

/**
 * Whether a server that is away, starts or has lost its store fails requests so. One that starts refuses them (401, 403),
 * until it has read who may do what.
 */
const mayBeAway = (error: unknown): error is ApiConnectionError | ApiError =>
  error instanceof ApiConnectionError ||
  (error instanceof ApiError && (error.code === 401 || error.code === 403 || error.code >= 500))

/** The words of etcd that has reached its quota (etcd 3.6). The API server passes them on (Kubernetes 1.36). */
const NO_SPACE = 'etcdserver: mvcc: database space exceeded'

const isOfFullStore = (error: ApiConnectionError | ApiError): boolean =>
  error instanceof ApiError && error.message.includes(NO_SPACE)

/** Whether there was no connection for the request, so that it cannot be the cause: of two API servers, one may be away. */
const isUnsent = (error: unknown): boolean => error instanceof ApiConnectionError && !error.wasSent
