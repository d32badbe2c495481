import { type EventReport, type KubeObject, keepsStatus, type OwnedResource, type ReconcilerSpec } from '#contracts'
import type { Due } from '#queue'
import { covers, fingerprint } from './covers.ts'
import { completeDesired, DESIRED_ANNOTATION } from './desired.ts'
import { type MetadataWrite, metadataFaults, metadataWrite } from './metadata.ts'
import { HUNDRED_YEARS_S, type PlainOutcome } from './outcome.ts'
import type { SettledWrites } from './settled-writes.ts'
import { type StatusPatch, statusPatch } from './status.ts'
import { type Family, findOwned, type OwnedObject } from './world.ts'

/**
 * With this resourceVersion server-side apply creates an object and never touches one that exists (Conflict): etcd's
 * revision 1 is no object's (measured on Kubernetes 1.36).
 */
export const ONLY_IF_ABSENT = '1'

/** One request for an owned object. */
export type Write =
  /** POST: fails if the name is taken. */
  | { verb: 'create'; resource: OwnedResource; object: KubeObject }
  /** Server-side apply, bound to the uid that was observed, or to there being none. */
  | {
      verb: 'apply'
      resource: OwnedResource
      object: KubeObject
      fingerprint: string
      observed: KubeObject | undefined
    }
  /** Bound to the uid and resourceVersion that were observed. */
  | { verb: 'delete'; resource: OwnedResource; object: KubeObject }

export interface Plan {
  /** Stages in order; the writes of one stage do not depend on each other. */
  stages: Write[][]
  metadata: MetadataWrite | undefined
  status: StatusPatch | undefined
  /** The object itself is to be deleted. */
  isDeletion: boolean
  events: EventReport[]
  /** A delay counts from the time that the function was given. */
  requeue: Due | undefined
  /** Faults of the outcome itself: with any, nothing of it is written. */
  findings: string[]
}

export interface Circumstances {
  /** The name of the Reconciler. */
  reconciler: string
  now: Date
  settled: Pick<SettledWrites, 'has'>
  /** Its contents must not be told, not even as a fingerprint. */
  isConfidential: (resource: OwnedResource) => boolean
}

/** What has to be written so that the world is as the outcome says. */
export function plan(
  spec: Pick<ReconcilerSpec, 'for' | 'owns' | 'writes'>,
  world: Family,
  outcome: PlainOutcome,
  circumstances: Circumstances,
): Plan {
  const { reconciler, now, settled } = circumstances
  const { object } = world
  const desired = completeDesired(object, spec.owns, outcome.apply ?? [])
  const applies = desired.objects.flatMap((wanted) => writeFor(world, wanted, circumstances) ?? [])
  const deletes = outcome.apply === undefined ? [] : prune(world, desired.objects)
  const status = keepsStatus(spec) ? statusPatch(object, outcome, now) : undefined
  return {
    stages: [...inStages(applies), deletes].filter((stage) => stage.length > 0),
    metadata: metadataWrite(object, reconciler, outcome.metadata, settled),
    status: status !== undefined && isSettled(world, status, settled) ? undefined : status,
    isDeletion: outcome.deleteObject === true && object.metadata.deletionTimestamp === undefined,
    events: outcome.events ?? [],
    requeue: requeueOf(outcome, now),
    findings: [
      ...desired.findings,
      ...strayStatus(spec, outcome),
      ...metadataFaults(spec, object, outcome.metadata),
      ...strayDeletion(spec, outcome),
    ],
  }
}

function strayStatus(spec: Pick<ReconcilerSpec, 'for'>, { status, conditions = [] }: PlainOutcome): string[] {
  if (keepsStatus(spec) || (status === undefined && conditions.length === 0)) return []
  return [`the status of a ${spec.for.kind} is not this function's: return no "status" and no "conditions"`]
}

const strayDeletion = ({ writes = [] }: Pick<ReconcilerSpec, 'writes'>, { deleteObject }: PlainOutcome): string[] =>
  deleteObject !== true || writes.includes('Deletion')
    ? []
    : ['the function returned "deleteObject", but has no right to delete its object: add "Deletion" to its "writes"']

export const statusTarget = ({ metadata }: KubeObject): string => `${metadata.uid}/status`

function isSettled({ object }: Family, { status }: StatusPatch, settled: Pick<SettledWrites, 'has'>): boolean {
  return settled.has(statusTarget(object), object.metadata.resourceVersion, fingerprint(status))
}

function writeFor(
  world: Family,
  { resource, object }: OwnedObject,
  { settled, isConfidential }: Pick<Circumstances, 'settled' | 'isConfidential'>,
): Write | undefined {
  const observed = findOwned(world, resource, object)
  if (resource.strategy === 'CreateOnly')
    return observed === undefined ? { verb: 'create', resource, object } : undefined
  if (resource.strategy === 'Recreate') return recreate(observed, resource, object, isConfidential(resource))
  if (observed?.metadata.deletionTimestamp !== undefined) return undefined
  // Where only metadata is watched, the mark in it is all that can be compared.
  const mark = fingerprint(object)
  const marked = isConfidential(resource) ? object : withMark(object, mark)
  const apply = { verb: 'apply', resource, fingerprint: mark, observed } as const
  if (observed === undefined) return { ...apply, object: bound(marked, { resourceVersion: ONLY_IF_ABSENT }) }
  const { uid, resourceVersion } = observed.metadata
  if (uid === undefined || settled.has(uid, resourceVersion, mark)) return undefined
  const comparable = resource.metadataOnly === true ? { metadata: marked.metadata } : marked
  // Without the mark a field that is no longer desired would not show as a difference.
  if (marked !== object && covers(comparable, observed)) return undefined
  return { ...apply, object: bound(marked, { uid }) }
}

/**
 * What was declared differently when it was created is deleted; the round after that creates it anew. Of a Secret no
 * mark is kept, so that it stays as it was created.
 */
function recreate(
  observed: KubeObject | undefined,
  resource: OwnedResource,
  object: KubeObject,
  isConfidential: boolean,
): Write | undefined {
  const mark = fingerprint(object)
  if (observed === undefined)
    return { verb: 'create', resource, object: isConfidential ? object : withMark(object, mark) }
  const created = observed.metadata.annotations?.[DESIRED_ANNOTATION]
  const isOther = created !== undefined && created !== mark
  return isOther && observed.metadata.deletionTimestamp === undefined
    ? { verb: 'delete', resource, object: observed }
    : undefined
}

const bound = (object: KubeObject, to: { uid: string } | { resourceVersion: string }): KubeObject => ({
  ...object,
  metadata: { ...object.metadata, ...to },
})

const withMark = (object: KubeObject, mark: string): KubeObject => ({
  ...object,
  metadata: { ...object.metadata, annotations: { ...object.metadata.annotations, [DESIRED_ANNOTATION]: mark } },
})

function prune(world: Family, wanted: readonly OwnedObject[]): Write[] {
  const kept = { ...world, owned: wanted }
  return world.owned
    .filter(({ resource, object }) => findOwned(kept, resource, object) === undefined)
    .filter(({ object }) => object.metadata.deletionTimestamp === undefined)
    .map(({ resource, object }) => ({ verb: 'delete', resource, object }))
}

/** What others need in order to start, first. */
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

/** The earlier one. */
function requeueOf({ requeueAfterSeconds, requeueAt }: PlainOutcome, now: Date): Due | undefined {
  const atMs = requeueAt === undefined ? Number.POSITIVE_INFINITY : Date.parse(requeueAt) - now.getTime()
  if (requeueAfterSeconds !== undefined && requeueAfterSeconds * 1000 <= atMs)
    return { afterMs: requeueAfterSeconds * 1000 }
  return requeueAt === undefined ? undefined : new Date(now.getTime() + Math.min(atMs, HUNDRED_YEARS_S * 1000))
}
