import type { ResourceRef, RunLog } from '#contracts'
import type { EventStore } from '#events'
import { forEachAtMost, pause, unlessAborted } from '#primitives'
import { Semaphore } from './change-pipeline.ts'
import { keysOf } from './key-batches.ts'
import type { Reconciler } from './reconcilers.ts'
import type { Routes } from './routing.ts'

export interface ResyncDeps {
  events: EventStore
  log: RunLog
  now: () => Date
  random: () => number
  reconcilers: () => readonly Reconciler[]
  routes: () => Routes
  enqueue: (reconciler: string, key: string, lane: 'low', cause: string) => Promise<void>
}

/** The name of the times of the last resyncs, which are stored as cursors. It is not a resource of the API server. */
export const RESYNCS: ResourceRef = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'resyncs' }
const LOOK_EVERY_MS = 1000
/** The delay after a resync that failed. */
const AGAIN_MS = 60_000
const JITTER = 0.1
/** The number of resyncs at once: each reads EVENTS by a consumer of its own. */
const AT_ONCE = 16
/** The number of keys in progress in one resync. */
const KEYS_AT_ONCE = 16

/**
 * Enqueues every key that a Reconciler selects about every resyncSeconds, in the low lane. The time of a resync is stored as a
 * cursor after all keys are enqueued, so that another bridge repeats a resync that a bridge did not finish. With
 * several bridges there is one resync per period, except when they look while one is in progress: then each of them
 * makes it once, and a key that is still queued stays queued once. Resyncs of several Reconcilers run side by side.
 */
export class Resyncs {
  readonly #deps: ResyncDeps
  /**
   * The time before which no resync is due, by coverage ID and by the clock of this process. EVENTS is not read before
   * it.
   */
  readonly #due = new Map<string, number>()
  /** The Reconcilers, by coverage ID, whose resyncs are in progress or wait for others. */
  readonly #busy = new Set<string>()
  readonly #atOnce = new Semaphore(AT_ONCE)

  constructor(deps: ResyncDeps) {
    this.#deps = deps
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      for (const reconciler of this.#deps.reconcilers()) {
        const { resyncSeconds } = reconciler.spec
        if (resyncSeconds !== undefined && this.#mayBeDue(reconciler))
          void this.#look(reconciler, resyncSeconds, signal)
      }
      await pause(LOOK_EVERY_MS, signal)
    }
  }

  #mayBeDue({ coverageId }: Reconciler): boolean {
    return !this.#busy.has(coverageId) && this.#deps.now().getTime() >= (this.#due.get(coverageId) ?? 0)
  }

  /** Makes the resync if it is due. Never rejects. */
  async #look(reconciler: Reconciler, seconds: number, signal: AbortSignal): Promise<void> {
    const { coverageId, name } = reconciler
    this.#busy.add(coverageId)
    const release = await this.#atOnce.acquire()
    try {
      if (!signal.aborted) await unlessAborted(this.#resyncIfDue(reconciler, seconds, signal), signal)
    } catch (error) {
      if (!signal.aborted) this.#deps.log.warn({ err: error, reconciler: name }, 'a resync has to wait')
    } finally {
      release()
      this.#busy.delete(coverageId)
    }
  }

  async #resyncIfDue(reconciler: Reconciler, seconds: number, signal: AbortSignal): Promise<void> {
    const { name, coverageId } = reconciler
    const { events, now, random, log, enqueue, routes } = this.#deps
    const began = now()
    const periodMs = seconds * 1000 * (1 + (random() * 2 - 1) * JITTER)
    const last = await events.cursor(RESYNCS, name)
    const isKnown = last?.covers?.includes(coverageId) === true
    const due = isKnown ? Date.parse(last.at) + periodMs : 0
    const isDue = began.getTime() >= due
    this.#due.set(coverageId, isDue ? began.getTime() + Math.min(AGAIN_MS, periodMs) : due)
    if (!isDue) return
    // The first period begins without a resync, because the first list has enqueued every key.
    if (isKnown) {
      const keys = await forEachAtMost(KEYS_AT_ONCE, keysOf(events, routes(), reconciler), (key) => {
        signal.throwIfAborted()
        return enqueue(name, key, 'low', 'resync')
      })
      log.info({ reconciler: name, keys }, 'every key is enqueued again')
    }
    await events.setCursor(RESYNCS, name, { resourceVersion: '0', at: began.toISOString(), covers: [coverageId] })
    this.#due.set(coverageId, began.getTime() + periodMs)
  }
}
