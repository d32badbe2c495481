import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import { type EventStore, keyOf, type StoredEvent } from '#events'
import { retry } from '#primitives'

export interface RecallDeps {
  events: EventStore
  log: RunLog
  signal: AbortSignal
}

type Take = (key: string, event: StoredEvent) => Promise<void> | void

const RETRY_MS = 1000

/**
 * Reads the objects of a resource from EVENTS once, in the background. Skips objects that are learned during that time.
 */
export class Recall {
  readonly #ref: ResourceRef
  readonly #deps: RecallDeps
  /** Keys that were learned since the reading began. EVENTS may have older versions of these. */
  #learned: Set<string> | undefined = new Set()
  /** Resolves when all objects in EVENTS have been read. */
  readonly ready: Promise<void>

  /** `begin` is called when a reading begins, and again if the reading fails. */
  constructor(ref: ResourceRef, begin: () => Take, deps: RecallDeps) {
    this.#ref = ref
    this.#deps = deps
    this.ready = this.#load(begin)
  }

  /** Notes that a newer version of the object is known. */
  learned(key: string): void {
    this.#learned?.add(key)
  }

  async #load(begin: () => Take): Promise<void> {
    const { signal, log } = this.#deps
    const pauseMs = (error: unknown): number => {
      log.warn({ err: error, resource: resourceName(this.#ref) }, 'relations of the objects could not be read yet')
      return RETRY_MS
    }
    await retry(() => this.#read(begin()), { signal, pauseMs }).then(
      () => (this.#learned = undefined),
      // retry() ends only at the signal.
      () => undefined,
    )
  }

  async #read(take: Take): Promise<void> {
    const { events, signal } = this.#deps
    const done = new AbortController()
    const either = AbortSignal.any([done.signal, signal])
    for await (const event of events.follow({ ref: this.#ref }, either, () => done.abort())) {
      const key = keyOf(event.key.namespace, event.key.name)
      if (event.verb !== 'moved' && !this.#learned?.has(key)) await take(key, event)
    }
    signal.throwIfAborted()
  }
}
