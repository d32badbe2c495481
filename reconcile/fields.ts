import { apiVersionOf, groupOf, isRecord, type KubeObject, namespacedName, withValueAt } from '#contracts'
import {
  beforeAnnotationOf,
  beforeIn,
  holdsFinalizer,
  isRecordedName,
  isRecordedValue,
  MOST_PATCHED,
  PATCH_RECORDS,
  type PatchedFields,
  type PatchedResource,
  patchedBy,
  patchManagerOf,
  patchRecord,
  type ReconcilerSpec,
  valuesAt,
  withBefore,
} from '#spec'
import {
  type Contest,
  counted,
  type Delayed,
  delayMs,
  isFight,
  lasting,
  missingFields,
  type TakenField,
} from './brake.ts'
import { covers, fingerprint, itemKeyOf, keyed, sameJson, sorted } from './compare.ts'
import { mapFaults } from './metadata.ts'
import { fieldsTarget, type NoOps } from './no-ops.ts'
import type { DesiredInput } from './outcome.ts'
import { rfc3339 } from './status.ts'
import { called, type Family, type World } from './world.ts'

/*
 * The fields that a function sets on objects of others. The patch record of the primary, the record below, lists these objects
 * (docs/decisions/0095-fields-of-others.md):
 *
 *   not recorded  → record it, and observe again: the record is a relation
 *   recorded      → if the paths differ, remove them from the record → setFields → record the paths
 *   not wanted    → giveBack → remove it from the record
 */

/** Server-side apply of exactly these fields of an object of others, or of none of them. */
export interface FieldsWrite {
  verb: 'setFields' | 'giveBack'
  fields: PatchedFields
  /** The object to apply. */
  object: KubeObject
  /** The values of before of the fields that may be taken over. Those that `object` does not have return to the object. */
  before: NonNullable<PatchedFields['before']>
  /** The fields in `takes` that `object` sets. No other manager of ours may have them: it has their values of before. */
  alone: readonly string[]
  /** Whether fields in `before` are taken from other managers, as long as they have these values. */
  isTaking: boolean
  /** Fields that may be taken over have no value of before yet: EVENTS does not have the object. Nothing is set. */
  needsBefore: boolean
  /** The field manager, which has no other fields. */
  manager: string
  /** Undefined: EVENTS does not have the object. It may exist. */
  observed: KubeObject | undefined
  fingerprint: string
}

/** What the writes of a pass have done that the record does not have yet, by fieldsId(). */
export interface FieldsProgress {
  givenBack: ReadonlySet<string>
  /** The fields that other managers have: they were refused. */
  taken: ReadonlyMap<string, readonly TakenField[]>
}

export const NO_PROGRESS: FieldsProgress = { givenBack: new Set(), taken: new Map() }

/** A write that waits, and why. */
export interface HeldFields {
  write: FieldsWrite
  message: string
}

export interface FieldsPlan {
  /** The new value of the record; undefined in it: no record. Left out: the record is right. */
  record: { value: string | undefined } | undefined
  fields: FieldsWrite[]
  /** Writes that are not tried again yet, because another manager has had the fields. */
  held: HeldFields[]
  delayed: Delayed[]
  findings: string[]
}

interface Circumstances {
  identity: string
  now: Date
  noOps: NoOps
  progress: FieldsProgress
  /** The primary is being deleted, or will be: nothing is set, and giveBackAll() comes later. */
  isGoing: boolean
  isConfidential: (resource: PatchedResource) => boolean
}

/** What the fields of others are planned for. */
type Patching = Family & Pick<World, 'patched'>

/** Returns the writes that are necessary for `patch` of the outcome. Undefined: everything stays as it is. */
export function planFields(
  { patches = [] }: Pick<ReconcilerSpec, 'patches'>,
  world: Patching,
  patch: readonly DesiredInput[] | undefined,
  circumstances: Circumstances,
): FieldsPlan {
  const { identity, isGoing, progress, isConfidential } = circumstances
  const stored = patchedBy(world.object, identity)
  const { wanted, findings } = wantedFields(world, patches, isGoing ? [] : (patch ?? []), isConfidential)
  const isKept = (one: PatchedFields) =>
    isGoing || (patch === undefined && patches.some((declared) => isOfResource(one, declared)))
  const plan: FieldsPlan = { record: undefined, fields: [], held: [], delayed: [], findings }
  const next = stored.flatMap((one) => {
    const object = wanted.get(fieldsId(one))
    if (object !== undefined) return [setting(world, one, object, circumstances, plan)]
    if (isKept(one)) return [one]
    if (progress.givenBack.has(fieldsId(one))) return []
    plan.fields.push(giveBackOf(world.object, one, identity, patches))
    return [one]
  })
  const known = new Set(stored.map(fieldsId))
  const added = [...wanted].flatMap(([id, { fields }]) => (known.has(id) ? [] : [fields]))
  // What is not wanted any more is given back before there is room for others.
  next.push(...added.slice(0, Math.max(0, MOST_PATCHED - next.length)))
  if (!sameJson(next, stored)) plan.record = { value: patchRecord(world.object, next) }
  return plan
}

/** Whether all that is recorded is given back before anything else is read or called. */
export const isGivingBack = (object: KubeObject, identity: string): boolean =>
  object.metadata.deletionTimestamp !== undefined &&
  holdsFinalizer(object, identity) &&
  patchedBy(object, identity).length > 0

/** Returns the writes that give back all fields of the primary. */
export const giveBackAll = (
  primary: KubeObject,
  identity: string,
  { patches = [] }: Pick<ReconcilerSpec, 'patches'>,
): FieldsWrite[] => patchedBy(primary, identity).map((one) => giveBackOf(primary, one, identity, patches))

function giveBackOf(
  primary: KubeObject,
  fields: PatchedFields,
  identity: string,
  patches: readonly PatchedResource[],
): FieldsWrite {
  const { kind, namespace, name } = fields
  const object = { apiVersion: apiVersionOf(fields), kind, metadata: { name, ...(namespace && { namespace }) } }
  const manager = patchManagerOf(identity, primary)
  const takes = patches.find((declared) => isOfResource(fields, declared))?.takes
  const before = declaredBefore(fields, takes)
  const nothing = { alone: [], isTaking: false, needsBefore: false, observed: undefined, fingerprint: '' }
  return { verb: 'giveBack', fields, object, before, manager, ...nothing }
}

/** Returns the recorded values of before of fields that are still declared. The record is a text that users can edit. */
const declaredBefore = ({ before = {} }: PatchedFields, takes: readonly string[] = []): FieldsWrite['before'] =>
  Object.fromEntries(Object.entries(before).filter(([path]) => takes.includes(path)))

/** Returns the values that return to the object: those of fields that are not set any more, and that `has` knows. */
export function returnedBy({ before, object }: FieldsWrite, has: (path: string) => boolean): FieldsWrite['before'] {
  const returned = Object.entries(before).filter(([path]) => valueAt(object, path) === undefined && has(path))
  return Object.fromEntries(returned)
}

/**
 * Returns the write without the values whose return is refused: another manager has set the field to our value, and keeps
 * it. Undefined if it returns none of them.
 */
export function withoutKept(write: FieldsWrite, taken: readonly TakenField[]): FieldsWrite | undefined {
  const kept = Object.keys(returnedBy(write, (path) => taken.some(({ field }) => field === `.${path}`)))
  if (kept.length === 0) return undefined
  return { ...write, before: Object.fromEntries(Object.entries(write.before).filter(([path]) => !kept.includes(path))) }
}

/** Whether a field may be taken over, and has the value that was recorded. `field`: `.spec.replicas`, or `.spec.replicas: …` */
export function isAsBefore({ before, isTaking, manager }: FieldsWrite, field: string, found: KubeObject): boolean {
  if (isBeforeNote(manager, field)) return true
  const path = field.slice(1).replace(/: .*/s, '')
  return isTaking && path in before && (valueAt(found, path) ?? null) === before[path]
}

/**
 * Returns the fields that another function, or another object, of ours has set to the value of the write, so that the API
 * server reports no conflict: their present values are no values of before. `holders`: the managers of a field.
 */
export const sharedWithOurs = ({ alone, manager }: FieldsWrite, holders: (path: string) => string[]): TakenField[] =>
  alone.flatMap((path) => {
    const managers = holders(path)
    const other = managers.find((one) => one !== manager && one.startsWith(PATCH_RECORDS))
    return other === undefined || managers.includes(manager) ? [] : [{ field: `.${path}`, manager: other }]
  })

/**
 * Returns the fields that the manager does not have, and whose present value is not recorded: another object of ours has just
 * given it back, or the recorded one is forged or of an earlier object. Those that the API server reports are left out.
 */
export const withOldBefore = (
  { alone, before, manager, object }: FieldsWrite,
  found: KubeObject,
  holders: (path: string) => string[],
): TakenField[] =>
  alone.flatMap((path) => {
    const [managers, present] = [holders(path), valueAt(found, path) ?? null]
    if (managers.includes(manager) || (path in before ? before[path] === present : !isRecordedValue(present))) return []
    return managers.length > 0 && present !== valueAt(object, path) ? [] : [{ field: `.${path}`, manager: managers[0] }]
  })

const valueAt = (object: KubeObject, path: string): unknown => valuesAt(object, path)[0]

/** Returns the object with these values, by path. A null leaves its field out. */
export const withValues = (object: KubeObject, values: FieldsWrite['before']): KubeObject =>
  Object.entries(values)
    .filter(([, value]) => value !== null)
    .reduce((made, [path, value]) => withValueAt(made, path.split('.'), value) as KubeObject, object)

interface WantedFields {
  fields: PatchedFields
  object: KubeObject
  takes: readonly string[] | undefined
}

/** Decides about one recorded object. Adds its write to the plan, and returns what the record must have. */
function setting(
  world: Patching,
  stored: PatchedFields,
  wanted: WantedFields,
  { identity, now, noOps, progress }: Circumstances,
  plan: FieldsPlan,
): PatchedFields {
  const id = fieldsId(stored)
  const { takes = [] } = wanted
  const manager = patchManagerOf(identity, world.object)
  const taken = progress.taken.get(id)?.filter(({ field }) => !isBeforeNote(manager, field))
  const observed = world.patched.find((other) => isPlace(stored, other))
  const object = withTimes(wanted.object, observed, now)
  const paths = pathsOf(object)
  const isApplied = stored.paths === paths && stored.contest === undefined
  const before = beforeOf(stored, wanted, { observed, taken, isApplied, manager })
  const { before: _, ...known } = stored
  // The declared version replaces that of an earlier declaration.
  const one: PatchedFields = { ...known, ...wanted.fields, ...(Object.keys(before).length > 0 && { before }) }
  const contest = lasting(one.contest, now)
  // lasting() makes a time in the future the present.
  const isCounted = one.contest?.at === now.getTime()
  const content = keyed(contentOf(object))
  // A field is taken over when it has been refused and counted: so the first time as well.
  const isTaking = isCounted && taken !== undefined && taken.every(({ field }) => field.slice(1) in before)
  const alone = takes.filter((path) => valueAt(object, path) !== undefined)
  const write: FieldsWrite = {
    verb: 'setFields',
    fields: one,
    object: withBefore(object, manager, before, alone),
    before,
    alone,
    isTaking,
    needsBefore: observed === undefined && alone.some((path) => !(path in before)),
    manager,
    observed,
    fingerprint: fingerprint([manager, object, before]),
  }
  const returned = Object.keys(returnedBy(write, () => true))
  const present = keyed(observed)
  const isThere = (object: KubeObject) => observed !== undefined && covers(keyed(contentOf(object)), present)
  if (observed !== undefined) {
    const { resourceVersion } = observed.metadata
    if (noOps[fieldsTarget(observed, one)] === `${resourceVersion} ${write.fingerprint}`) {
      const left = Object.entries(before).filter(([path]) => !returned.includes(path))
      const { before: __, ...set } = one
      return { ...set, paths, ...(left.length > 0 && { before: Object.fromEntries(left) }) }
    }
    if (one.paths === paths && returned.length === 0 && isThere(write.object)) return one
  }
  const on = world.object.metadata.generation
  const count = (taken: readonly TakenField[]): PatchedFields => {
    // A field that is not taken over is why the write is refused.
    const others = taken.filter(({ field }) => !(field.slice(1) in before))
    const { times, at, manager, fields } = counted(contest, others.length > 0 ? others : taken, now)
    const by = { ...(manager !== undefined && { manager }), ...(on !== undefined && { on }) }
    return { ...one, contest: { times, at, ...by, fields: fields.slice(0, 1) } }
  }
  if (taken !== undefined) return isCounted ? sent(one) : count(taken)
  const isOurs = contest?.manager?.startsWith(PATCH_RECORDS) === true
  if (contest !== undefined && (!isCounted || isOurs) && one.contest?.on === on) {
    const until = new Date(contest.at + delayMs(contest))
    if (until > now || isCounted) {
      const recorded = declaredBefore(stored, takes)
      if (isFight(contest, recorded)) plan.delayed.push({ until })
      else plan.held.push({ write, message: messageOf(write, contest, until) })
      // What another function of ours has set is no value of before: it may return another one meanwhile.
      const { before: ___, ...waiting } = one
      return { ...waiting, ...(Object.keys(recorded).length > 0 && { before: recorded }) }
    }
  }
  // Others may have changed or removed the annotation with the values of before, and nothing else.
  const isNoteLost = isThere(object) && !isThere(write.object)
  const lost = isNoteLost ? [{ field: `.${noteOf(manager)}`, manager: undefined }] : missingFields(content, present)
  const missing = observed !== undefined && one.paths === paths ? lost : []
  // Counted before it is set again: the record is written first.
  if (missing.length > 0 && !isCounted) return count(missing)
  // If the run dies after the apply, the record must not state the paths before it.
  if (one.paths !== undefined && one.paths !== paths) return { ...one, paths: undefined }
  return sent(one)

  function sent(entry: PatchedFields): PatchedFields {
    plan.fields.push(write)
    return entry
  }
}

/**
 * Returns the values of before of the fields that may be taken over, as the record must have them: those of the first
 * time, and of the last change by another manager. A field that is not set any more keeps its value until it has returned.
 * A value that the record cannot hold, or that another function of ours has set, is not taken.
 */
function beforeOf(
  stored: PatchedFields,
  { object, takes = [] }: WantedFields,
  { observed, taken = [], isApplied, manager }: Found,
): FieldsWrite['before'] {
  const before = declaredBefore(stored, takes)
  if (observed === undefined) return before
  const takerOf = (path: string) => taken.find(({ field }) => field === `.${path}`)
  const isNew = (path: string) => !(path in before) || takerOf(path) !== undefined
  const fresh = takes.filter((path) => valueAt(object, path) !== undefined && isNew(path))
  const kept = Object.entries(before).filter(([path]) => !fresh.includes(path))
  const present = (path: string) => valueAt(observed, path) ?? null
  const known = (path: string) => {
    if (isApplied) return null
    // If the record was lost while the field was set, its present value is ours.
    const ofObject = beforeIn(observed, manager, path)
    return ofObject === undefined ? present(path) : ofObject
  }
  const found = fresh
    .filter((path) => takerOf(path)?.manager?.startsWith(PATCH_RECORDS) !== true)
    .map((path) => [path, takerOf(path) === undefined ? known(path) : present(path)] as const)
    .filter(([, value]) => isRecordedValue(value))
  return Object.fromEntries([...kept, ...found]) as FieldsWrite['before']
}

interface Found {
  observed: KubeObject | undefined
  taken: readonly TakenField[] | undefined
  /** The fields have been set without `takes`: their present values are ours. */
  isApplied: boolean
  manager: string
}

/** Whether a field, as the API server names it, is the annotation with values of before, which others may have copied. */
const isBeforeNote = (manager: string, field: string): boolean => field.startsWith(`.${noteOf(manager)}`)

const noteOf = (manager: string): string => `metadata.annotations.${beforeAnnotationOf(manager)}`

const messageOf = ({ object }: FieldsWrite, { manager, fields }: Contest, until: Date): string =>
  `cannot set fields of ${called(object)}: ${holderOf(manager)} has ${fields.join(', ')}; not tried again before ${until.toISOString()}`

/** Names another function by its Reconciler: `Reconciler sleep for another object (patched.fairlead.dev/sleep/…)`. */
function holderOf(manager = ''): string {
  if (!manager.startsWith(PATCH_RECORDS)) return JSON.stringify(manager)
  const [name] = manager.slice(PATCH_RECORDS.length).split('/')
  return `Reconciler ${name} for another object (${manager})`
}

/** Returns the wanted objects by fieldsId(), and the faults of the outcome. */
function wantedFields(
  world: Patching,
  patches: readonly PatchedResource[],
  patch: readonly DesiredInput[],
  isConfidential: Circumstances['isConfidential'],
) {
  const wanted = new Map<string, WantedFields>()
  const findings: string[] = []
  for (const input of patch) {
    const object = asGiven(input)
    const isStatus = 'status' in object
    const declared = patches.find((one) => isDeclared(one, object, isStatus))
    const faults =
      declared === undefined ? [undeclared(object, isStatus)] : faultsOf(world, object, declared, isConfidential)
    findings.push(...faults)
    if (declared === undefined || faults.length > 0 || Object.keys(contentOf(object)).length === 0) continue
    const { group, version, resource, kind } = declared
    const { namespace, name } = object.metadata
    const place = { ...(namespace !== undefined && { namespace }), name, ...(isStatus && { status: true as const }) }
    const fields = { group, version, resource, kind, ...place }
    if (wanted.has(fieldsId(fields))) findings.push(`${called(object)} is in "patch" twice`)
    wanted.set(fieldsId(fields), { fields, object, takes: declared.takes })
  }
  if (wanted.size > MOST_PATCHED)
    findings.push(
      `the function sets fields of ${wanted.size} objects for one object: ${MOST_PATCHED} at most. Nothing of this outcome is written, and what is set stays as it is: return fewer`,
    )
  return { wanted, findings }
}

function asGiven(input: DesiredInput): KubeObject {
  const { retain: _, ...object } = input
  return object as unknown as KubeObject
}

const isDeclared = (declared: PatchedResource, { apiVersion, kind }: KubeObject, isStatus: boolean): boolean =>
  declared.kind === kind && apiVersionOf(declared) === apiVersion && (declared.status === true) === isStatus

const isOfResource = (one: PatchedFields, { group, resource, status }: PatchedResource): boolean =>
  one.group === group && one.resource === resource && one.status === status

function undeclared(object: KubeObject, isStatus: boolean): string {
  const how = isStatus ? 'with status: true' : 'without "status"'
  return `the function sets fields of ${called(object)} (${object.apiVersion}), which it does not declare: add the kind to "patches" ${how}`
}

const IDENTIFYING = ['name', 'namespace']
const SETTABLE = [...IDENTIFYING, 'labels', 'annotations']

function faultsOf(
  world: Patching,
  object: KubeObject,
  declared: PatchedResource,
  isConfidential: Circumstances['isConfidential'],
): string[] {
  const { within, status, takes = [] } = declared
  const { metadata, apiVersion: _, kind: __, status: ___, ...content } = object
  const what = `cannot set fields of ${called(object)}`
  if (typeof metadata.name !== 'string') return [`the function returned a ${object.kind} in "patch" without a name`]
  const misnamed = [metadata.name, metadata.namespace].find((one) => one !== undefined && !isRecordedName(one))
  if (misnamed !== undefined)
    return [
      `${what}: no object can have the name ${JSON.stringify(misnamed)}: return 1 to 253 characters without / and %`,
    ]
  const home = world.object.metadata.namespace
  if (within === 'Namespace' && home !== undefined && metadata.namespace !== undefined && metadata.namespace !== home)
    return [`${what}: it is outside of namespace ${home}: declare the kind with within: 'Cluster'`]
  if (isSame(world.object, object))
    return [`${what}: it is the object of the function, which has "status" and "metadata" for this`]
  if (world.owned.some((child) => isSame(child.object, object)))
    return [`${what}: the function owns it: return the fields in "apply"`]
  if ('stringData' in content)
    return [`${what}: nobody would manage the keys of "stringData": return "data", in base64`]
  const allowed = status === true ? IDENTIFYING : SETTABLE
  const stray = Object.keys(metadata).filter((field) => !allowed.includes(field))
  if (stray.length > 0) return [`${what}: metadata.${stray[0]} cannot be set: return ${allowed.join(', ')} only`]
  if (status === true && Object.keys(content).length > 0)
    return [`${what}: "status" and ${Object.keys(content)[0]} are in one object: return two`]
  const whole = takes.find((path) => typeof valueAt(object, path) === 'object')
  if (whole !== undefined)
    return [`${what}: ${whole} is not one value, so that "takes" cannot name it: name its fields`]
  if (takes.length > 0 && isConfidential(declared))
    return [`${what}: the kind is confidential, and a value of before would be in an annotation: leave out "takes"`]
  return mapFaults(metadata).map((fault) => `${what}: ${fault}`)
}

const isSame = (one: KubeObject, other: KubeObject): boolean =>
  one.kind === other.kind &&
  groupOf(one.apiVersion) === groupOf(other.apiVersion) &&
  namespacedName(one.metadata) === namespacedName(other.metadata)

const isPlace = ({ kind, group, namespace, name }: PatchedFields, object: KubeObject): boolean =>
  object.kind === kind &&
  groupOf(object.apiVersion) === group &&
  object.metadata.name === name &&
  object.metadata.namespace === namespace

/** Returns the identity of one entry of a record. */
export const fieldsId = ({ group, resource, namespace = '', name, status }: PatchedFields): string =>
  JSON.stringify([group, resource, namespace, name, status === true])

/** Equal for writes of the same content. */
export const fieldsWriteId = ({ verb, fields, fingerprint: content, isTaking }: FieldsWrite): string =>
  `${verb} ${fieldsId(fields)} ${content} ${isTaking}`

/** Returns the object without the fields that identify it. */
function contentOf(object: KubeObject): Record<string, unknown> {
  const { apiVersion: _, kind: __, metadata, ...content } = object
  const { labels, annotations } = metadata
  const maps = { ...(labels && { labels }), ...(annotations && { annotations }) }
  return { ...(Object.keys(maps).length > 0 && { metadata: maps }), ...content }
}

/** Returns a digest of the paths of all fields, without their values: it differs if a field is no longer set. */
function pathsOf(object: KubeObject): string {
  const shape = (value: unknown): unknown =>
    isRecord(value) ? Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shape(one)])) : 0
  return fingerprint(sorted(shape(keyed(contentOf(object)))))
}

/** Adds `lastTransitionTime` to the conditions of a status that have none: the time of the last change of the status. */
function withTimes(object: KubeObject, observed: KubeObject | undefined, now: Date): KubeObject {
  const { conditions } = (object.status ?? {}) as { conditions?: unknown }
  if (!Array.isArray(conditions) || itemKeyOf(conditions) !== 'type') return object
  const { conditions: before = [] } = (observed?.status ?? {}) as { conditions?: Record<string, unknown>[] }
  const dated = conditions.map((one: Record<string, unknown>) => {
    const last = before.find(({ type, status }) => type === one['type'] && status === one['status'])
    return { ...one, lastTransitionTime: one['lastTransitionTime'] ?? last?.['lastTransitionTime'] ?? rfc3339(now) }
  })
  return { ...object, status: { ...(object.status as object), conditions: dated } }
}
