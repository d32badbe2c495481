import type { KubeObject, ResourceRef } from '#contracts'
import type { EventStore, OwnerKey } from '#events'
import { isSecret } from './world.ts'

/** What EVENTS holds after a write; undefined: nothing any more. */
export interface Written {
  object: KubeObject | undefined
  /** EVENTS holds something newer, or only a reference: read it again instead of going on with `object`. */
  overtaken: boolean
}

/** Puts what a run wrote into EVENTS, so that the next run of the key sees it without waiting for the watch. */
export class WriteThrough {
  readonly #events: EventStore
  readonly #options: { origin: string; signal: AbortSignal }

  /** `origin` tells the watch's echo of these writes. */
  constructor(events: EventStore, options: { origin: string; signal: AbortSignal }) {
    this.#events = events
    this.#options = options
  }

  async present(
    ref: ResourceRef,
    owner: OwnerKey | undefined,
    object: KubeObject,
    verb: 'added' | 'modified' = 'modified',
  ): Promise<Written> {
    // The values of a Secret are not in EVENTS: a function must not see them in one round and miss them in the next.
    const { managedFields: _, ...metadata } = object.metadata
    const stored = { ...object, metadata }
    const { outcome } = await this.#events.put(ref, verb, stored, { owner, ...this.#options })
    return { object: stored, overtaken: outcome === 'newer' || isSecret(object) }
  }

  /** `object` is its last known version. */
  async gone(ref: ResourceRef, owner: OwnerKey | undefined, object: KubeObject): Promise<Written> {
    const { outcome } = await this.#events.put(ref, 'deleted', object, { owner, ...this.#options })
    return { object: undefined, overtaken: outcome === 'newer' }
  }
}
