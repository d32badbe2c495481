import type { KubeObject, ResourceRef } from '#contracts'
import { asTravelling, type EventStore, type OwnerKey } from '#events'
import type { References } from './references.ts'

/** What EVENTS holds after a write; undefined: nothing any more. */
export interface Written {
  object: KubeObject | undefined
  /** EVENTS holds something newer: read it again instead of going on with `object`. */
  overtaken: boolean
}

/** Puts what a run wrote into EVENTS, so that the next run of the key sees it without waiting for the watch. */
export class WriteThrough {
  readonly #events: Pick<EventStore, 'put'>
  readonly #references: References
  readonly #options: { origin: string; signal: AbortSignal }

  /** `origin` tells the watch's echo of these writes. */
  constructor(
    events: Pick<EventStore, 'put'>,
    references: References,
    options: { origin: string; signal: AbortSignal },
  ) {
    this.#events = events
    this.#references = references
    this.#options = options
  }

  async present(
    ref: ResourceRef,
    owner: OwnerKey | undefined,
    object: KubeObject,
    verb: 'added' | 'modified' = 'modified',
  ): Promise<Written> {
    const stored = asTravelling(object)
    this.#references.written(ref, stored)
    const { outcome } = await this.#events.put(ref, verb, stored, { owner, ...this.#options })
    return { object: stored, overtaken: outcome === 'newer' }
  }

  /** `object` is its last known version. */
  async gone(ref: ResourceRef, owner: OwnerKey | undefined, object: KubeObject): Promise<Written> {
    const { outcome } = await this.#events.put(ref, 'deleted', object, { owner, ...this.#options })
    return { object: undefined, overtaken: outcome === 'newer' }
  }
}
