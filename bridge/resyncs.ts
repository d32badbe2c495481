import type { ResourceRef, RunLog } from '#contracts'
import type { EventStore } from '#events'
import { forEachAtMost, pause } from '#primitives'
import { KEYS_AT_ONCE, keysIn } from './key-batches.ts'
import type { Reconciler } from './reconcilers.ts'

export interface ResyncDeps {
  events: EventStore
  log: RunLog
  now: () => Date
  random: () => number
  reconcilers: () => readonly Reconciler[]
  enqueue: (reconciler: string, key: string, lane: 'low') => Promise<void>
}

/** The name of the times of the last resyncs, which are stored as cursors. It is not a resource of the API server. */
export const RESYNCS: ResourceRef = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'resyncs' }
const LOOK_EVERY_MS = 1000
/** The delay after a resync that failed. */
const AGAIN_MS = 60_000
const JITTER = 0.1

/**
 * Enqueues every key of a Reconciler about every resyncSeconds, in the low lane. The time of a resync is stored as a
 * cursor after all keys are enqueued, so that another bridge repeats a resync that a bridge did not finish. With
 * several bridges there is one resync per period, except when they look while one is in progress: then each of them
 * makes it once, and a key that is still queued stays queued once.
 */
export class Resyncs {
  readonly #deps: ResyncDeps
  /**
   * The time before which no resync is due, by coverage ID and by the clock of this process. EVENTS is not read before
   * it.
   */
  readonly #due = new Map<string, number>()

  constructor(deps: ResyncDeps) {
    this.#deps = deps
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      for (const reconciler of this.#deps.reconcilers()) {
        if (reconciler.spec.resyncSeconds === undefined || signal.aborted) continue
        await this.#resyncIfDue(reconciler, reconciler.spec.resyncSeconds).catch((error: unknown) =>
          this.#deps.log.warn({ err: error, reconciler: reconciler.name }, 'a resync has to wait'),
        )
      }
      await pause(LOOK_EVERY_MS, signal)
    }
  }

  async #resyncIfDue({ name, coverageId, spec }: Reconciler, seconds: number): Promise<void> {
    const { events, now, random, log, enqueue } = this.#deps
    const began = now()
    if (began.getTime() < (this.#due.get(coverageId) ?? 0)) return
    const periodMs = seconds * 1000 * (1 + (random() * 2 - 1) * JITTER)
    const last = await events.cursor(RESYNCS, name)
    const isKnown = last?.covers?.includes(coverageId) === true
    const due = isKnown ? Date.parse(last.at) + periodMs : 0
    const isDue = began.getTime() >= due
    this.#due.set(coverageId, isDue ? began.getTime() + Math.min(AGAIN_MS, periodMs) : due)
    if (!isDue) return
    // The first period begins without a resync, because the first list has enqueued every key.
    if (isKnown) {
      const keys = await forEachAtMost(KEYS_AT_ONCE, keysIn(events, spec.for), (key) => enqueue(name, key, 'low'))
      log.info({ reconciler: name, keys }, 'every key is enqueued again')
    }
    await events.setCursor(RESYNCS, name, { resourceVersion: '0', at: began.toISOString(), covers: [coverageId] })
    this.#due.set(coverageId, began.getTime() + periodMs)
  }
}
