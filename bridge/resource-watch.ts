import { setTimeout } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'
import { apiVersionOf, type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf } from '#events'
import { resourcePath, type WatchEvent } from '#kube'
import { unlessAborted } from './abort.ts'
import { ChangePipeline, type ReadContext } from './change-pipeline.ts'
import { Checkpoint } from './checkpoint.ts'
import type { CoveredUpTo } from './compare.ts'
import { Coverage } from './coverage.ts'
import { CursorWriter, type Position } from './cursor-writer.ts'
import { classify } from './failure.ts'
import type { History, Life } from './history.ts'
import { Lister, type ResourceEventHandler } from './lister.ts'
import { ofKind, watchQuery } from './present.ts'
import type { Publisher } from './publisher.ts'
import type { RelistPlan } from './relist.ts'
import type { Routes } from './routing.ts'
import { isSameSelection, type Selection } from './selection.ts'
import type { Semaphore } from './semaphore.ts'
import type { BridgeOptions, ResourceStatus } from './types.ts'
import { WatchHealth } from './watch-health.ts'
import { type Input, type Listing, type Relist, type State, step, type Watching } from './watch-state.ts'

export interface ResourceWatchDeps
  extends Pick<BridgeOptions, 'kube' | 'events' | 'log' | 'observer' | 'silenceSeconds'> {
  publisher: Publisher
  routes: () => Routes
  /** Lists under way at once, and what they have in hand, of all watches of the process. */
  semaphores: { lists: Semaphore; listed: Semaphore }
  history: History
  /** With one, everything is listed at the start, so that it knows of every object. */
  handler?: ResourceEventHandler | undefined
  /** The state has changed. */
  moved: (state: State) => void
  /** All that exists has become known to every Reconciler that asks for it. */
  synced: () => void
  now: () => Date
  random: () => number
}

/**
 * A live server says something every minute, if only a bookmark (Kubernetes 1.36): then ask again. One that sends no
 * bookmarks answers that, so it is never taken for dead.
 */
const SILENCE_SECONDS = 75
/** A stop waits so long for what was read to be confirmed. */
const GRACE_MS = 1500
const VERBS = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const

/** Lists and watches one resource for ever: everything it reads is published, and a cursor says how far that is done. */
export class ResourceWatch {
  readonly #ref: ResourceRef
  readonly #namespace: string | undefined
  readonly #path: string
  readonly #deps: ResourceWatchDeps
  readonly #pipeline: ChangePipeline
  readonly #checkpoint = new Checkpoint<Position>()
  readonly #cursor: CursorWriter
  /** Aborted to leave a watch or a wait when a list is demanded. */
  #interrupt = new AbortController()
  #demand: Relist | undefined
  #isDoubted = false
  #state: State = { phase: 'starting', attempt: 0 }
  #since: Date
  #lastEventAt: Date | undefined
  readonly #health: WatchHealth
  readonly #coverage = new Coverage()
  /** What a position of this watch says besides. */
  #life: Life
  #wasSynced = false
  /** What the open watch was asked for. */
  #watched: Selection | undefined
  readonly #lister: Lister

  /** `namespace` left out: all of them. */
  constructor(ref: ResourceRef, namespace: string | undefined, deps: ResourceWatchDeps) {
    this.#ref = ref
    this.#namespace = namespace
    this.#path = resourcePath(ref, namespace)
    this.#deps = deps
    this.#pipeline = new ChangePipeline(ref, this.#checkpoint, {
      ...deps,
      listed: deps.semaphores.listed,
      published: () => this.#noteProgress(),
    })
    this.#lister = new Lister(deps)
    this.#cursor = new CursorWriter(ref, namespace, this.#checkpoint, { ...deps, swept: () => this.demand('swept') })
    this.#since = deps.now()
    this.#life = { incarnation: undefined, certain: AbortSignal.abort() }
    this.#health = new WatchHealth(deps.now)
  }

  status(): ResourceStatus {
    const { phase } = this.#state
    return {
      resource: resourceName(this.#ref),
      namespace: this.#namespace,
      phase,
      since: this.#since,
      synced: this.#isSynced(),
      covers: this.#covered(),
      resourceVersion: this.#checkpoint.safe?.resourceVersion,
      latestResourceVersion: this.#checkpoint.latest?.resourceVersion,
      heldBackSince: this.#pipeline.heldBackSince,
      lastEventAt: this.#lastEventAt,
      unconfirmed: this.#pipeline.unconfirmed,
      ...this.#health.status(),
    }
  }

  /** The routes have changed: a Reconciler that is new here is owed a run for each object that exists. */
  reroute(): void {
    const ids = this.#coverageIds()
    this.#coverage.restrictTo(ids)
    if (!this.#coverage.willCover(ids)) this.demand('routes')
    else if (this.#watched && !isSameSelection(this.#watched, this.#selection())) this.#interrupt.abort()
  }

  /** Lists at the next opportunity. */
  demand(because: Relist): void {
    if (because === 'store-restarted' || because === 'swept') this.#coverage.forget()
    this.#wasSynced = false
    this.#demand = because
    this.#interrupt.abort()
  }

  /** Begins again at the cursor: what was stored or enqueued behind it may be lost. */
  doubt(): void {
    this.#isDoubted = true
    this.#interrupt.abort()
  }

  async run(signal: AbortSignal): Promise<void> {
    void this.#cursor.run(signal)
    const giveUp = () => setTimeout(() => this.#pipeline.giveUp(), GRACE_MS).unref()
    signal.addEventListener('abort', giveUp, { once: true })
    while (!signal.aborted) {
      const input = await this.#perform(this.#state, signal).catch((error: unknown) => {
        if (!signal.aborted) throw error
      })
      if (input) this.#enter(step(this.#state, input, this.#deps.random()))
    }
    await this.#pipeline.idle()
    await this.#writeLastCursor()
  }

  async #perform(state: State, signal: AbortSignal): Promise<Input> {
    const because = this.#demand
    if (this.#interrupt.signal.aborted) this.#interrupt = new AbortController()
    if (this.#isDoubted) {
      this.#isDoubted = false
      this.#demand = undefined
      return { type: 'doubted' }
    }
    if (because !== undefined && state.phase !== 'starting') {
      this.#demand = undefined
      return { type: 'demanded', because }
    }
    switch (state.phase) {
      case 'starting':
        return this.#attempt(signal, () => this.#resume())
      case 'listing':
        return this.#attempt(signal, () => this.#listInTurn(state, signal))
      case 'watching':
        return this.#watch(state, AbortSignal.any([signal, this.#interrupt.signal]))
      case 'waiting':
        await sleep(state.ms, undefined, { signal: AbortSignal.any([signal, this.#interrupt.signal]) }).catch(() => {})
        return { type: 'waited' }
    }
  }

  async #attempt(signal: AbortSignal, act: () => Promise<Input>): Promise<Input> {
    try {
      return await unlessAborted(act(), signal)
    } catch (error) {
      signal.throwIfAborted()
      return { type: 'failed', failure: classify(error), openMs: 0 }
    }
  }

  async #resume(): Promise<Input> {
    const ids = this.#coverageIds()
    const life = await this.#deps.history.present()
    this.#life = life
    const cursor = await this.#cursor.read()
    const isKept = cursor !== undefined && (await this.#deps.history.keeps(cursor, life))
    // A cursor whose events or keys may be lost proves nothing.
    this.#coverage.resume((isKept && cursor.covers) || [], ids)
    return { type: 'resumed', resourceVersion: cursor?.resourceVersion, relist: this.#mustList(isKept, ids) }
  }

  #mustList(isKept: boolean, ids: string[]): Relist | undefined {
    if (!isKept) return 'store-restarted'
    if (!this.#coverage.covers(ids)) return 'routes'
    return this.#deps.handler ? 'initial' : undefined
  }

  async #listInTurn(state: Listing, signal: AbortSignal): Promise<Input> {
    const release = await this.#deps.semaphores.lists.acquire()
    try {
      signal.throwIfAborted()
      return await this.#list(state, signal)
    } finally {
      release()
    }
  }

  async #list({ because, stream }: Listing, signal: AbortSignal): Promise<Input> {
    // What was read before has to be in EVENTS before it is compared, and the cursor as far as it can be.
    await this.#pipeline.idle()
    await this.#cursor.flush()
    const life = await this.#deps.history.present()
    const coveredUpTo = await this.#coveredUpTo(life)
    const unsafeBelow = this.#cursor.written === undefined ? await this.#cursor.begin() : 0
    const routes = this.#deps.routes()
    const selection = this.#selection()
    const isOwed = this.#coverage.beginList(this.#coverageIds())
    const plan: RelistPlan = {
      ref: this.#ref,
      namespace: this.#namespace,
      routes,
      selection,
      coveredUpTo,
      covers: this.#coverage.ids,
      unsafeBelow,
      // What broke off once may break off always: a server drops a slow reader when too much changes meanwhile.
      stream,
      onBytes: this.#noteBytes,
      signal,
    }
    try {
      const reading: ReadContext = { routes, lane: 'low', isListed: true, selection, isOwed }
      const report = await this.#lister.list(plan, {
        publish: (found) => this.#pipeline.publish(found, reading),
        stored: () => this.#pipeline.idle(),
      })
      this.#coverage.endList(this.#coverageIds())
      await this.#pipeline.catchUp((id) => isOwed(id) && this.#coverage.covers([id]))
      this.#health.succeeded()
      this.#life = life
      this.#checkpoint.mark(this.#position(report.resourceVersion))
      this.#noteProgress()
      const about = { resource: resourceName(this.#ref), because }
      this.#deps.observer?.relisted?.({ ...report, ...about })
      this.#deps.log.info({ ...about, namespace: this.#namespace, ...report }, 'listed')
      return { type: 'listed', resourceVersion: report.resourceVersion }
    } finally {
      this.#coverage.endList()
    }
  }

  async #watch(state: Watching, signal: AbortSignal): Promise<Input> {
    const began = performance.now()
    const selection = this.#selection()
    this.#watched = selection
    let { resourceVersion } = state
    let events = 0
    const openMs = () => performance.now() - began
    this.#health.asked()
    try {
      const changes = this.#deps.kube.watch<KubeObject>(this.#path, {
        ...watchQuery(selection),
        resourceVersion,
        timeoutSeconds: 240 + Math.floor(this.#deps.random() * 100),
        silenceSeconds: this.#deps.silenceSeconds ?? SILENCE_SECONDS,
        onBytes: this.#noteBytes,
        onOpen: () => this.#noteOpen(resourceVersion),
        signal,
      })
      for await (const event of changes) {
        events++
        resourceVersion = event.object.metadata.resourceVersion ?? resourceVersion
        await this.#take(event, resourceVersion, selection)
      }
      return { type: 'ended', resourceVersion, events, openMs: openMs() }
    } catch (error) {
      if (signal.aborted) return { type: 'ended', resourceVersion, events: 1, openMs: openMs() }
      return { type: 'failed', failure: classify(error), resourceVersion, openMs: openMs() }
    } finally {
      this.#health.closed()
      this.#watched = undefined
    }
  }

  /** Also of a watch that has nothing to tell the cursor is written every few minutes: somebody needs what it covers. */
  #noteOpen(resourceVersion: string): void {
    this.#health.opened()
    this.#checkpoint.mark(this.#position(resourceVersion))
    this.#noteProgress()
  }

  async #take(event: WatchEvent<KubeObject>, resourceVersion: string, selection: Selection): Promise<void> {
    this.#lastEventAt = this.#deps.now()
    this.#health.succeeded()
    if (event.type === 'BOOKMARK') {
      this.#checkpoint.mark(this.#position(resourceVersion))
      return this.#noteProgress()
    }
    const object = ofKind(event.object, selection, apiVersionOf(this.#ref))
    const verb = VERBS[event.type]
    this.#deps.observer?.seen?.({ ref: this.#ref, verb, object })
    const key = keyOf(object.metadata.namespace, object.metadata.name)
    const reading: ReadContext = { routes: this.#deps.routes(), lane: 'high', selection }
    await this.#pipeline.publish({ key, news: { verb, object } }, reading, this.#position(resourceVersion))
    if (!this.#deps.handler) return
    await this.#pipeline.idle()
    this.#deps.handler.changed(verb, object)
  }

  async #writeLastCursor(): Promise<void> {
    const log = (error: unknown) =>
      this.#deps.log.warn({ err: error, resource: resourceName(this.#ref) }, 'the last cursor could not be stored')
    await Promise.race([this.#cursor.flush().catch(log), sleep(GRACE_MS, undefined, { ref: false })])
  }

  #noteProgress(): void {
    this.#cursor.poke()
    if (this.#wasSynced || !this.#isSynced()) return
    this.#wasSynced = true
    // Whoever waits for this cursor need not wait for its turn. What fails here, the writer tries again.
    this.#cursor.flush().catch(() => {})
    this.#deps.synced()
  }

  #position(resourceVersion: string): Position {
    const covers = [...this.#coverage.ids]
    return { resourceVersion, covers, ...this.#life }
  }

  /** After a loss in NATS not even the cursor proves that a key was enqueued. */
  async #coveredUpTo(life: Life): Promise<CoveredUpTo | undefined> {
    const { written } = this.#cursor
    return written && (await this.#deps.history.keeps(written, life)) ? written : undefined
  }

  #coverageIds(): string[] {
    return this.#deps.routes().coverageIdsOf(this.#ref, this.#namespace)
  }

  #selection(): Selection {
    return this.#deps.routes().selectionOf(this.#ref)
  }

  readonly #noteBytes = (bytes: number): void =>
    this.#deps.observer?.received?.({ resource: resourceName(this.#ref), bytes })

  #isSynced(): boolean {
    // A handler knows nothing from before this process.
    const isResumed = this.#deps.handler === undefined && this.#cursor.written !== undefined
    const isListed = this.#checkpoint.safe !== undefined || isResumed
    const covered = new Set(this.#covered())
    return isListed && this.#coverageIds().every((id) => covered.has(id))
  }

  /** For whom everything is done: as far as this process has come, else as the cursor that it began from says. */
  #covered(): readonly string[] {
    return this.#checkpoint.safe?.covers ?? [...this.#coverage.ids]
  }

  #enter(state: State): void {
    if (state.phase !== this.#state.phase) this.#since = this.#deps.now()
    this.#health.moved(state)
    this.#state = state
    this.#deps.moved(state)
  }
}
