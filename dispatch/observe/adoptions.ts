import type { KubeObject } from '#contracts'
import type { KubeClient } from '#kube'
import { BoundedMap } from '#primitives'
import { called, DESIRED_ANNOTATION, isCreatedBy, markedBy } from '#reconcile'
import type { OwnedResource } from '#spec'
import { refusalOf } from '../errors.ts'
import type { Gate } from '../gate.ts'
import type { ReadingRun } from './references.ts'
import { readLive } from './references.ts'

export interface AdoptionsDependencies {
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
  readonly #deps: AdoptionsDependencies
  readonly #known: BoundedMap<string, boolean>

  constructor(deps: AdoptionsDependencies, known = new BoundedMap<string, boolean>(REMEMBERED)) {
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
