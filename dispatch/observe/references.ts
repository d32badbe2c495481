import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { asTravelling, type EventStore, type StoredObject } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { BoundedMap } from '#primitives'
import { called, DESIRED_ANNOTATION, isCreatedBy, markedBy } from '#reconcile'
import type { OwnedResource } from '#spec'
import { refusalOf, undefinedIfGone } from '../errors.ts'
import { DROPPED, type Gate } from '../gate.ts'
import type { StateMeter } from './state-budget.ts'

export interface ReferencesDeps {
  kube: KubeClient
  events: Pick<EventStore, 'isReferenceOnly'>
  gate: Gate
  cache: ObjectCache
  /** The account that reads the objects. They are not given to other accounts. Empty: the account of this process. */
  account: string
}

/** The number of concurrent reads of one run from the API server, for owned and for related objects each. */
export const REFERENCES_AT_ONCE = 8

/** Returns the object, from the API server if EVENTS has only a reference. Undefined if it is gone. */
export type Resolve = (resource: ResourceRef, stored: StoredObject) => Promise<KubeObject | undefined>

/** The run for which objects are read. */
export interface ReadingRun {
  reconciler: string
  /** The namespace of the primary. */
  namespace: string | undefined
  signal: AbortSignal
}

/**
 * Reads the objects of which EVENTS has only a reference: Secrets and other confidential kinds, and objects above the
 * size limit. A process reads each version once, as long as the cache has room.
 */
export class References {
  readonly #deps: ReferencesDeps

  constructor(deps: ReferencesDeps) {
    this.#deps = deps
  }

  as(account: string, kube: KubeClient): References {
    return new References({ ...this.#deps, account, kube })
  }

  /**
   * Returns a version at least as new as the stored one. Undefined if the object is gone. An object that is nested too
   * deeply for JSON is returned with its metadata only: it cannot be sent, but the objects related to it must still
   * run.
   */
  async resolve(
    ref: ResourceRef,
    stored: StoredObject,
    { meter, ...run }: ReadingRun & { meter: StateMeter },
  ): Promise<KubeObject | undefined> {
    if (!stored.referenceOnly) return stored.object
    const known = this.#deps.cache.get(this.#versionOf(stored.object)) ?? (await this.#fresh(ref, stored.object, run))
    if (known !== undefined) meter.add(resourceName(ref), known.size)
    return known?.object
  }

  async #fresh(ref: ResourceRef, reference: KubeObject, run: ReadingRun): Promise<CachedObject | undefined> {
    const found = await this.#read(ref, reference, run)
    if (found === undefined) return undefined
    const size = jsonSize(found)
    const known = size === undefined ? { object: metadataOf(found), size: 0 } : { object: found, size }
    this.#deps.cache.set(this.#versionOf(known.object), known)
    return known
  }

  /** Adds the API server's answer to a write to the cache, so that it is not read again. */
  written(ref: ResourceRef, object: KubeObject): void {
    const size = this.#deps.events.isReferenceOnly(ref) ? jsonSize(object) : undefined
    if (size !== undefined) this.#deps.cache.set(this.#versionOf(object), { object, size })
  }

  #versionOf({ metadata }: KubeObject): string {
    return `${this.#deps.account} ${metadata.uid} ${metadata.resourceVersion}`
  }

  async #read(ref: ResourceRef, reference: KubeObject, run: ReadingRun): Promise<KubeObject | undefined> {
    try {
      const found = await readLive(this.#deps, ref, reference, run)
      return found && asTravelling(found)
    } catch (error) {
      throw refusalOf(error, `cannot read ${called(reference)}, which travels as a reference only`)
    }
  }
}

/** Returns undefined if the object is nested too deeply for JSON.stringify(). */
function jsonSize(object: KubeObject): number | undefined {
  try {
    return JSON.stringify(object).length
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

const metadataOf = ({ apiVersion, kind, metadata }: KubeObject): KubeObject => ({ apiVersion, kind, metadata })

/** The capacity in bytes of JSON. */
const CAPACITY = 32 * 1024 * 1024

export interface CachedObject {
  object: KubeObject
  /** The size in bytes of JSON. */
  size: number
}

/** The objects that were added last. One cache for the whole process. */
export type ObjectCache = BoundedMap<string, CachedObject>

export const createObjectCache = (): ObjectCache => new BoundedMap(CAPACITY, ({ size }) => size)

/** Reads the object from the API server, in its reconciler's turn at the gate. Undefined if it is gone. */
export async function readLive(
  { kube, gate }: { kube: KubeClient; gate: Gate },
  ref: ResourceRef,
  { metadata }: KubeObject,
  { reconciler, namespace, signal }: ReadingRun,
): Promise<KubeObject | undefined> {
  const path = resourcePath(ref, metadata.namespace, metadata.name)
  const read = () => kube.get(path, { signal }).catch(undefinedIfGone)
  const found = await gate.run({ reconciler, namespace, kind: 'read' }, read, { signal })
  return found === DROPPED ? undefined : found
}

export interface AdoptionsDeps {
  kube: KubeClient
  gate: Gate
}

/** An object that has the owner as its controller. */
export interface Candidate {
  resource: OwnedResource
  object: KubeObject
  /** Whether its annotations are known. A reference has none. */
  isAnnotated: boolean
  /** Whether the reconciler writes the fingerprint of the desired state on objects of this kind. */
  isFingerprinted: boolean
}

/** The number of answers that the process remembers, in about 10 MiB. Other objects are read again. */
const REMEMBERED = 65_536

/**
 * Decides whether a reconciler has created or adopted an object that has its owner. An object without a mark is read
 * once from the API server, for its managedFields, which EVENTS does not have. The answer is remembered.
 */
export class Adoptions {
  readonly #deps: AdoptionsDeps
  readonly #known: BoundedMap<string, boolean>

  constructor(deps: AdoptionsDeps, known = new BoundedMap<string, boolean>(REMEMBERED)) {
    this.#deps = deps
    this.#known = known
  }

  /** Returns adoptions that read with the rights of this client, and share the remembered answers. */
  as(kube: KubeClient): Adoptions {
    return new Adoptions({ ...this.#deps, kube }, this.#known)
  }

  async isCreatedBy(identity: string, owner: KubeObject, candidate: Candidate, run: ReadingRun): Promise<boolean> {
    const { resource, object, isAnnotated, isFingerprinted } = candidate
    const marked = markedBy(owner, object)
    if (marked !== undefined) return marked === identity
    if (isAnnotated && isFingerprinted && object.metadata.annotations?.[DESIRED_ANNOTATION] === undefined) return false
    const { uid, resourceVersion } = object.metadata
    // If the annotations are known, they show a mark that is written later.
    const key = [identity, uid, ...(isAnnotated ? [] : [resourceVersion])].join(' ')
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const live = await this.#read(resource, object, run)
    if (live === undefined || live.metadata.uid !== uid) return false
    const isCreated = isCreatedBy(identity, owner, live)
    this.#known.set(key, isCreated)
    return isCreated
  }

  async #read(resource: OwnedResource, object: KubeObject, run: ReadingRun): Promise<KubeObject | undefined> {
    try {
      return await readLive(this.#deps, resource, object, run)
    } catch (error) {
      throw refusalOf(error, `cannot read ${called(object)}, to find out which reconciler has created it`)
    }
  }
}
