import type { KubeObject, ResourceRef } from '#contracts'
import { asTravelling, type EventStore, type OwnerKey, type PutResult, type Verb } from '#events'
import type { Written } from '#reconcile'
import type { References } from '../observe/references.ts'
import type { InFlight } from './in-flight.ts'

interface WriteThroughDependencies {
  events: Pick<EventStore, 'put'>
  references: References
  inFlight: InFlight
}

interface WriteThroughOptions {
  /** The origin by which the bridge recognizes the watch's report of these writes. */
  origin: string
  traceparent: string
  signal: AbortSignal
}

/** Puts the writes of a run into EVENTS, so that the next run of the key sees them without waiting for the watch. */
export class WriteThrough {
  readonly #events: Pick<EventStore, 'put'>
  readonly #references: References
  readonly #inFlight: InFlight
  readonly #options: WriteThroughOptions

  constructor({ events, references, inFlight }: WriteThroughDependencies, options: WriteThroughOptions) {
    this.#events = events
    this.#references = references
    this.#inFlight = inFlight
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
    const outcome = await this.#put(ref, verb, stored, owner)
    return { object: stored, isOld: outcome === 'newer' }
  }

  /** Stores the deletion of an object. `object` is its last known version. */
  async gone(ref: ResourceRef, owner: OwnerKey | undefined, object: KubeObject): Promise<Written> {
    const outcome = await this.#put(ref, 'deleted', object, owner)
    return { object: undefined, isOld: outcome === 'newer' }
  }

  /**
   * Stores the result after a write or a read of `object`. `found` is its version in the API server. Undefined: it is
   * gone.
   */
  result(
    ref: ResourceRef,
    owner: OwnerKey | undefined,
    object: KubeObject,
    found: KubeObject | undefined,
  ): Promise<Written> {
    return found === undefined ? this.gone(ref, owner, object) : this.present(ref, owner, found)
  }

  async #put(
    ref: ResourceRef,
    verb: Verb,
    object: KubeObject,
    owner: OwnerKey | undefined,
  ): Promise<PutResult['outcome']> {
    try {
      return (await this.#events.put(ref, verb, object, { owner, ...this.#options })).outcome
    } finally {
      this.#inFlight.end(ref, object)
    }
  }
}
