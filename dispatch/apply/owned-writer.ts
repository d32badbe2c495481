import { ConflictError } from '#contracts'
import type { OwnerKey } from '#events'
import {
  called,
  isCreatedBy,
  NamespaceTerminatingError,
  RefusedError,
  takeOver,
  type Write,
  type Written,
} from '#reconcile'
import { isOwnedBy } from '#spec'
import { isStale, refusalOf } from '../errors.ts'
import { PRIORITY } from '../gate.ts'
import { isNameTaken, isObjectGone, moved } from './answers.ts'
import type { WriteRequests, WritingRun } from './write-requests.ts'
import type { WriteThrough } from './write-through.ts'

/** Writes the objects that a reconciler creates for the primary. */
export class OwnedWriter {
  readonly #requests: WriteRequests
  readonly #through: WriteThrough
  readonly #run: WritingRun
  readonly #owner: OwnerKey

  constructor(requests: WriteRequests, through: WriteThrough, run: WritingRun) {
    const { ref, object } = run.primary
    this.#requests = requests
    this.#through = through
    this.#run = run
    this.#owner = { resource: ref.resource, name: object.metadata.name }
  }

  /** Rejects with ConflictError if the object has changed since it was observed. EVENTS then has its new version. */
  async write(write: Write): Promise<Written> {
    try {
      return await this.#send(write)
    } catch (error) {
      if (isNameTaken(write, error)) return this.#claim(write)
      if (isStale(error) || (write.verb === 'patch' && isObjectGone(error, write.object))) {
        await this.#refresh(write)
        throw moved(write.object, error)
      }
      throw this.#refused(write, error)
    }
  }

  /**
   * Translates a refusal. If a namespace other than the primary's is being deleted, the primary outlives it and has to
   * show that.
   */
  #refused({ verb, object }: Write, error: unknown): unknown {
    const what = `cannot ${verb} ${called(object)}`
    const refused = refusalOf(error, what, object)
    const isHome = object.metadata.namespace === this.#run.primary.object.metadata.namespace
    if (isHome || !(refused instanceof NamespaceTerminatingError)) return refused
    return new RefusedError(`${what}: ${refused.message}`, { reason: 'NamespaceTerminating', cause: error })
  }

  async #send(write: Write): Promise<Written> {
    const { verb, resource, object } = write
    if (verb === 'delete') {
      const after = await this.#requests.delete(resource, object)
      return this.#through.result(resource, this.#owner, object, after)
    }
    if (verb === 'create') {
      const after = await this.#requests.create(resource, object)
      return this.#through.present(resource, this.#owner, after, 'added')
    }
    const target = { verb, ref: resource, object }
    if (verb === 'patch') {
      const after = await this.#requests.patch(target, write.patch)
      return this.#through.present(resource, this.#owner, after)
    }
    const isObserved = write.observed !== undefined
    // An apply that creates or adopts the object names a version itself.
    const isOwn = object.metadata.resourceVersion === undefined
    const applied = { ...target, taking: write.taking, observed: isOwn ? write.observed : undefined }
    const after = await this.#requests.apply(applied, PRIORITY.create, this.#run.fieldManager, () => isObserved)
    return this.#through.present(resource, this.#owner, after, isObserved ? 'modified' : 'added')
  }

  /**
   * Handles a name that exists although EVENTS does not have the object: reads from the API server which owner it has.
   */
  async #claim(write: Write): Promise<Written> {
    const { resource, object } = write
    const found = await this.#requests.get(resource, object)
    if (found === undefined) throw new ConflictError(`${called(object)} was deleted just now`)
    const { identity, primary } = this.#run
    if (isOwnedBy(found, primary.object) && isCreatedBy(identity, primary.object, found))
      return { ...(await this.#through.present(resource, this.#owner, found)), isFound: true }
    const { write: taking, adopted } = takeOver(write, found, { identity, owner: primary.object })
    return { ...(await this.write(taking)), adopted }
  }

  async #refresh(write: Write): Promise<void> {
    const { resource, object } = write
    const observed = write.verb === 'apply' ? write.observed : object
    const found = await this.#requests.get(resource, object)
    if (found !== undefined && isOwnedBy(found, this.#run.primary.object))
      await this.#through.present(resource, this.#owner, found)
    else if (observed?.metadata.uid !== undefined && found?.metadata.uid !== observed.metadata.uid)
      await this.#through.gone(resource, this.#owner, observed)
  }
}
