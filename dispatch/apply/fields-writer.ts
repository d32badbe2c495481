import { apiVersionOf, ConflictError, type KubeObject, type ResourceRef } from '#contracts'
import { isNotFound, type KubeClient, resourcePath, servedResources } from '#kube'
import { called, type FieldsWrite, RefusedError, type Written } from '#reconcile'
import { PATCH_RECORDS, patchRecordOf } from '#spec'
import { fieldsOfOthers, isStale, refusalOf, takenFrom, undefinedIfGone } from '../errors.ts'
import { PRIORITY } from '../gate.ts'
import { isObjectGone, type WriteRequests, type WritingRun } from './write-requests.ts'
import type { WriteThrough } from './write-through.ts'

const CRDS: ResourceRef = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  resource: 'customresourcedefinitions',
}

/**
 * Sets fields of objects of others, and gives them back, each by server-side apply without force, bound to the uid: it
 * never creates an object.
 */
export class FieldsWriter {
  readonly #requests: WriteRequests
  readonly #through: WriteThrough
  readonly #run: WritingRun

  constructor(requests: WriteRequests, through: WriteThrough, run: WritingRun) {
    this.#requests = requests
    this.#through = through
    this.#run = run
  }

  /** Rejects with a RefusedError, which names the other manager, the missing right, or what is not served. */
  async write(write: FieldsWrite): Promise<Written> {
    try {
      return await (write.verb === 'giveBack' ? this.#giveBack(write) : this.#set(write))
    } catch (error) {
      throw error instanceof RefusedError ? error : this.#refused(write, error)
    }
  }

  /** EVENTS may have an older version, or not have the object yet: then the API server is asked. */
  async #set(write: FieldsWrite): Promise<Written> {
    const { fields, object, observed } = write
    if (observed !== undefined)
      try {
        return await this.#apply(write, fields, object, observed)
      } catch (error) {
        if (!(isStale(error) || isObjectGone(error, object)) || fieldsOfOthers(error).length > 0) throw error
      }
    const found = await this.#find(fields, object)
    if (found !== undefined) return this.#apply(write, fields, object, found)
    const message = `cannot set fields of ${called(object)}: it does not exist`
    throw new RefusedError(message, { reason: 'NotFound' })
  }

  async #giveBack(write: FieldsWrite): Promise<Written> {
    const { fields, object } = write
    const live = await this.#findServed(write)
    if (live?.found === undefined || !isManager(live.found, write)) return { object: live?.found, isOld: false }
    try {
      return await this.#apply(write, live.ref, { ...object, apiVersion: apiVersionOf(live.ref) }, live.found)
    } catch (error) {
      if (isStale(error) || isObjectGone(error, object))
        throw new ConflictError(`${called(object)} has changed while fields of ${fields.resource} were given back`)
      throw error
    }
  }

  async #apply({ verb, fields, manager }: FieldsWrite, ref: ResourceRef, object: KubeObject, found: KubeObject) {
    const bound = { ...object, metadata: { ...object.metadata, uid: found.metadata.uid } } as KubeObject
    const subresource = fields.status && 'status'
    const target = { verb, ref, object: bound, observed: found, subresource } as const
    return this.#through.passed(ref, await this.#requests.apply(target, PRIORITY.create, manager, () => false))
  }

  #find(ref: ResourceRef, { metadata }: KubeObject): Promise<KubeObject | undefined> {
    const path = resourcePath(ref, metadata.namespace, metadata.name)
    return this.#requests.read((kube, signal) =>
      kube.get<KubeObject>(path, { signal }).catch((error: unknown) => {
        if (!isObjectGone(error, { metadata } as KubeObject)) throw error
        return undefined
      }),
    )
  }

  /** Finds the object in a version that is served. Undefined: there is no such kind, so that no object has the fields. */
  async #findServed(write: FieldsWrite): Promise<{ ref: ResourceRef; found: KubeObject | undefined } | undefined> {
    const { fields, object } = write
    try {
      return { ref: fields, found: await this.#find(fields, object) }
    } catch (error) {
      if (!isNotFound(error)) throw error
    }
    const ref = await this.#servedFor(write)
    return ref && { ref, found: await this.#find(ref, object) }
  }

  /** Returns another version of the resource: that of the record is not served, and its objects may exist all the same. */
  async #servedFor({ fields, object }: FieldsWrite): Promise<ResourceRef | undefined> {
    const { group, version, resource, namespace } = fields
    return this.#requests.read(async (kube, signal) => {
      const served = (await servedResources(kube, signal)).filter(
        (one) => one.group === group && one.resource === resource,
      )
      const [other] = served.filter((one) => one.version !== version)
      const isMisplaced = served.some(({ namespaced }) => namespaced !== (namespace !== undefined))
      if (isMisplaced || (served.length === 0 && !(await isDefined(kube, fields, signal)))) return undefined
      if (other !== undefined) return { group, version: other.version, resource }
      throw new RefusedError(
        `cannot give back fields of ${called(object)}: ${resource} of ${group} is defined, but version ${version} is not served`,
        { reason: 'NotServed' },
      )
    })
  }

  #refused({ verb, object, manager, fields: { status } }: FieldsWrite, error: unknown): unknown {
    const { identity, primary } = this.#run
    const what = `cannot ${verb === 'giveBack' ? 'give back' : 'set'} fields of ${called(object)}`
    const fields = fieldsOfOthers(error)
    if (fields.length > 0) {
      const taken = takenFrom(error, manager)
      const isOurs = taken.some((one) => one.manager?.startsWith(PATCH_RECORDS))
      const whose = isOurs ? ` (${PATCH_RECORDS}NAME/… is Reconciler NAME for another of its objects)` : ''
      const message = `${what}: others have them: ${fields.join('; ')}${whose}. Let the other manager leave them out, or do not return them`
      return new RefusedError(message, { reason: 'FieldConflict', taken, cause: error })
    }
    const refused = refusalOf(error, what)
    if (!(refused instanceof RefusedError)) return refused
    if (verb === 'setFields') {
      if (!isNotFound(error)) return refused
      const hint = `. Check metadata.namespace${status ? `, and that ${object.kind} has the subresource status` : ''}`
      return new RefusedError(`${refused.message}${hint}`, { reason: refused.reason, cause: error })
    }
    const message = `${refused.message}. Allow it, or remove the annotation ${patchRecordOf(identity)} of ${called(primary.object)}: then the fields stay`
    return new RefusedError(message, { reason: refused.reason, cause: error })
  }
}

/** Whether the manager of the write still has fields. `found`: as the API server has it. */
function isManager({ metadata: { managedFields } }: KubeObject, { manager, fields }: FieldsWrite): boolean {
  const all: unknown = managedFields
  return (
    Array.isArray(all) &&
    all.some(
      (one: { manager?: string; operation?: string; subresource?: string }) =>
        one.manager === manager &&
        one.operation === 'Apply' &&
        (one.subresource === 'status') === (fields.status === true),
    )
  )
}

/** Whether there is a CustomResourceDefinition, of which no version may be served. */
async function isDefined(kube: KubeClient, { group, resource }: ResourceRef, signal: AbortSignal): Promise<boolean> {
  if (!group.includes('.')) return false
  const path = resourcePath(CRDS, undefined, `${resource}.${group}`)
  return (await kube.get(path, { signal }).catch(undefinedIfGone)) !== undefined
}
