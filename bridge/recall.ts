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

/** Reads the objects of a resource from EVENTS once, in the background, except those that are learned meanwhile. */
export class Recall {
  readonly #ref: ResourceRef
  readonly #deps: RecallDeps
  /** Keys that were learned since the reading began: what EVENTS says of them may be older. */
  #learned: Set<string> | undefined = new Set()
  /** Resolves when what EVENTS has was taken. */
  readonly ready: Promise<void>

  /** `begin` is called when a reading begins, a second time if the first one fails. */
  constructor(ref: ResourceRef, begin: () => Take, deps: RecallDeps) {
    this.#ref = ref
    this.#deps = deps
    this.ready = this.#load(begin)
  }

  /** A newer version of the object is known. */
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
      // retry() gives up only with the signal.
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
