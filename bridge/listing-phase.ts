import { type ResourceRef, resourceName } from '#contracts'
import type { ChangePipeline, ReadContext } from './change-pipeline.ts'
import { Lister, type ResourceEventHandler } from './lister.ts'
import type { RelistPlan } from './relist.ts'
import type { Routes } from './routing.ts'
import type { Semaphore } from './semaphore.ts'
import type { StreamContinuity } from './stream-continuity.ts'
import type { BridgeOptions } from './types.ts'
import type { WatchHealth } from './watch-health.ts'
import type { WatchProgress } from './watch-progress.ts'
import type { Input, Listing } from './watch-state.ts'

export interface ListingDeps extends Pick<BridgeOptions, 'kube' | 'events' | 'log' | 'observer'> {
  routes: () => Routes
  coverageIds: () => string[]
  /** The limit of concurrent lists, for all watches of the process. */
  lists: Semaphore
  continuity: StreamContinuity
  handler?: ResourceEventHandler | undefined
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
    const release = await this.#deps.lists.acquire()
    try {
      signal.throwIfAborted()
      return await this.#list(state, signal)
    } finally {
      release()
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
    const isOwed = coverage.beginList(coverageIds())
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
    try {
      const context: ReadContext = { routes, lane: 'low', isListed: true, selection, isOwed }
      const report = await this.#lister.list(plan, {
        publish: (found) => pipeline.publish(found, context),
        stored: () => pipeline.idle(),
      })
      signal.throwIfAborted()
      coverage.endList(coverageIds())
      await pipeline.catchUp((id) => isOwed(id) && coverage.covers([id]))
      health.succeeded()
      signal.throwIfAborted()
      progress.listed(report.resourceVersion, streams)
      const about = { resource: resourceName(this.#ref), because }
      observer?.relisted?.({ ...report, ...about })
      log.info({ ...about, namespace: this.#namespace, ...report }, 'listed')
      return { type: 'listed', resourceVersion: report.resourceVersion }
    } finally {
      coverage.endList()
    }
  }
}
