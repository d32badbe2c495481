import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { asTravelling, type EventStore, type OwnerKey, type PutResult, type Verb } from '#events'
import type { Written } from '#reconcile'
import type { References } from '../observe/references.ts'

interface WriteThroughDeps {
  events: Pick<EventStore, 'put'>
  references: References
  inFlight: InFlight
}

/** The run whose writes are stored. */
interface StoringRun {
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
  readonly #run: StoringRun

  constructor({ events, references, inFlight }: WriteThroughDeps, run: StoringRun) {
    this.#events = events
    this.#references = references
    this.#inFlight = inFlight
    this.#run = run
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

  /** Takes the result of a write of an object of others. It is not stored: the bridge knows whose it is. */
  passed(ref: ResourceRef, object: KubeObject): Written {
    const stored = asTravelling(object)
    this.#references.written(ref, stored)
    this.#inFlight.end(ref, object)
    return { object: stored, isOld: false }
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
      return (await this.#events.put(ref, verb, object, { owner, ...this.#run })).outcome
    } finally {
      this.#inFlight.end(ref, object)
    }
  }
}

interface Write {
  traceparent: string
  ended: PromiseWithResolvers<void>
}

/** Writes whose results EVENTS does not have yet. The watch may report them before the API server has answered. */
export class InFlight {
  readonly #writes = new Map<string, Write>()

  begin(ref: ResourceRef, object: KubeObject, traceparent: string): void {
    this.end(ref, object)
    this.#writes.set(targetOf(ref, object), { traceparent, ended: Promise.withResolvers() })
  }

  end(ref: ResourceRef, object: KubeObject): void {
    const target = targetOf(ref, object)
    this.#writes.get(target)?.ended.resolve()
    this.#writes.delete(target)
  }

  traceOf(ref: ResourceRef, object: KubeObject): string | undefined {
    return this.#writes.get(targetOf(ref, object))?.traceparent
  }

  /** Resolves when EVENTS has the result, or when there is none. Undefined: the object is not being written. */
  ended(ref: ResourceRef, object: KubeObject): Promise<void> | undefined {
    return this.#writes.get(targetOf(ref, object))?.ended.promise
  }
}

const targetOf = (ref: ResourceRef, { metadata }: KubeObject): string =>
  `${resourceName(ref)} ${metadata.namespace ?? ''} ${metadata.name}`

/** Returns the origin with which a run puts its writes into EVENTS. */
export const originOf = (reconciler: string, key: string, owner: string): string => `${reconciler}/${key}/${owner}`

/** Returns the owner of the lease of the run that made the write. Undefined if a run of another key made it. */
export function ownerIn(origin: string, reconciler: string, key: string): string | undefined {
  const before = originOf(reconciler, key, '')
  return origin.startsWith(before) ? origin.slice(before.length) : undefined
}
