import type { KubeObject } from '#contracts'
import { called, GoneError, type MetadataWrite, type StatusPatch, type Written } from '#reconcile'
import { fieldsOfOthers, isStale, refusalOf } from '../errors.ts'
import { DROPPED, PRIORITY } from '../gate.ts'
import { isObjectGone, moved } from './answers.ts'
import { isOfReconciler, keptByReconcilers } from './field-conflicts.ts'
import type { WriteRequests, WritingRun } from './write-requests.ts'
import type { WriteThrough } from './write-through.ts'

/**
 * Writes the primary itself. `object` is the primary as observed. Rejects with ConflictError if it has changed since,
 * and with GoneError if it is gone. EVENTS then has the state of the API server.
 */
export class PrimaryWriter {
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
