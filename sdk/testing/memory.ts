import { isDeepStrictEqual } from 'node:util'
import { ConflictError, controllerOf, isRecord, type KubeObject, mergePatched } from '#contracts'
import type { TakenField } from '#reconcile'
import { valuesAt } from '#spec'

/** The fields that identify an object. */
export interface Identity {
  apiVersion: string
  kind: string
  metadata: { name: string; namespace?: string | undefined }
}

/** A write that the API server rejects. */
export class MemoryRefusal extends Error {
  override readonly name = 'MemoryRefusal'
  readonly reason: 'AlreadyExists' | 'NotFound'
  constructor(reason: 'AlreadyExists' | 'NotFound', identity: Identity) {
    super(`${nameOf(identity)} ${reason === 'NotFound' ? 'is not there' : 'exists already'}`)
    this.reason = reason
  }
}

/**
 * The part of an API server that the correctness of a reconciler depends on: identities, generations, preconditions,
 * merge patches, server-side apply, finalizers and garbage collection. It has no schemas and defaults; `admit` has the
 * rules of admission.
 */
export class Memory {
  now: Date
  /** Called before each change by a client. It may throw. */
  beforeChange: () => void = () => {}
  /** Called before each write with the object before it. Returns what is stored. It may throw. */
  admit: (object: KubeObject, old?: KubeObject) => KubeObject = (object) => object
  /** Called after each change. */
  changed: (before: KubeObject | undefined, after: KubeObject | undefined) => void = () => {}
  readonly #objects = new Map<string, KubeObject>()
  readonly #wanted = new Map<string, KubeObject>()
  readonly #births = new Map<string, number>()
  #version = 0

  constructor(now: Date, from?: Memory) {
    this.now = now
    if (from === undefined) return
    // Stored objects are never changed in place.
    this.#objects = new Map(from.#objects)
    this.#wanted = new Map(from.#wanted)
    this.#births = new Map(from.#births)
    this.#version = from.#version
  }

  copy(): Memory {
    return new Memory(this.now, this)
  }

  /** A number that grows with every change. */
  get version(): number {
    return this.#version
  }

  all(): KubeObject[] {
    return [...this.#objects.values()]
  }

  find(identity: Identity): KubeObject | undefined {
    return this.#objects.get(nameOf(identity))
  }

  create(object: KubeObject): KubeObject {
    const key = nameOf(object)
    if (this.#objects.has(key)) throw new MemoryRefusal('AlreadyExists', object)
    this.beforeChange()
    const birth = (this.#births.get(key) ?? 0) + 1
    this.#births.set(key, birth)
    const admitted = this.admit(object)
    const metadata = {
      ...object.metadata,
      uid: `${object.kind}/${object.metadata.name}#${birth}`,
      generation: 1,
      creationTimestamp: this.#time(),
    }
    return this.#store(withoutEmptyLists(asStored({ ...structuredClone(admitted), metadata })))
  }

  apply(object: KubeObject): KubeObject {
    const { uid, resourceVersion: _, ...metadata } = object.metadata
    const wanted = asStored(structuredClone({ ...object, metadata }) as KubeObject)
    const current = this.find(object)
    if (current === undefined && uid !== undefined) throw new ConflictError(`${nameOf(object)} is gone`)
    const before = current === undefined ? this.create(wanted) : current
    if (uid !== undefined && before.metadata.uid !== uid) throw new ConflictError(`${nameOf(object)} is another one`)
    const after = applied(before, this.#wanted.get(before.metadata.uid ?? ''), wanted) as KubeObject
    const stored = this.#replace(before, after)
    this.#wanted.set(before.metadata.uid ?? '', wanted)
    return stored
  }

  /** Returns the last applied configuration of an object. */
  declared({ metadata }: KubeObject): KubeObject | undefined {
    return this.#wanted.get(metadata.uid ?? '')
  }

  /**
   * Returns the fields that other managers have set and that the apply would change. `manager`: that of labels and
   * annotations.
   */
  takenBack(wanted: KubeObject, manager?: string): TakenField[] {
    const { uid = '' } = wanted.metadata
    const current = this.find(wanted)
    const last = this.#wanted.get(manager === undefined ? (current?.metadata.uid ?? '') : `${uid} ${manager}`)
    const { uid: _, resourceVersion: __, ...metadata } = wanted.metadata
    return changedByOthers(asStored({ ...wanted, metadata }), current, last)
  }

  /** Applies labels and annotations with server-side apply, for the observed version only. */
  applyMetadata(wanted: KubeObject, manager: string): KubeObject {
    const { uid, resourceVersion } = wanted.metadata
    const before = this.find(wanted)
    if (before === undefined || before.metadata.uid !== uid || before.metadata.resourceVersion !== resourceVersion)
      throw new ConflictError(`${nameOf(wanted)} has changed since it was observed`)
    const known = `${uid} ${manager}`
    const last = this.#wanted.get(known)
    const metadata = { ...before.metadata }
    for (const field of ['labels', 'annotations'] as const) {
      const [current = {}, former = {}, next = {}] = [before, last, wanted].map((one) => one?.metadata[field])
      const map = applied(current, former, next) as Record<string, string>
      if (Object.keys(map).length > 0) metadata[field] = map
      else delete metadata[field]
    }
    const stored = this.#replace(before, { ...before, metadata })
    this.#wanted.set(known, wanted)
    return stored
  }

  /** Returns the fields that other managers have set to other values. Server-side apply refuses them. */
  takenFields(wanted: KubeObject, manager: string): TakenField[] {
    const current = this.find(wanted)
    return current === undefined ? [] : changedByOthers(fieldsIn(wanted), current, this.#fieldsOf(current, manager))
  }

  /**
   * Applies some fields by one of several managers. A field that it no longer sets is removed, unless another manager sets
   * it too, or has changed it. `sent`: with the values of fields that then belong to nobody.
   */
  applyFields(wanted: KubeObject, manager: string, sent = wanted): KubeObject {
    const before = this.find(wanted)
    if (before === undefined) throw new ConflictError(`${nameOf(wanted)} is gone`)
    const { uid = '' } = before.metadata
    const own = `${uid} ${manager}`
    const fields = fieldsIn(sent)
    const others = [...this.#wanted].flatMap(([key, one]) =>
      key !== own && (key === uid || key.startsWith(`${uid} `)) ? [fieldsIn(one)] : [],
    )
    const last = this.#fieldsOf(before, manager)
    if (Object.keys(fieldsIn(wanted)).length === 0) this.#wanted.delete(own)
    else this.#wanted.set(own, wanted)
    return this.#replace(before, overlaid(without(before, last, [fields, ...others]), fields) as KubeObject)
  }

  /** Whether the manager has set this field, and nobody has changed it since. */
  hasField(object: KubeObject, manager: string, path: string): boolean {
    const last = this.#wanted.get(`${object.metadata.uid} ${manager}`)
    const value = last && valuesAt(last, path)[0]
    return value !== undefined && isDeepStrictEqual(value, valuesAt(object, path)[0])
  }

  /** Returns the managers that have set the field, and whose value it still has. */
  holdersOf(object: KubeObject, path: string): string[] {
    const of = `${object.metadata.uid} `
    const managers = [...this.#wanted.keys()].flatMap((key) => (key.startsWith(of) ? [key.slice(of.length)] : []))
    return managers.filter((manager) => this.hasField(object, manager, path))
  }

  /** Returns the names of the objects of which a manager with this prefix has fields. */
  withFieldsOf(prefix: string): string[] {
    return this.all()
      .filter(({ metadata: { uid } }) => [...this.#wanted.keys()].some((key) => key.startsWith(`${uid} ${prefix}`)))
      .map(nameOf)
  }

  #fieldsOf({ metadata: { uid } }: KubeObject, manager: string): Fields {
    const last = this.#wanted.get(`${uid} ${manager}`)
    return last === undefined ? {} : fieldsIn(last)
  }

  /** Applies a merge patch; with a resourceVersion, for that version only. */
  patch(identity: Identity, patch: object): KubeObject {
    const before = this.find(identity)
    if (before === undefined) throw new MemoryRefusal('NotFound', identity)
    const { resourceVersion } = (patch as Partial<KubeObject>).metadata ?? {}
    if (resourceVersion !== undefined && resourceVersion !== before.metadata.resourceVersion)
      throw new ConflictError(`${nameOf(identity)} has changed since it was observed`)
    return this.#replace(before, mergePatched(before, structuredClone(patch)) as KubeObject)
  }

  /**
   * Deletes the object, and immediately the objects that it owned. An object with a finalizer remains, marked as being
   * deleted.
   */
  delete(identity: Identity): void {
    const object = this.find(identity)
    if (object === undefined) throw new MemoryRefusal('NotFound', identity)
    if (object.metadata.deletionTimestamp === undefined) this.beforeChange()
    if ((object.metadata.finalizers ?? []).length === 0) this.#remove(object)
    else if (object.metadata.deletionTimestamp === undefined)
      this.#store({ ...object, metadata: { ...object.metadata, deletionTimestamp: this.#time() } })
  }

  /** Deletes objects whose controller does not exist. */
  collectGarbage(): void {
    const uids = new Set(this.all().map(({ metadata }) => metadata.uid))
    for (const object of this.all()) {
      const owner = controllerOf(object)
      if (owner !== undefined && !uids.has(owner.uid)) this.#remove(object)
    }
  }

  #replace(before: KubeObject, changed: KubeObject): KubeObject {
    const after = withoutEmptyLists(changed)
    const { metadata } = after
    if (isDeepStrictEqual(before, after)) return before
    this.admit(after, before)
    this.beforeChange()
    const generation = (before.metadata.generation ?? 1) + (isDeepStrictEqual(before.spec, after.spec) ? 0 : 1)
    const stored = this.#store({ ...after, metadata: { ...metadata, generation } })
    if (metadata.deletionTimestamp !== undefined && (metadata.finalizers ?? []).length === 0) this.#remove(stored)
    return stored
  }

  #store(object: KubeObject): KubeObject {
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: `${++this.#version}` } }
    const before = this.find(object)
    this.#objects.set(nameOf(object), stored)
    this.changed(before, stored)
    return stored
  }

  #remove(object: KubeObject): void {
    this.#objects.delete(nameOf(object))
    this.#version++
    this.changed(object, undefined)
    this.collectGarbage()
  }

  #time(): string {
    return `${this.now.toISOString().slice(0, 19)}Z`
  }
}

/** Metadata has no empty lists: the API server leaves them out (`omitempty`). */
function withoutEmptyLists({ metadata, ...content }: KubeObject): KubeObject {
  const { ownerReferences = [], finalizers = [], ...others } = metadata
  const lists = { ...(ownerReferences.length > 0 && { ownerReferences }), ...(finalizers.length > 0 && { finalizers }) }
  return { ...content, metadata: { ...others, ...lists } }
}

/** Returns the object as the API server stores it: `stringData` of a Secret becomes `data`. */
export function asStored(object: KubeObject): KubeObject {
  const { stringData, ...others } = object
  if (object.kind !== 'Secret' || object.apiVersion !== 'v1' || !isRecord(stringData)) return object
  const encoded = Object.entries(stringData).map(([key, text]) => [key, Buffer.from(String(text)).toString('base64')])
  return { ...others, data: { ...(others['data'] as object), ...Object.fromEntries(encoded) } }
}

const nameOf = ({ apiVersion, kind, metadata }: Identity): string =>
  `${kind}.${apiVersion} ${metadata.namespace ?? ''}/${metadata.name}`

type Fields = Record<string, unknown>

/**
 * Server-side apply by one manager: sets the wanted fields, removes fields that it wanted before and no longer wants,
 * and keeps fields of other managers. A list counts as one value.
 */
function applied(current: unknown, before: unknown, wanted: unknown): unknown {
  if (!isRecord(wanted) || !isRecord(current)) return wanted
  const result: Fields = { ...current }
  const dropped = Object.keys(isRecord(before) ? before : {}).filter((name) => !(name in wanted))
  for (const name of dropped) delete result[name]
  for (const [name, value] of Object.entries(wanted))
    result[name] = applied(current[name], isRecord(before) ? before[name] : undefined, value)
  return result
}

/** Returns an object without the fields that identify it. */
function fieldsIn(object: KubeObject): Fields {
  const { apiVersion: _, kind: __, metadata: identity, ...fields } = object
  const { labels, annotations } = identity
  const metadata = { ...(labels && { labels }), ...(annotations && { annotations }) }
  return { ...(Object.keys(metadata).length > 0 && { metadata }), ...fields }
}

/** Returns a list of conditions as a map by type, and any other value unchanged. */
function byType(value: unknown): unknown {
  const isList = Array.isArray(value) && value.length > 0 && value.every((one) => isRecord(one) && 'type' in one)
  return isList ? Object.fromEntries(value.map((one: Fields) => [one['type'], one])) : value
}

/** Returns the value without the fields of `last` that it still has, except those that one of `kept` has. */
function without(current: unknown, last: unknown, kept: readonly unknown[]): unknown {
  const [fields, before] = [byType(current), byType(last)]
  if (!isRecord(fields) || !isRecord(before))
    return kept.length === 0 && isDeepStrictEqual(current, last) ? undefined : current
  const left = { ...fields }
  for (const [name, value] of Object.entries(before)) {
    if (!(name in left)) continue
    const others = kept.map(byType).flatMap((one) => (isRecord(one) && name in one ? [one[name]] : []))
    left[name] = without(left[name], value, others)
    if (left[name] === undefined) delete left[name]
  }
  if (Object.keys(left).length === 0 && Object.keys(before).length > 0) return undefined
  return Array.isArray(current) ? Object.values(left) : left
}

/** Returns the value with these fields. Conditions are merged by type. */
function overlaid(current: unknown, fields: unknown): unknown {
  const [before, wanted] = [byType(current), byType(fields)]
  if (!isRecord(before) || !isRecord(wanted)) return fields
  const result = { ...before }
  for (const [name, value] of Object.entries(wanted)) result[name] = overlaid(before[name], value)
  return Array.isArray(fields) ? Object.values(result) : result
}

/** Returns the wanted fields that another manager has set to other values since `before` was applied. */
function changedByOthers(given: unknown, found: unknown, applied: unknown, path = ''): TakenField[] {
  const [wanted, current, before] = [given, found, applied].map(byType)
  if (current === undefined || isDeepStrictEqual(wanted, current) || isDeepStrictEqual(before, current)) return []
  if (!isRecord(wanted) || !isRecord(current)) return [{ field: path, manager: ANOTHER }]
  const last = isRecord(before) ? before : {}
  return Object.entries(wanted).flatMap(([name, value]) =>
    changedByOthers(value, current[name], last[name], `${path}.${name}`),
  )
}

/** The field manager of all changes by others. */
const ANOTHER = 'another manager'
