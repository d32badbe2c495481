import type { Effect, EventReport, KubeObject, ObjectMeta, ResourceRef } from '#contracts'
import { type Due, dueDate } from '#queue/terms'
import { keepsStatus, type OwnedResource, type ReconcilerSpec } from '#spec'
import { type ActsPlan, planActs } from './acts.ts'
import { braked, CONTESTED_ANNOTATION, type Delayed, fightsIn, isDelayed, missingFields, type Taking } from './brake.ts'
import { covers, fingerprint, sorted } from './compare.ts'
import {
  completeDesired,
  DECLARED_ANNOTATION,
  DESIRED_ANNOTATION,
  type DesiredObject,
  isAsObserved,
} from './desired.ts'
import { type FieldsPlan, type FieldsProgress, NO_PROGRESS, planFields } from './fields.ts'
import { type MetadataWrite, metadataFaults, metadataWrite } from './metadata.ts'
import { changesOf, type MetricChange, metricFaults } from './metrics.ts'
import { neededBy, providedIn } from './needs.ts'
import { type NoOps, statusTarget } from './no-ops.ts'
import { HUNDRED_YEARS_S, type PlainOutcome, type Timer } from './outcome.ts'
import {
  isMarkedBy,
  isRetained,
  ownershipMark,
  RECONCILER_ANNOTATION,
  retentionFaults,
  retentionPatch,
} from './ownership.ts'
import { type Failure, type StatusPatch, statusPatch } from './status.ts'
import { type Family, findOwned, type OwnedObject, type World } from './world.ts'

/**
 * With this resourceVersion server-side apply creates an object, and answers with a Conflict if the object exists. No
 * object can have the revision 1 of etcd (measured on Kubernetes 1.36).
 */
export const ONLY_IF_ABSENT = '1'

/** One request for an owned object. */
export type Write =
  /** POST: fails if the name is taken. */
  | { verb: 'create'; resource: OwnedResource; object: KubeObject }
  /**
   * Server-side apply, bound to the uid that was observed, or to the absence of the object. It is also bound to the
   * resourceVersion if it adopts the object, because another reconciler may adopt it at the same time. To an apply with
   * the uid alone, the driver adds a resourceVersion that it has read under the lease.
   */
  | {
      verb: 'apply'
      resource: OwnedResource
      object: KubeObject
      fingerprint: string
      observed: KubeObject | undefined
      /** Left out if the fields that it takes back from other managers are not counted. */
      taking?: Taking
    }
  /**
   * Merge patch of `object` as observed, bound to its resourceVersion: the object becomes retained, or ceases to be.
   */
  | { verb: 'patch'; resource: OwnedResource; object: KubeObject; patch: object }
  /**
   * Deletion, bound to the uid and resourceVersion that were observed. `isPruned`: the outcome does not have the
   * object, or removes it. `isForeground`: the object stays until what it has created is gone.
   */
  | { verb: 'delete'; resource: OwnedResource; object: KubeObject; isPruned: boolean; isForeground?: boolean }

export interface Plan extends Omit<FieldsPlan, 'delayed'>, Omit<ActsPlan, 'due'> {
  /** The stages in order. The writes of one stage do not depend on each other. */
  stages: Write[][]
  /** The author's stage that the writes belong to; negative if it is removed. Undefined if there is none. */
  place: number | undefined
  metadata: MetadataWrite | undefined
  status: StatusPatch | undefined
  /** The effect on the external system, after all other writes. */
  effect: Effect | undefined
  /** Whether the primary object is to be deleted. */
  isDeletion: boolean
  events: EventReport[]
  counters: MetricChange[]
  /** The time at which a delayed correction is due, or at which the end of a fight is shown. */
  lookAt: Date | undefined
  /** The delay counts from the time in the function's input. */
  requeue: Due | undefined
}

export interface Circumstances {
  /** The identity of the reconciler, which marks the objects that it creates. */
  identity: string
  now: Date
  noOps: NoOps
  /** Left out: this pass has set no fields of others. */
  progress?: FieldsProgress
  /** Whether the contents of the resource are confidential. Then they have no fingerprint either. */
  isConfidential: (resource: ResourceRef) => boolean
  /** See Shown in status.ts. */
  isAlone?: () => boolean
}

/** Returns the writes that are necessary to reach the desired state of the outcome. */
export function plan(
  spec: Pick<ReconcilerSpec, 'for' | 'owns' | 'writes' | 'external' | 'metrics' | 'patches' | 'acts'>,
  world: Family & Pick<World, 'patched' | 'related'>,
  outcome: PlainOutcome,
  circumstances: Circumstances,
): Plan {
  const { identity, now, noOps, progress = NO_PROGRESS } = circumstances
  const { object } = world
  const desired = completeDesired(object, spec.owns, outcome.apply ?? [])
  const isGoing = object.metadata.deletionTimestamp !== undefined || outcome.deleteObject === true
  const needed = desired.objects.flatMap((wanted) => {
    const { number, action } = wanted.stage ?? {}
    const write = action === undefined ? writeFor(world, wanted, { ...circumstances, isGoing }) : undefined
    return write === undefined ? [] : [{ wanted, write, number }]
  })
  const { applies, place } = firstStage(needed)
  const delayedOwned = needed.flatMap(({ wanted, write }) => (isDelayed(write) ? [wanted] : []))
  const metadata = metadataWrite(object, identity, outcome.metadata, { noOps, now, isGoing })
  const isComplete = outcome.apply !== undefined && place === undefined
  const [removed] = desired.objects.flatMap(({ stage }) => (stage?.action === 'Remove' ? stage.number : []))
  const deletes = isComplete ? prune(world, desired.objects, delayedOwned, isGoing) : []
  const { delayed, ...fields } = planFields(spec, world, outcome.patch, { ...circumstances, progress, isGoing })
  const { due, ...acts } = planActs(spec, world, outcome.act ?? [], { noOps, now })
  const planned = [...needed.map(({ write }) => write), ...delayed, ...(metadata ? [metadata] : [])]
  const lookAt = isGoing ? undefined : lookAtOf(spec, world, planned, circumstances)
  return {
    ...fields,
    ...acts,
    stages: [...inStages(applies), deletes].filter((stage) => stage.length > 0),
    place: place ?? (removed && -removed),
    metadata: metadata && isDelayed(metadata) ? undefined : metadata,
    status: plannedStatus(spec, world, outcome, circumstances),
    effect: outcome.effect,
    isDeletion: outcome.deleteObject === true && object.metadata.deletionTimestamp === undefined && !acts.isActing,
    events: outcome.events ?? [],
    counters: changesOf(spec, outcome, 'Counter'),
    // What the function does not ask for any more does not keep an object that goes.
    lookAt: firstOf([...(lookAt ? [lookAt] : []), ...(isGoing && !acts.isActing ? [] : due)]),
    requeue: requeueOf(outcome, now),
    findings: [
      ...fields.findings,
      ...acts.findings,
      ...desired.findings,
      ...retentionFaults(world, desired.objects, isGoing),
      ...strayStatus(spec, outcome),
      ...metadataFaults(spec, object, outcome.metadata),
      ...strayDeletion(spec, outcome),
      ...strayEffect(spec, outcome),
      ...metricFaults(spec, outcome),
    ],
  }
}

/**
 * Returns the writes of the author's first stage that has any, and those outside of a stage. What follows is written, or
 * removed, when the function has decided on their result.
 */
function firstStage(needed: readonly { write: Write | Delayed; number: number | undefined }[]) {
  const writes = needed.flatMap(({ write, number }) => (isDelayed(write) ? [] : [{ write, number }]))
  const place = Math.min(...writes.flatMap(({ number }) => number ?? []))
  const applies = writes.filter(({ number = place }) => number <= place).map(({ write }) => write)
  return { applies, place: place === Infinity ? undefined : place }
}

function strayStatus(spec: Pick<ReconcilerSpec, 'for'>, { status, conditions = [] }: PlainOutcome): string[] {
  if (keepsStatus(spec) || (status === undefined && conditions.length === 0)) return []
  return [`the status of a ${spec.for.kind} is not this function's: return no "status" and no "conditions"`]
}

const strayDeletion = ({ writes = [] }: Pick<ReconcilerSpec, 'writes'>, { deleteObject }: PlainOutcome): string[] =>
  deleteObject !== true || writes.includes('Deletion')
    ? []
    : ['the function returned "deleteObject", but has no right to delete its object: add "Deletion" to its "writes"']

const strayEffect = ({ external }: Pick<ReconcilerSpec, 'external'>, { effect }: PlainOutcome): string[] =>
  effect === undefined || external !== undefined
    ? []
    : [`the function returned the effect ${effect.kind}, but has no external system: give its reconciler "external"`]

/** Returns the status patch, or undefined if none is necessary. `refusal`: a write of this outcome was refused. */
export function plannedStatus(
  spec: Pick<ReconcilerSpec, 'for'>,
  world: Family,
  outcome: PlainOutcome,
  { identity, now, noOps, isAlone }: Pick<Circumstances, 'identity' | 'now' | 'noOps' | 'isAlone'>,
  refusal?: Failure,
): StatusPatch | undefined {
  if (!keepsStatus(spec)) return undefined
  const { object } = world
  const contested = fightsIn(world, identity, now)?.message
  const patch = statusPatch(object, outcome, now, { refusal, contested, isAlone })
  const isNoOp =
    noOps[statusTarget(object)] === `${object.metadata.resourceVersion} ${fingerprint(patch?.status ?? null)}`
  return isNoOp ? undefined : patch
}

function writeFor(
  world: Family,
  desired: DesiredObject,
  { identity, now, noOps, isConfidential, isGoing }: Circumstances & { isGoing: boolean },
): Write | Delayed | undefined {
  const { resource, object } = desired
  const observed = findOwned(world, resource, object)
  const owned = withAnnotation(object, RECONCILER_ANNOTATION, ownershipMark(identity, world.object, object))
  if (resource.strategy === 'CreateOnly')
    return observed === undefined ? { verb: 'create', resource, object: owned } : undefined
  const isAdopted = observed !== undefined && !isMarkedBy(identity, world.object, observed)
  if (observed !== undefined && !isAdopted && isAsObserved(world.object, desired, observed)) return undefined
  // The fingerprint does not include the mark, so a change of the mark alone recreates nothing.
  const wanted = fingerprint(object)
  const isFingerprinted = !isConfidential(resource)
  const annotated = isFingerprinted ? withAnnotation(owned, DESIRED_ANNOTATION, wanted) : owned
  if (resource.strategy === 'Recreate') return recreate(observed, resource, annotated, fingerprint(sorted(object)))
  if (observed?.metadata.deletionTimestamp !== undefined) return undefined
  const patch = observed && retentionPatch(identity, world.object, observed, object)
  if (observed !== undefined && patch !== undefined) return { verb: 'patch', resource, object: observed, patch }
  const apply = { verb: 'apply', resource, fingerprint: wanted, observed } as const
  if (observed === undefined) return { ...apply, object: bound(annotated, { resourceVersion: ONLY_IF_ABSENT }) }
  const { uid, resourceVersion = '' } = observed.metadata
  if (uid === undefined || noOps[uid] === `${resourceVersion} ${wanted}`) return undefined
  // If only metadata is watched, the fingerprint in it is all that can be compared.
  const comparable = resource.metadataOnly === true ? { metadata: annotated.metadata } : annotated
  // Without a fingerprint, a field that is no longer desired would not show as a difference.
  if (isFingerprinted && covers(comparable, observed)) return undefined
  if (isAdopted) return { ...apply, object: bound(annotated, { uid, resourceVersion }) }
  const applied = bound(annotated, { uid })
  if (isGoing) return { ...apply, object: applied }
  const isUnchanged = observed.metadata.annotations?.[DESIRED_ANNOTATION] === wanted
  const on = isFingerprinted ? undefined : versionOf(world.object)
  const missing = isFingerprinted && isUnchanged ? missingFields(comparable, observed) : []
  const taking = { observed, now, annotation: CONTESTED_ANNOTATION, missing, on }
  const counted = braked(applied, taking, (contest) => (isFingerprinted ? isUnchanged : contest.on === on))
  return isDelayed(counted) ? counted : { ...apply, ...counted }
}

/** Returns the version of the primary without its status. */
const versionOf = ({ metadata }: KubeObject): string => {
  const { generation, resourceVersion, labels, annotations } = metadata
  return generation === undefined ? `${resourceVersion}` : fingerprint([generation, labels, annotations])
}

/** Returns the time at which the next correction is due, or a fight may be over. */
function lookAtOf(
  spec: Pick<ReconcilerSpec, 'for'>,
  world: Family,
  planned: readonly (object | Delayed)[],
  { identity, now }: Circumstances,
): Date | undefined {
  const delayed = planned.filter(isDelayed).map(({ until }) => until)
  const fights = keepsStatus(spec) ? fightsIn(world, identity, now) : undefined
  return firstOf([...delayed, ...(fights ? [fights.calmAt] : [])])
}

const firstOf = (times: readonly Date[]): Date | undefined =>
  times.length === 0 ? undefined : new Date(Math.min(...times.map((time) => time.getTime())))

/**
 * Deletes an object that was created from another declaration. The next round creates it again. A Secret has no
 * fingerprint, so it stays as it was created.
 */
function recreate(
  observed: KubeObject | undefined,
  resource: OwnedResource,
  object: KubeObject,
  declared: string,
): Write | undefined {
  const { [DESIRED_ANNOTATION]: wanted } = object.metadata.annotations ?? {}
  if (observed === undefined) {
    const created = wanted === undefined ? object : withAnnotation(object, DECLARED_ANNOTATION, declared)
    return { verb: 'create', resource, object: created }
  }
  const { [DESIRED_ANNOTATION]: created, [DECLARED_ANNOTATION]: known } = observed.metadata.annotations ?? {}
  const isOther = created !== undefined && created !== wanted && known !== declared
  return isOther && observed.metadata.deletionTimestamp === undefined
    ? { verb: 'delete', resource, object: observed, isPruned: false }
    : undefined
}

export const bound = (object: KubeObject, to: Pick<ObjectMeta, 'uid' | 'resourceVersion'>): KubeObject => ({
  ...object,
  metadata: { ...object.metadata, ...to },
})

const withAnnotation = (object: KubeObject, name: string, value: string): KubeObject => ({
  ...object,
  metadata: { ...object.metadata, annotations: { ...object.metadata.annotations, [name]: value } },
})

/**
 * Returns the deletions of owned objects that are no longer wanted. A retained object outlives its owner, so it is
 * deleted only while the owner exists. What an author removes in an order is there until its pods are gone; but what
 * has finalizers goes in the order of whoever set them, and foreground deletion would take its dependents before.
 * `delayed`: objects whose correction waits. Until then, a later one may still use what is removed before it.
 */
function prune(
  world: Family,
  desired: readonly DesiredObject[],
  delayed: readonly DesiredObject[],
  isGoing: boolean,
): Write[] {
  const lastDelayed = Math.max(...delayed.flatMap(({ stage }) => stage?.number ?? []))
  const isRemoved = ({ stage }: DesiredObject) => stage?.action === 'Remove' && stage.number >= lastDelayed
  const kept = desired.filter((one) => !isRemoved(one))
  const waiting = [...delayed, ...kept.filter(({ stage }) => stage?.action !== undefined && stage.action !== 'Done')]
  const isIn = (owned: readonly DesiredObject[]) => {
    const family = { ...world, owned }
    return ({ resource, object }: OwnedObject) => findOwned(family, resource, object) !== undefined
  }
  const [isKept, isToBeRemoved] = [isIn(kept), isIn(desired.filter(isRemoved))]
  const undeclared = world.owned.filter((one) => !isKept(one) && !isToBeRemoved(one))
  const used = usedBy(world, waiting, undeclared)
  return world.owned
    .filter((one) => !isKept(one) && !used.has(one))
    .filter(({ object }) => !(isGoing && isRetained(object)) && object.metadata.deletionTimestamp === undefined)
    .map((one) => ({
      ...one,
      verb: 'delete',
      isPruned: true,
      isForeground: !one.object.metadata.finalizers?.length && isToBeRemoved(one),
    }))
}

/**
 * Kinds whose objects do no work that another object could go on with: they grant or forbid something, or hold contents.
 * Whoever uses such an account or such contents names them. A grant that is taken back must not wait for anything.
 */
const IDLE_GROUPS = ['rbac.authorization.k8s.io', 'admissionregistration.k8s.io']
const IDLE_TYPES = ['/serviceaccounts', '/secrets', '/configmaps', 'networking.k8s.io/networkpolicies']

/**
 * Returns the undeclared objects that objects in an earlier state still use: one that exists, what it names; one that
 * does not exist yet, all of its kind, because any of them may do its work until then; and what these name in turn.
 */
function usedBy(
  world: Family,
  waiting: readonly DesiredObject[],
  undeclared: readonly OwnedObject[],
): ReadonlySet<OwnedObject> {
  const [present, absent]: [OwnedObject[], Set<string>] = [[], new Set()]
  for (const { resource, object: wanted, stage } of waiting) {
    const object = findOwned(world, resource, wanted)
    if (object !== undefined) present.push({ resource, object })
    else if (stage?.action === 'Hold' && works(resource)) absent.add(typeOf(resource))
  }
  const forerunners = undeclared.filter(({ resource }) => absent.has(typeOf(resource)))
  const used = new Set(forerunners)
  for (let users = [...present, ...forerunners]; users.length > 0 && used.size < undeclared.length; ) {
    const needs = new Set(users.flatMap(({ object }) => [...neededBy(object)]))
    users = undeclared.filter((one) => !used.has(one) && needs.has(providedIn(one.object)))
    for (const one of users) used.add(one)
  }
  return used
}

const typeOf = ({ group, resource }: OwnedResource): string => `${group}/${resource}`

const works = (resource: OwnedResource): boolean =>
  !IDLE_GROUPS.includes(resource.group) && !IDLE_TYPES.includes(typeOf(resource))

/** The kinds that others need in order to start come first. */
const STAGES = [
  ['Namespace', 'CustomResourceDefinition'],
  ['ServiceAccount', 'Secret', 'ConfigMap', 'PersistentVolumeClaim', 'Role', 'ClusterRole'],
  ['RoleBinding', 'ClusterRoleBinding', 'Service'],
]

function inStages(writes: Write[]): Write[][] {
  const stages: Write[][] = [...STAGES.map((): Write[] => []), []]
  for (const write of writes) {
    const stage = STAGES.findIndex((kinds) => kinds.includes(write.object.kind))
    stages.at(stage)?.push(write)
  }
  return stages
}

/** Returns the earlier time of the two. */
export function requeueOf({ requeueAfterSeconds, requeueAt }: Timer, now: Date): Due | undefined {
  const atMs = requeueAt === undefined ? Number.POSITIVE_INFINITY : Date.parse(requeueAt) - now.getTime()
  if (requeueAfterSeconds !== undefined && requeueAfterSeconds * 1000 <= atMs)
    return { afterMs: requeueAfterSeconds * 1000 }
  return requeueAt === undefined ? undefined : new Date(now.getTime() + Math.min(atMs, HUNDRED_YEARS_S * 1000))
}

/** Returns the time that the outcome asks for, or that of the next correction or act that waits, if it is earlier. */
export function nextLookOf({ requeue, lookAt }: Plan, now: Date): Due | undefined {
  const isFirst = requeue !== undefined && (lookAt === undefined || dueDate(requeue, now) <= lookAt)
  return isFirst ? requeue : lookAt
}
