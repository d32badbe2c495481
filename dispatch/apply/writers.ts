import { ConflictError, type KubeObject } from '#contracts'
import { type EventStore, type OwnerKey, traceparentOf } from '#events'
import {
  called,
  GoneError,
  isCreatedBy,
  type MetadataWrite,
  NamespaceTerminatingError,
  RefusedError,
  type StatusPatch,
  takeOver,
  type Write,
  type Written,
} from '#reconcile'
import { isOwnedBy } from '#spec'
import { fieldsOfOthers, isStale, refusalOf } from '../errors.ts'
import { DROPPED, PRIORITY } from '../gate.ts'
import type { References } from '../observe/references.ts'
import { ActsWriter } from './acts-writer.ts'
import { FieldsWriter } from './fields-writer.ts'
import {
  isNameTaken,
  isObjectGone,
  isOfReconciler,
  keptByReconcilers,
  moved,
  WriteRequests,
  type WriteRequestsDeps,
  type WritingRun,
} from './write-requests.ts'
import { WriteThrough } from './write-through.ts'

/*
 * The writes of one run:
 *
 *   OwnedWriter.write    one write of an owned object
 *     #send              sends it by WriteRequests (gate, lease, request), puts the answer into EVENTS by WriteThrough
 *     #takeOver          if the name exists: reads the object, and adopts it if reconcile/name-taken.ts allows that
 *     #refresh           if the object has changed: puts its new version into EVENTS. The write ends in a ConflictError
 *     #refused           makes other answers a RefusedError, or leaves them as an error that may pass
 *   PrimaryWriter        status, finalizers, metadata and deletion of the primary
 *     #write             sends and stores in the same way
 *     #refused           if the primary is gone: GoneError; if it has changed: ConflictError, EVENTS has the new version
 *   FieldsWriter         fields of objects of others: dispatch/apply/fields-writer.ts
 *   ActsWriter           requests to subresources: dispatch/apply/acts-writer.ts
 */

export interface WritersDeps extends WriteRequestsDeps {
  /** The methods of EVENTS that runs use. */
  events: Pick<EventStore, 'observe' | 'put' | 'isReferenceOnly'>
  references: References
}

export interface Writers {
  owned: OwnedWriter
  primary: PrimaryWriter
  fields: FieldsWriter
  acts: ActsWriter
}

/** Returns the writers of one run. They send its writes and put the results into EVENTS. */
export function writersOf(deps: WritersDeps, run: WritingRun): Writers {
  const { origin, signal, span } = run
  const requests = new WriteRequests(deps, run)
  const through = new WriteThrough(deps, { origin, signal, traceparent: traceparentOf(span) })
  return {
    owned: new OwnedWriter(requests, through, run),
    primary: new PrimaryWriter(requests, through, run),
    fields: new FieldsWriter(requests, through, run),
    acts: new ActsWriter(requests, through, run, deps.events),
  }
}

/** Writes the objects that a reconciler creates for the primary. */
class OwnedWriter {
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
      if (isNameTaken(write, error)) return this.#takeOver(write)
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
      const after = await this.#requests.delete(resource, object, write.isForeground)
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
  async #takeOver(write: Write): Promise<Written> {
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

/**
 * Writes the primary itself. `object` is the primary as observed. Rejects with ConflictError if it has changed since,
 * and with GoneError if it is gone. EVENTS then has the state of the API server.
 */
class PrimaryWriter {
  readonly #requests: WriteRequests
  readonly #through: WriteThrough
  readonly #primary: WritingRun['primary']

  constructor(requests: WriteRequests, through: WriteThrough, { primary }: WritingRun) {
    this.#requests = requests
    this.#through = through
    this.#primary = primary
  }

  /** Writes the status. If `unwanted` is aborted before the turn of the request, nothing is sent. */
  status(object: KubeObject, patch: StatusPatch, unwanted?: AbortSignal): Promise<Written | 'dropped'> {
    return this.#write(object, 'write the status of', async ({ ref, owner }) => {
      const after = await this.#requests.status(ref, object, patch, unwanted)
      return after === DROPPED ? 'dropped' : this.#through.present(ref, owner, after)
    })
  }

  /** Writes the finalizers. An object that is being deleted is gone without its last finalizer. */
  finalizers(object: KubeObject, finalizers: string[]): Promise<Written> {
    const patch = { metadata: { finalizers, resourceVersion: object.metadata.resourceVersion } }
    return this.#write(object, 'write the finalizers of', async ({ ref, owner }) => {
      const after = await this.#requests.patch({ verb: 'finalizers', ref, object }, patch)
      const isGone = after.metadata.deletionTimestamp !== undefined && finalizers.length === 0
      return this.#through.result(ref, owner, object, isGone ? undefined : after)
    })
  }

  /** Writes one annotation. Undefined: removes it. */
  record(object: KubeObject, annotation: string, value: string | undefined): Promise<Written> {
    const { resourceVersion } = object.metadata
    const patch = { metadata: { annotations: { [annotation]: value ?? null }, resourceVersion } }
    return this.#write(object, 'write the record of', async ({ ref, owner }) =>
      this.#through.present(ref, owner, await this.#requests.patch({ verb: 'metadata', ref, object }, patch)),
    )
  }

  /** Writes labels and annotations. Keys that another reconciler has set to another value stay: RefusedError. */
  metadata(object: KubeObject, { object: wanted, manager, taking }: MetadataWrite): Promise<Written> {
    return this.#write(object, 'write labels and annotations of', async ({ ref, owner }) => {
      const target = { verb: 'metadata', ref, object: wanted, taking } as const
      const mayTakeBack = (fields: string[]) => !fields.some(isOfReconciler)
      const after = await this.#requests.apply(target, PRIORITY.status, manager, mayTakeBack)
      return this.#through.present(ref, owner, after)
    })
  }

  /** Deletes the primary. An object with finalizers, or a pod that still runs, exists until these end. */
  delete(object: KubeObject): Promise<Written> {
    return this.#write(object, 'delete', async ({ ref, owner }) =>
      this.#through.result(ref, owner, object, await this.#requests.delete(ref, object)),
    )
  }

  async #write<T>(object: KubeObject, what: string, write: (primary: WritingRun['primary']) => Promise<T>): Promise<T> {
    try {
      return await write(this.#primary)
    } catch (error) {
      throw await this.#refused(object, error, `cannot ${what} ${called(object)}`)
    }
  }

  async #refused(object: KubeObject, error: unknown, what: string): Promise<unknown> {
    const { ref, owner } = this.#primary
    if (isObjectGone(error, object)) {
      await this.#through.gone(ref, owner, object)
      return new GoneError(`${called(object)} is gone`, { cause: error })
    }
    const fields = fieldsOfOthers(error)
    if (fields.length > 0) return keptByReconcilers(what, fields, error)
    if (!isStale(error)) return refusalOf(error, what)
    await this.#through.result(ref, owner, object, await this.#requests.get(ref, object))
    return moved(object, error)
  }
}
