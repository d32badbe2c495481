import type { Core } from './core.ts'
import { TIMERS } from './names.ts'
import { ProcessSlots } from './slots.ts'
import type { Timers } from './timers.ts'
import type { ServeOptions, Worker } from './types.ts'

/** More than the number of buckets in all levels of the wheel. */
const BUCKETS_AT_ONCE = 64
/** How long it may take to hand back runs that open buckets. */
const HANDBACK_MS = 1000

/** Opens the buckets of sleeping timers of all Reconcilers while this process serves at least one Reconciler. */
export class Opener {
  readonly #core: Core
  readonly #timers: Timers
  readonly #serve: (core: Core, options: ServeOptions) => Worker
  readonly #serving = new Set<Worker>()
  #opening: { worker: Worker; stop: AbortController } | undefined

  constructor(core: Core, timers: Timers, serve: (core: Core, options: ServeOptions) => Worker) {
    // Runs that open buckets do not count towards the slots and metrics of Reconcilers.
    this.#core = { ...core, slots: new ProcessSlots(Number.POSITIVE_INFINITY, core.js.outbox), observer: {} }
    this.#timers = timers
    this.#serve = serve
  }

  enter(worker: Worker): void {
    this.#serving.add(worker)
    if (this.#opening) return
    const stop = new AbortController()
    const handler = this.#timers.opening(stop.signal)
    const opener = this.#serve(this.#core, { reconciler: TIMERS, slots: BUCKETS_AT_ONCE, handler })
    this.#opening = { worker: opener, stop }
  }

  /** Stops the opener when the last worker leaves. */
  async leave(worker: Worker): Promise<void> {
    if (!this.#serving.delete(worker) || this.#serving.size > 0) return
    const opening = this.#opening
    this.#opening = undefined
    opening?.stop.abort()
    await opening?.worker.drain(HANDBACK_MS)
  }
}
