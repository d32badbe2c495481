import { setTimeout } from 'node:timers'
import { apiVersionOf, type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { compareVersions, keyOf } from '#events'
import { METADATA_ONLY_LIST, resourcePath, type WatchEvent } from '#kube'
import { doubling, pause, retry, unlessAborted } from '#primitives'
import { ChangePipeline, type ReadContext, type Semaphore } from './change-pipeline.ts'
import { WatchHealth } from './health.ts'
import type { Publisher } from './publisher.ts'
import { isSameSelection, type Selection } from './reconcilers.ts'
import { Lister, type ResourceEventHandler } from './registry.ts'
import { ofKind, type RelistPlan, watchQuery } from './relist.ts'
import type { Routes } from './routing.ts'
import type { BridgeDeps, ResourceStatus } from './types.ts'
import { type StreamContinuity, WatchProgress } from './watch-progress.ts'
import {
  classify,
  type Input,
  type Listing,
  type Relist,
  RestoredError,
  type State,
  step,
  type Watching,
} from './watch-state.ts'

type SharedDeps = 'kube' | 'events' | 'log' | 'observer' | 'silenceSeconds' | 'requireCluster'

export interface ResourceWatchDeps extends Pick<BridgeDeps, SharedDeps> {
  publisher: Publisher
  routes: () => Routes
  /** The limits of concurrent lists, and of listed objects in progress, for all watches of the process. */
  semaphores: { lists: Semaphore; listed: Semaphore }
  continuity: StreamContinuity
  /** With a handler, everything is listed at the start, so that the handler receives every object. */
  handler?: ResourceEventHandler
  /** Called when the state has changed. */
  moved: (state: State) => void
  /** Called when every Reconciler that asks for the resource has all existing objects. */
  synced: () => void
  /** See WatchProgressDeps. */
  covered: (coverageIds: readonly string[]) => void
  now: () => Date
  random: () => number
}

/** The longest time for which a stop waits for confirmations, and then again for the last cursor. */
const CONFIRM_MS = 1500
/** The pauses between the attempts of a list beside the watch. */
const FIRST_PAUSE_MS = 1000
const LAST_PAUSE_MS = 30_000

/** Lists and watches one resource until it is stopped. Publishes every change, and stores the progress in a cursor. */
export class ResourceWatch {
  readonly #ref: ResourceRef
  readonly #namespace: string | undefined
  readonly #deps: ResourceWatchDeps
  readonly #pipeline: ChangePipeline
  readonly #progress: WatchProgress
  readonly #health: WatchHealth
  readonly #listing: ListingPhase
  readonly #watching: WatchingPhase
  /** Aborted to interrupt a watch or a pause when a list is demanded. */
  #interrupt = new AbortController()
  #demand: Relist | undefined
  /** The list that runs beside the watch. */
  #beside: { stop: AbortController; ended: Promise<void> } | undefined
  #mustRecheck = false
  #state: State = { phase: 'starting', attempt: 0 }
  #since: Date

  /** `namespace` left out: all namespaces. */
  constructor(ref: ResourceRef, namespace: string | undefined, deps: ResourceWatchDeps) {
    this.#ref = ref
    this.#namespace = namespace
    this.#deps = deps
    const { lists, listed } = deps.semaphores
    const coverageIds = () => this.#coverageIds()
    const listsAtStart = deps.handler !== undefined
    const progress = new WatchProgress(ref, namespace, {
      ...deps,
      coverageIds,
      listsAtStart,
      swept: () => this.demand('swept'),
    })
    const pipeline = new ChangePipeline(ref, progress.checkpoint, { ...deps, listed, becameSafe: progress.note })
    const health = new WatchHealth(deps.now)
    const onBytes = (bytes: number) => deps.observer?.received?.({ resource: resourceName(ref), bytes })
    const parts = { ...deps, lists, coverageIds, pipeline, progress, health, onBytes }
    this.#listing = new ListingPhase(ref, namespace, parts)
    this.#watching = new WatchingPhase(ref, namespace, parts)
    this.#pipeline = pipeline
    this.#progress = progress
    this.#health = health
    this.#since = deps.now()
  }

  status(): ResourceStatus {
    const { phase } = this.#state
    const { checkpoint } = this.#progress
    return {
      resource: resourceName(this.#ref),
      namespace: this.#namespace,
      phase,
      since: this.#since,
      synced: this.#progress.isSynced(),
      covers: this.#progress.covered(),
      resourceVersion: checkpoint.safe?.resourceVersion,
      latestResourceVersion: checkpoint.latest?.resourceVersion,
      heldBackSince: this.#pipeline.heldBackSince,
      lastEventAt: this.#watching.lastEventAt,
      unconfirmed: this.#pipeline.unconfirmed,
      ...this.#health.status(),
    }
  }

  /** Follows a change of the routes: every existing object must run for a Reconciler that is new here. */
  reroute(): void {
    const { coverage } = this.#progress
    const ids = this.#coverageIds()
    const { selection } = this.#watching
    coverage.restrictTo(ids)
    if (!coverage.willCover(ids)) this.demand('routes')
    else if (selection && !isSameSelection(selection, this.#deps.routes().selectionOf(this.#ref)))
      this.#interrupt.abort()
  }

  /** Lists at the next opportunity. */
  demand(because: Relist): void {
    if (because === 'store-restarted' || because === 'swept') this.#progress.coverage.forget()
    this.#progress.unsync()
    this.#demand = because
    this.#interrupt.abort()
  }

  /** Begins again at the cursor, because later stored events or enqueued keys may be lost. */
  recheck(): void {
    this.#mustRecheck = true
    this.#interrupt.abort()
  }

  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    void this.#progress.cursor.run(signal)
    const giveUp = () => setTimeout(() => this.#pipeline.giveUp(), Math.min(graceMs, CONFIRM_MS)).unref()
    signal.addEventListener('abort', giveUp, { once: true })
    while (!signal.aborted) {
      const input = await this.#perform(this.#state, signal).catch((error: unknown) => {
        if (!signal.aborted) throw error
      })
      if (input?.type === 'listed') this.#watching.given(input.resourceVersion)
      if (input) this.#enter(step(this.#state, input, this.#deps.random()))
    }
    await this.#endBeside()
    await this.#pipeline.idle()
    await this.#progress.writeLast(CONFIRM_MS)
  }

  async #perform(state: State, signal: AbortSignal): Promise<Input> {
    const because = this.#demand
    if (this.#interrupt.signal.aborted) this.#interrupt = new AbortController()
    if (this.#mustRecheck) {
      this.#mustRecheck = false
      this.#demand = undefined
      return { type: 'recheck' }
    }
    if (because !== undefined && state.phase !== 'starting') {
      this.#demand = undefined
      return { type: 'demanded', because, mayWatch: this.#deps.handler === undefined }
    }
    switch (state.phase) {
      case 'starting':
        return this.#attempt(signal, async () => {
          await this.#endBeside()
          return this.#progress.resume()
        })
      case 'listing':
        return this.#attempt(signal, async () => {
          await this.#endBeside()
          this.#progress.release()
          return this.#listing.run(state, signal)
        })
      case 'watching':
        if (state.lists !== undefined) this.#listBeside(state.lists, state.resourceVersion, signal)
        return this.#watching.run(state, AbortSignal.any([signal, this.#interrupt.signal]))
      case 'waiting':
        await pause(state.ms, AbortSignal.any([signal, this.#interrupt.signal]))
        return { type: 'waited' }
    }
  }

  /** Lists beside the watch, until the list has ended or another list is necessary. */
  #listBeside(because: Relist, from: string, signal: AbortSignal): void {
    const before = this.#endBeside()
    const stop = new AbortController()
    const until = AbortSignal.any([signal, stop.signal])
    const nextDelay = doubling(FIRST_PAUSE_MS, LAST_PAUSE_MS)
    let stream = true
    const list = async () => {
      await before
      await this.#listing.run({ phase: 'listing', because, stream, attempt: 0 }, until)
    }
    const pauseMs = (error: unknown): number => {
      const ms = nextDelay()
      stream = false
      this.#deps.log.warn({ err: error, resource: resourceName(this.#ref), ms }, 'a list beside the watch is repeated')
      return ms
    }
    this.#progress.hold(from)
    this.#beside = { stop, ended: retry(list, { signal: until, pauseMs }).catch(() => undefined) }
  }

  async #endBeside(): Promise<void> {
    const beside = this.#beside
    beside?.stop.abort()
    await beside?.ended
  }

  async #attempt(signal: AbortSignal, act: () => Promise<Input>): Promise<Input> {
    try {
      return await unlessAborted(act(), signal)
    } catch (error) {
      signal.throwIfAborted()
      return { type: 'failed', failure: classify(error), openMs: 0 }
    }
  }

  #coverageIds(): string[] {
    return this.#deps.routes().coverageIdsOf(this.#ref, this.#namespace)
  }

  #enter(state: State): void {
    if (state.phase !== this.#state.phase) this.#since = this.#deps.now()
    this.#health.moved(state)
    this.#state = state
    this.#deps.moved(state)
  }
}

export interface ListingDeps extends Pick<BridgeDeps, 'kube' | 'events' | 'log' | 'observer' | 'requireCluster'> {
  routes: () => Routes
  coverageIds: () => string[]
  /** The limit of concurrent lists, for all watches of the process. */
  lists: Semaphore
  continuity: StreamContinuity
  handler?: ResourceEventHandler
  pipeline: ChangePipeline
  progress: WatchProgress
  health: WatchHealth
  onBytes: (bytes: number) => void
}

/** Lists one resource, and publishes the differences between the list and EVENTS. */
export class ListingPhase {
  readonly #ref: ResourceRef
  readonly #namespace: string | undefined
  readonly #deps: ListingDeps
  readonly #lister: Lister

  constructor(ref: ResourceRef, namespace: string | undefined, deps: ListingDeps) {
    this.#ref = ref
    this.#namespace = namespace
    this.#deps = deps
    this.#lister = new Lister(deps)
  }

  async run(state: Listing, signal: AbortSignal): Promise<Input> {
    const { lists, coverageIds, progress } = this.#deps
    // Until the list has its turn: it will cover every Reconciler of then.
    progress.coverage.beginList(coverageIds())
    const release = await lists.acquire()
    try {
      signal.throwIfAborted()
      return await this.#list(state, signal)
    } finally {
      release()
      progress.coverage.endList()
    }
  }

  async #list({ because, stream }: Listing, signal: AbortSignal): Promise<Input> {
    const { pipeline, progress, health, continuity, coverageIds, onBytes, observer, log } = this.#deps
    const { coverage, cursor } = progress
    // The comparison needs all earlier changes in EVENTS, and the latest possible cursor.
    await pipeline.idle()
    await cursor.flush()
    const streams = await continuity.current()
    const coveredUpTo = await progress.coveredUpTo(streams)
    const unsafeBelow = cursor.written === undefined ? await cursor.begin() : 0
    const routes = this.#deps.routes()
    const selection = routes.selectionOf(this.#ref)
    const isPending = coverage.beginList(coverageIds())
    const pendingBecause = (coverageId: string) => this.#pendingBecause(because, routes, coverageId)
    const plan: RelistPlan = {
      ref: this.#ref,
      namespace: this.#namespace,
      routes,
      selection,
      coveredUpTo,
      covers: coverage.ids,
      unsafeBelow,
      // A stream that was interrupted is not repeated as a stream: the server drops a slow reader if too much changes
      // meanwhile, and might do so each time.
      stream,
      onBytes,
      signal,
    }
    await this.#deps.requireCluster?.(signal)
    const context: ReadContext = { routes, lane: 'low', isListed: true, selection, isPending, pendingBecause }
    const report = await this.#lister.list(plan, {
      publish: (found) => pipeline.publish(found, context),
      stored: () => pipeline.idle(),
    })
    signal.throwIfAborted()
    coverage.endList(coverageIds())
    const isFresh = (id: string) => isPending(id) && coverage.covers([id])
    await pipeline.catchUp({ isPending: isFresh, pendingBecause })
    health.succeeded()
    signal.throwIfAborted()
    progress.listed(report.resourceVersion, streams, coverageIds().filter(isFresh))
    const about = { resource: resourceName(this.#ref), because }
    observer?.relisted?.({ ...report, ...about })
    // The first list of a process is no news; a later one is.
    log[because === 'initial' ? 'debug' : 'info']({ ...about, namespace: this.#namespace, ...report }, 'listed')
    return { type: 'listed', resourceVersion: report.resourceVersion }
  }

  /** Returns why a list runs every key of a Reconciler, in words. */
  #pendingBecause(because: Relist, routes: Routes, coverageId: string): string | undefined {
    if (!this.#deps.progress.coverage.knows(coverageId)) return `first list of ${resourceName(this.#ref)}`
    if (because === 'store-restarted') return 'NATS was restarted'
    if (because === 'swept') return undefined
    const revision = routes.revisionOf(coverageId)
    return `its Reconciler has changed${revision === undefined ? '' : `: revision ${revision} of the function`}`
  }
}

export interface WatchingDeps
  extends Pick<BridgeDeps, 'kube' | 'observer' | 'silenceSeconds' | 'log' | 'requireCluster'> {
  routes: () => Routes
  handler?: ResourceEventHandler
  pipeline: ChangePipeline
  progress: WatchProgress
  health: WatchHealth
  onBytes: (bytes: number) => void
  now: () => Date
  random: () => number
}

/**
 * A live server sends data every minute, even if only a bookmark (Kubernetes 1.36). After a longer silence the watch is
 * opened again. A server that sends no bookmarks answers this request, so it does not count as failed.
 */
const SILENCE_SECONDS = 75
const VERBS = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const

/** Watches one resource until the watch ends, and publishes each change. */
export class WatchingPhase {
  readonly #ref: ResourceRef
  readonly #path: string
  readonly #deps: WatchingDeps
  #lastEventAt: Date | undefined
  #selection: Selection | undefined
  /** The last position that the server has given, if no watch has failed since then. */
  #given: string | undefined

  constructor(ref: ResourceRef, namespace: string | undefined, deps: WatchingDeps) {
    this.#ref = ref
    this.#path = resourcePath(ref, namespace)
    this.#deps = deps
  }

  get lastEventAt(): Date | undefined {
    return this.#lastEventAt
  }

  /** The selection of the open watch. Undefined: no watch is open. */
  get selection(): Selection | undefined {
    return this.#selection
  }

  /** Notes the position of a list, from which a watch continues without a question. */
  given(resourceVersion: string): void {
    this.#given = resourceVersion
  }

  async run(state: Watching, signal: AbortSignal): Promise<Input> {
    const { kube, health, silenceSeconds = SILENCE_SECONDS, onBytes, random } = this.#deps
    const began = performance.now()
    const selection = this.#deps.routes().selectionOf(this.#ref)
    this.#selection = selection
    let { resourceVersion } = state
    let events = 0
    const openMs = () => performance.now() - began
    health.asked()
    try {
      await this.#deps.requireCluster?.(signal)
      if (resourceVersion !== this.#given) await this.#requireReached(resourceVersion, signal)
      const changes = kube.watch<KubeObject>(this.#path, {
        ...watchQuery(selection),
        resourceVersion,
        timeoutSeconds: 240 + Math.floor(random() * 100),
        silenceSeconds,
        onBytes,
        onOpen: () => this.#noteOpen(resourceVersion),
        signal,
      })
      for await (const event of changes) {
        events++
        resourceVersion = event.object.metadata.resourceVersion ?? resourceVersion
        this.#given = resourceVersion
        await this.#take(event, resourceVersion, selection)
      }
      // Its connection may have outlived the server.
      if (events === 0) this.#given = undefined
      return { type: 'ended', resourceVersion, events, openMs: openMs() }
    } catch (error) {
      if (signal.aborted) return { type: 'ended', resourceVersion, events: 1, openMs: openMs() }
      this.#given = undefined
      return { type: 'failed', failure: classify(error), resourceVersion, openMs: openMs() }
    } finally {
      health.closed()
      this.#selection = undefined
    }
  }

  /**
   * Throws if the server has not reached the position that a watch has come to: it was restored from a backup. It would
   * accept the watch all the same, and send nothing until it has reached the position again (Kubernetes 1.36).
   */
  async #requireReached(position: string, signal: AbortSignal): Promise<void> {
    const { kube, log } = this.#deps
    for await (const page of kube.list(this.#path, { limit: 1, accept: METADATA_ONLY_LIST, signal })) {
      const { resourceVersion } = page
      if ((compareVersions(resourceVersion, position) ?? 0) >= 0) return
      const about = { resource: resourceName(this.#ref), resourceVersion, before: position }
      log.warn(about, 'the API server was restored from a backup: everything is listed again')
      throw new RestoredError(`the API server has resourceVersion ${resourceVersion}, and had ${position} before`)
    }
  }

  /**
   * Notes the position of an open watch. So the cursor of a quiet watch is written every few minutes, and the sweeper
   * keeps the objects that it covers.
   */
  #noteOpen(resourceVersion: string): void {
    this.#deps.health.opened()
    this.#deps.progress.reach(resourceVersion)
  }

  async #take(event: WatchEvent<KubeObject>, resourceVersion: string, selection: Selection): Promise<void> {
    const { pipeline, progress, health, handler, observer, now } = this.#deps
    this.#lastEventAt = now()
    health.succeeded()
    const routes = this.#deps.routes()
    const isNews = event.type !== 'BOOKMARK' && routes.isAsked(this.#ref, event.object.metadata.namespace)
    if (!isNews) return progress.reach(resourceVersion)
    const object = ofKind(event.object, selection, apiVersionOf(this.#ref))
    const verb = VERBS[event.type]
    observer?.seen?.({ ref: this.#ref, verb, object })
    const key = keyOf(object.metadata.namespace, object.metadata.name)
    const context: ReadContext = { routes, lane: 'high', selection }
    await pipeline.publish({ key, news: { verb, object } }, context, progress.position(resourceVersion))
    if (!handler) return
    await pipeline.idle()
    handler.changed(verb, object)
  }
}
