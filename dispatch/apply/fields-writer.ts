import { apiVersionOf, type KubeObject, type ResourceRef } from '#contracts'
import { isNotFound, type KubeClient, resourcePath, servedResources } from '#kube'
import {
  called,
  type FieldsWrite,
  isAsBefore,
  RefusedError,
  returnedBy,
  sharedWithOurs,
  type Written,
  withOldBefore,
  withoutKept,
  withValues,
} from '#reconcile'
import { PATCH_RECORDS, patchRecordOf } from '#spec'
import { fieldsOfOthers, isStale, refusalOf, takenFrom, undefinedIfGone } from '../errors.ts'
import { PRIORITY } from '../gate.ts'
import { isObjectGone, moved, type WriteRequests, type WritingRun } from './write-requests.ts'
import type { WriteThrough } from './write-through.ts'

const CRDS: ResourceRef = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  resource: 'customresourcedefinitions',
}

/**
 * Sets fields of objects of others, and gives them back, each by server-side apply that is bound to the uid: it never
 * creates an object. It forces nothing but fields that the write may take over.
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

  /**
   * Rejects with a RefusedError, which names the other manager, the missing right, or what is not served, and with a
   * ConflictError if the object has changed meanwhile.
   */
  async write(write: FieldsWrite): Promise<Written> {
    try {
      return await (write.verb === 'giveBack' ? this.#giveBack(write) : this.#set(write))
    } catch (error) {
      throw error instanceof RefusedError ? error : this.#refused(write, error)
    }
  }

  /** EVENTS may have an older version, or not have the object yet: then the API server is asked. */
  async #set(write: FieldsWrite): Promise<Written> {
    const { fields, object, observed, before, alone } = write
    // What an object had before is compared with the version that is written, and so are the managers.
    if (observed !== undefined && Object.keys(before).length === 0 && alone.length === 0)
      try {
        return await this.#apply(write, fields, object, observed)
      } catch (error) {
        if (!(isStale(error) || isObjectGone(error, object)) || fieldsOfOthers(error).length > 0) throw error
      }
    const found = await this.#find(fields, object)
    // EVENTS will have it: then its values are recorded before they are taken.
    if (found !== undefined && write.needsBefore) throw moved(object, undefined)
    const shared = found === undefined ? [] : sharedWithOurs(write, (path) => holdersOf(found, path))
    if (shared.length > 0) {
      const told = shared.map(({ field, manager }) => `${manager} has ${field}`).join('; ')
      const message = `cannot set fields of ${called(object)}: ${told}, and gets the value of before back (${PATCH_RECORDS}NAME/… is Reconciler NAME for another of its objects). Have one object set the field`
      throw new RefusedError(message, { reason: 'FieldConflict', taken: shared })
    }
    const old = found === undefined ? [] : withOldBefore(write, found, (path) => holdersOf(found, path))
    if (old.length > 0) {
      const told = old.map(({ field }) => field).join(', ')
      const message = `cannot set fields of ${called(object)} yet: the recorded value of before of ${told} is not that of this object, and the present one is recorded first`
      throw new RefusedError(message, { reason: 'FieldConflict', taken: old })
    }
    if (found !== undefined) return this.#apply(write, fields, object, found)
    const message = `cannot set fields of ${called(object)}: it does not exist`
    throw new RefusedError(message, { reason: 'NotFound' })
  }

  async #giveBack(write: FieldsWrite): Promise<Written> {
    const { object } = write
    const live = await this.#findServed(write)
    if (live?.found === undefined || entryOf(live.found, write) === undefined)
      return { object: live?.found, isOld: false }
    return this.#apply(write, live.ref, { ...object, apiVersion: apiVersionOf(live.ref) }, live.found)
  }

  async #apply(write: FieldsWrite, ref: ResourceRef, object: KubeObject, found: KubeObject): Promise<Written> {
    const { verb, fields, manager, before } = write
    const { uid, resourceVersion } = found.metadata
    const { fieldsV1 } = entryOf(found, write) ?? {}
    const returned = returnedBy(write, (path) => hasField(fieldsV1, path.split('.')))
    const isExact = Object.keys(before).length > 0
    const metadata = { ...object.metadata, uid, ...(isExact && { resourceVersion }) }
    const bound = { ...withValues(object, returned), metadata }
    const subresource = fields.status && 'status'
    const target = { verb, ref, object: bound, observed: isExact ? undefined : found, subresource } as const
    const mayTake = (others: readonly string[]) => others.every((text) => isAsBefore(write, text, found))
    let after: KubeObject
    try {
      after = await this.#requests.apply(target, PRIORITY.create, manager, mayTake)
    } catch (error) {
      const left = withoutKept(write, takenFrom(error, manager))
      if (left === undefined) throw error
      return this.#apply(left, ref, object, found)
    }
    const paths = Object.keys(returned).filter((path) => returned[path] !== null)
    if (paths.length === 0) return this.#through.passed(ref, after)
    const left = withoutFields(after, write, paths)
    return this.#through.passed(ref, await this.#requests.patch({ verb, ref, object: bound }, left))
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
      const message = `${what}: others have them: ${fields.join('; ')}${whose}. Let the other manager leave them out, or do not return them${status ? '' : ', or name single values of the spec in "takes"'}`
      return new RefusedError(message, { reason: 'FieldConflict', taken, cause: error })
    }
    if (isStale(error) || (verb === 'giveBack' && isObjectGone(error, object))) return moved(object, error)
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

interface ManagedFields {
  manager?: string
  operation?: string
  subresource?: string
  fieldsV1?: FieldSet
}

/** The form of `fieldsV1` in the API: `{ 'f:spec': { 'f:replicas': {} } }`. */
interface FieldSet {
  [name: string]: FieldSet
}

const managedFieldsOf = ({ metadata: { managedFields } }: KubeObject): ManagedFields[] =>
  Array.isArray(managedFields) ? managedFields : []

/** Returns the fields that the manager of the write has. `found`: as the API server has it. */
const entryOf = (found: KubeObject, { manager, fields }: FieldsWrite): ManagedFields | undefined =>
  managedFieldsOf(found).find(
    (one) =>
      one.manager === manager &&
      one.operation === 'Apply' &&
      (one.subresource === 'status') === (fields.status === true),
  )

/** Returns the managers that have the field of an object. */
const holdersOf = (found: KubeObject, path: string): string[] =>
  managedFieldsOf(found).flatMap(({ manager, fieldsV1 }) =>
    manager !== undefined && hasField(fieldsV1, path.split('.')) ? [manager] : [],
  )

function hasField(fields: FieldSet | undefined, [step, ...others]: readonly string[]): boolean {
  if (fields === undefined) return false
  return step === undefined || hasField(fields[`f:${step}`], others)
}

/**
 * Returns the patch by which the manager of the write lets go of fields, and they keep their values: they then belong to
 * nobody, so that their owner can write them again without a conflict. An apply without them would remove them.
 */
function withoutFields(after: KubeObject, write: FieldsWrite, paths: readonly string[]): object {
  const own = entryOf(after, write)
  const left = paths.reduce<FieldSet | undefined>((all, path) => withoutField(all, path.split('.')), own?.fieldsV1)
  const managedFields = managedFieldsOf(after).flatMap((one) =>
    one !== own ? [one] : left === undefined ? [] : [{ ...one, fieldsV1: left }],
  )
  const { uid, resourceVersion } = after.metadata
  // The API server ignores an empty list. One empty entry stands for it.
  return { metadata: { uid, resourceVersion, managedFields: managedFields.length > 0 ? managedFields : [{}] } }
}

/** Returns undefined if nothing is left. */
function withoutField(fields: FieldSet | undefined, [step, ...others]: readonly string[]): FieldSet | undefined {
  if (fields === undefined || step === undefined) return undefined
  const { [`f:${step}`]: inner, ...left } = fields
  const rest = withoutField(inner, others)
  const all = { ...left, ...(rest && { [`f:${step}`]: rest }) }
  return Object.keys(all).length === 0 ? undefined : all
}

/** Whether there is a CustomResourceDefinition, of which no version may be served. */
async function isDefined(kube: KubeClient, { group, resource }: ResourceRef, signal: AbortSignal): Promise<boolean> {
  if (!group.includes('.')) return false
  const path = resourcePath(CRDS, undefined, `${resource}.${group}`)
  return (await kube.get(path, { signal }).catch(undefinedIfGone)) !== undefined
}
