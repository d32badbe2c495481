import { apiVersionOf, type KubeObject, type ResourceRef } from '#contracts'
import { keyOf } from '#events'
import { resourcePath, type WatchEvent } from '#kube'
import type { ChangePipeline, ReadContext } from './change-pipeline.ts'
import { classify } from './failure.ts'
import { ofKind, watchQuery } from './list-objects.ts'
import type { ResourceEventHandler } from './lister.ts'
import type { Routes } from './routing.ts'
import type { Selection } from './selection.ts'
import type { BridgeOptions } from './types.ts'
import type { WatchHealth } from './watch-health.ts'
import type { WatchProgress } from './watch-progress.ts'
import type { Input, Watching } from './watch-state.ts'

export interface WatchingDeps extends Pick<BridgeOptions, 'kube' | 'observer' | 'silenceSeconds'> {
  routes: () => Routes
  handler?: ResourceEventHandler | undefined
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
        await this.#take(event, resourceVersion, selection)
      }
      return { type: 'ended', resourceVersion, events, openMs: openMs() }
    } catch (error) {
      if (signal.aborted) return { type: 'ended', resourceVersion, events: 1, openMs: openMs() }
      return { type: 'failed', failure: classify(error), resourceVersion, openMs: openMs() }
    } finally {
      health.closed()
      this.#selection = undefined
    }
  }

  /**
   * Notes the position of an open watch. So the cursor of a quiet watch is written every few minutes, and the sweeper
   * keeps the objects that it covers.
   */
  #noteOpen(resourceVersion: string): void {
    this.#deps.health.opened()
    this.#deps.progress.mark(resourceVersion)
  }

  async #take(event: WatchEvent<KubeObject>, resourceVersion: string, selection: Selection): Promise<void> {
    const { pipeline, progress, health, handler, observer, now } = this.#deps
    this.#lastEventAt = now()
    health.succeeded()
    if (event.type === 'BOOKMARK') return progress.mark(resourceVersion)
    const object = ofKind(event.object, selection, apiVersionOf(this.#ref))
    const verb = VERBS[event.type]
    observer?.seen?.({ ref: this.#ref, verb, object })
    const key = keyOf(object.metadata.namespace, object.metadata.name)
    const context: ReadContext = { routes: this.#deps.routes(), lane: 'high', selection }
    await pipeline.publish({ key, news: { verb, object } }, context, progress.position(resourceVersion))
    if (!handler) return
    await pipeline.idle()
    handler.changed(verb, object)
  }
}
