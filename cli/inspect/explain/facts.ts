import type { KubeObject, ResourceRef, RunRecord, WriteRecord } from '#contracts'
import {
  compareVersions,
  type DeadLetter,
  type EventsView,
  isKey,
  isPresent,
  keyIn,
  NoRunsError,
  type OwnerKey,
  parseKey,
  parseObjectSubject,
  type StoredEvent,
  type StoredRun,
  SubjectError,
} from '#events'
import { functionRbac } from '#install'
import { isForbidden, isNotFound, type KubeClient, type ListOptions, METADATA_ONLY, resourcePath } from '#kube'
import { mapAtMost } from '#primitives'
import { BLOCKED_AT, ENDED_PROCESS, markedBy, NOT_CALLED } from '#reconcile'
import { identityOf, isOwnedBy, mayBeRetained, patchedBy, type ReconcilerSpec, relatedLookup } from '#spec'
import type { ExistingStreams } from '../existing-streams.ts'
import { keyFor, orphansIn, type Row, toRow, withOrphan } from '../keys.ts'
import { becauseOf, latestRuns, tookMs, waitedMs, writesIn } from '../runs.ts'
import { healthOf } from './health.ts'
import type { LastRun, Letter, ReconcilerSituation, Relative, ReportedEvent, Target } from './situation.ts'

const AT_ONCE = 8
const EVENTS_SHOWN = 10
/** RUNS has as many of one object. */
const RUNS_READ = 20
/** The limit of names that are read from one field. */
const NAMES_READ = 50

const undefinedIfNotFound = (error: unknown): undefined => {
  if (!isNotFound(error)) throw error
  return undefined
}

/**
 * Returns undefined if the user lacks the permission: the explanation leaves that fact open, and the command continues.
 */
async function unlessForbidden<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read()
  } catch (error) {
    if (!isForbidden(error)) throw error
    return undefined
  }
}

async function listAll(kube: KubeClient, path: string, options: ListOptions = {}): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  for await (const { items } of kube.list(path, options)) found.push(...items)
  return found
}

export const objectIn = (kube: KubeClient, { ref, namespace, name }: Pick<Target, 'ref' | 'namespace' | 'name'>) =>
  kube.get(resourcePath(ref, namespace, name)).catch(undefinedIfNotFound)

/** Returns where else objects with that name exist, as `namespace/name`. */
export async function elsewhereIn(kube: KubeClient, { ref, name }: Target): Promise<string[]> {
  const found = await unlessForbidden(() =>
    listAll(kube, resourcePath(ref), { fieldSelector: `metadata.name=${name}` }),
  )
  return (found ?? []).flatMap(({ metadata }) =>
    metadata.namespace === undefined ? [] : [`${metadata.namespace}/${name}`],
  )
}

export async function isTerminating(kube: KubeClient, namespace: string): Promise<boolean | undefined> {
  const ref = { group: '', version: 'v1', resource: 'namespaces' }
  const found = await unlessForbidden(() =>
    kube.get(resourcePath(ref, undefined, namespace)).catch(undefinedIfNotFound),
  )
  return found && found.metadata.deletionTimestamp !== undefined
}

interface CoreEvent extends KubeObject {
  type?: string
  reason?: string
  message?: string
  count?: number
  series?: { count?: number; lastObservedTime?: string }
  lastTimestamp?: string | null
  eventTime?: string | null
  reportingComponent?: string
  source?: { component?: string }
}

export async function eventsAbout(kube: KubeClient, { metadata }: KubeObject): Promise<ReportedEvent[]> {
  const path = resourcePath({ group: '', version: 'v1', resource: 'events' }, metadata.namespace ?? 'default')
  const found = await unlessForbidden(() =>
    listAll(kube, path, { fieldSelector: `involvedObject.uid=${metadata.uid}` }),
  )
  return ((found ?? []) as CoreEvent[])
    .map((event) => ({
      type: event.type ?? 'Normal',
      reason: event.reason ?? '',
      message: event.message ?? '',
      count: event.series?.count ?? event.count ?? 1,
      last:
        event.series?.lastObservedTime ??
        event.lastTimestamp ??
        event.eventTime ??
        event.metadata.creationTimestamp ??
        '',
      by: event.reportingComponent || (event.source?.component ?? ''),
    }))
    .sort((a, b) => b.last.localeCompare(a.last))
    .slice(0, EVENTS_SHOWN)
}

const REVIEWS = { group: 'authorization.k8s.io', version: 'v1', resource: 'subjectaccessreviews' }

/**
 * Returns the permissions that the function's generated RBAC contains and its service account lacks in this namespace.
 */
export async function missingRightsOf(
  kube: KubeClient,
  reconciler: KubeObject,
  spec: ReconcilerSpec,
  namespace: string | undefined,
): Promise<string[] | undefined> {
  const { serviceAccount: account } = spec
  if (account === undefined) return undefined
  const user = `system:serviceaccount:${account.namespace}:${account.name}`
  const groups = ['system:serviceaccounts', `system:serviceaccounts:${account.namespace}`, 'system:authenticated']
  const asked = rightsOf(reconciler.metadata.name, spec)
  return unlessForbidden(async () => {
    const missing = await mapAtMost(AT_ONCE, asked, async ({ group, resource, subresource, verb }) => {
      const attributes = { group, resource, verb, ...(subresource && { subresource }), ...(namespace && { namespace }) }
      const review = {
        apiVersion: 'authorization.k8s.io/v1',
        kind: 'SubjectAccessReview',
        spec: { user, groups, resourceAttributes: attributes },
      }
      const { status } = await kube.create<{ status: { allowed: boolean } }>(resourcePath(REVIEWS), review)
      const kind = [resource, group].filter((part) => part !== '').join('.')
      return status.allowed ? [] : [`${verb} ${kind}${subresource === undefined ? '' : `/${subresource}`}`]
    })
    return missing.flat()
  })
}

interface Right {
  group: string
  resource: string
  subresource?: string
  verb: string
}

/**
 * The permissions for whole kinds. Permissions for single objects are left out: the API server's rejection names them.
 */
function rightsOf(name: string, spec: ReconcilerSpec): Right[] {
  const roles = functionRbac({ metadata: { name }, spec }).filter(
    ({ kind, metadata }) => kind === 'ClusterRole' && metadata.name === `fairlead-${name}`,
  )
  const rules = roles.flatMap(
    (role) =>
      role['rules'] as { apiGroups: string[]; resources: string[]; verbs: string[]; resourceNames?: string[] }[],
  )
  return rules
    .filter(({ resourceNames }) => resourceNames === undefined)
    .flatMap(({ apiGroups: [group = ''], resources: [full = ''], verbs }) => {
      const [resource = '', subresource] = full.split('/')
      return verbs.map((verb) => ({ group, resource, verb, subresource }))
    })
}

/**
 * Returns the objects that the reconciler has created for the object: objects of its kinds with its mark, by owner
 * reference or retention.
 */
export async function ownedIn(kube: KubeClient, owner: KubeObject, spec: ReconcilerSpec): Promise<KubeObject[]> {
  const found = await mapAtMost(AT_ONCE, spec.owns, (kind) =>
    unlessForbidden(() => listAll(kube, resourcePath(kind, owner.metadata.namespace)).catch(undefinedIfNotFound)),
  )
  return found.flatMap((objects) => (objects ?? []).filter((object) => isOwnedBy(object, owner)))
}

/** False for objects that other reconcilers have created for the same owner. */
export const isMarkedFor = (
  reconciler: KubeObject,
  spec: ReconcilerSpec,
  owner: KubeObject,
  child: KubeObject,
): boolean => [undefined, identityOf(reconciler.metadata.name, spec)].includes(markedBy(owner, child))

interface LabelSelector {
  matchLabels?: Record<string, string>
  matchExpressions?: { key: string; operator: string; values?: string[] }[]
}

/** The selector as the API server's query has it; undefined if it selects nothing or has an unknown operator. */
function selectorText({ matchLabels = {}, matchExpressions = [] }: LabelSelector): string | undefined {
  const labels = Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`)
  const expressions = matchExpressions.map(({ key, operator, values = [] }) => {
    if (operator === 'In' || operator === 'NotIn') return `${key} ${operator.toLowerCase()} (${values.join(',')})`
    return operator === 'Exists' ? key : operator === 'DoesNotExist' ? `!${key}` : undefined
  })
  const parts = [...labels, ...expressions]
  return parts.length === 0 || parts.includes(undefined) ? undefined : parts.join(',')
}

/**
 * Adds the pod that keeps a workload from getting ready, such as one whose image cannot be pulled: the workload's own
 * status does not name it.
 */
export async function withStuckPod(kube: KubeClient, one: Relative): Promise<Relative> {
  const { selector } = (one.object?.['spec'] ?? {}) as { selector?: LabelSelector }
  const labelSelector = selector && selectorText(selector)
  if (!WORKLOADS.has(one.kind) || labelSelector === undefined || healthOf(one).is !== 'progressing') return one
  const pods = await unlessForbidden(() => listAll(kube, resourcePath(PODS, one.namespace), { labelSelector }))
  const isStuck = (pod: KubeObject) =>
    (pod.status as { phase?: string })?.phase !== 'Failed' &&
    healthOf({ kind: 'Pod', ref: PODS, name: pod.metadata.name, object: pod }).is === 'failed'
  const stuck = pods?.find(isStuck)
  return stuck === undefined ? one : { ...one, stuckPod: stuck }
}

const WORKLOADS = new Set(['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet', 'Job'])
const PODS: ResourceRef = { group: '', version: 'v1', resource: 'pods' }

/**
 * Returns the related objects that fields of the object name, and those whose fields are set for it, whether they exist or
 * not.
 */
export async function namedIn(
  kube: KubeClient,
  object: KubeObject,
  spec: ReconcilerSpec,
  identity: string,
): Promise<Relative[]> {
  const patched = patchedBy(object, identity).map(({ namespace, name, ...related }) => ({ related, namespace, name }))
  const named = spec.related.flatMap((related) => {
    if (related.naming !== undefined) return []
    const { names, namespaces, clusterScoped } = relatedLookup(related, object)
    const places = namespaces ?? (clusterScoped ? [undefined] : [])
    return (names ?? []).flatMap((name) => places.map((namespace) => ({ related, namespace, name })))
  })
  const wanted = [...named, ...patched]
  const found = await mapAtMost(AT_ONCE, wanted.slice(0, NAMES_READ), async ({ related, namespace, name }) => {
    const ref: ResourceRef = { group: related.group, version: related.version, resource: related.resource }
    const read = await unlessForbidden(async () => ({
      object: await kube.get(resourcePath(ref, namespace, name)).catch(undefinedIfNotFound),
    }))
    if (read === undefined) return []
    return [
      {
        kind: related.kind,
        ref,
        namespace,
        name,
        ...(read.object && { object: read.object }),
      },
    ]
  })
  return found.flat()
}

/** Returns the newest version among all subjects of the object. */
export async function storedObject(
  view: EventsView,
  { ref, namespace, name }: Pick<Target, 'ref' | 'namespace' | 'name'>,
): Promise<KubeObject | undefined> {
  let newest: StoredEvent | undefined
  for await (const event of view.stored([{ ref, namespace, name }]))
    if (event.verb !== 'moved' && (newest === undefined || isNewer(event, newest))) newest = event
  return newest && isPresent(newest) ? newest.object : undefined
}

const isNewer = (one: StoredEvent, other: StoredEvent): boolean =>
  (compareVersions(one.resourceVersion, other.resourceVersion) ?? one.sequence - other.sequence) >= 0

/** Returns the objects that EVENTS has for this owner. The API server shows whether a reference is that of a retained object. */
export async function ownedInEvents(
  view: EventsView,
  object: KubeObject,
  spec: ReconcilerSpec,
  kube: KubeClient | undefined,
): Promise<KubeObject[]> {
  const { namespace, name } = object.metadata
  const owner: OwnerKey = { resource: spec.for.resource, name }
  const filters = spec.owns.map((ref) => ({ ref, owner, namespace }))
  const found: StoredEvent[] = []
  for await (const event of view.stored(filters))
    if (isPresent(event) && (isOwnedBy(event.object, object) || mayBeRetained(event))) found.push(event)
  const owned = await mapAtMost(AT_ONCE, found, async (event) => {
    const known = mayBeRetained(event) && kube ? await withAnnotations(kube, event) : event.object
    // If nobody can say for which object of that name it is retained, it is shown rather than called missing.
    return known && (isOwnedBy(known, object) || mayBeRetained({ ...event, object: known })) ? [known] : []
  })
  return owned.flat()
}

/** Returns the reference with its annotations, without them if the user may not read it, and undefined if it is gone. */
async function withAnnotations(kube: KubeClient, { key, object }: StoredEvent): Promise<KubeObject | undefined> {
  const { namespace, name } = object.metadata
  const path = resourcePath(key.ref, namespace, name)
  const read = await unlessForbidden(async () => ({
    found: await kube.get(path, { accept: METADATA_ONLY }).catch(undefinedIfNotFound),
  }))
  if (read === undefined) return object
  const { annotations = {} } = read.found?.metadata ?? {}
  return read.found && { ...object, metadata: { ...object.metadata, annotations } }
}

export async function rowsOf({ queue, view }: ExistingStreams, reconciler: string, target: Target): Promise<Row[]> {
  const { namespace, name } = target
  const entries = await queue.find(keyFor(reconciler, { namespace, name }))
  const orphans = orphansIn(view)
  return Promise.all(entries.map((entry) => withOrphan(toRow(entry), orphans)))
}

/** Returns the last recorded run; undefined if RUNS has none. */
export async function lastRunsOf(
  { runs }: ExistingStreams,
  reconciler: string,
  target: Target,
): Promise<Pick<ReconcilerSituation, 'lastRun' | 'blocked'>> {
  const { namespace, name } = target
  try {
    const found = (await latestRuns(runs, { reconciler, object: name, namespace, results: [] }, RUNS_READ)).reverse()
    const [last] = found
    return { ...(last && { lastRun: toLastRun(last, target) }), ...blockedIn(found) }
  } catch (error) {
    if (error instanceof NoRunsError) return {}
    throw error
  }
}

/** After the end of a process its keys are taken again within this time, unless its supervisor waits for longer. */
const TAKEN_AGAIN_MS = 120_000

/**
 * Returns the last recorded run that has blocked its process, whatever its object, if that was since the lease of a key
 * ended which changed its state at this time.
 */
export async function lastBlocked(
  { runs }: Pick<ExistingStreams, 'runs'>,
  stateSince: string,
): Promise<RunRecord | undefined> {
  const since = new Date(Date.parse(stateSince) - TAKEN_AGAIN_MS)
  try {
    const lost = await latestRuns(runs, { results: ['fenced'], since }, RUNS_READ)
    return lost.findLast(({ record }) => record.message !== undefined)?.record
  } catch (error) {
    if (error instanceof NoRunsError) return undefined
    throw error
  }
}

/** Counts the last runs in a row, newest first, whose function has blocked or ended its process. */
function blockedIn(found: readonly StoredRun[]): Pick<ReconcilerSituation, 'blocked'> {
  // A run without a message has lost its lease, by whatever.
  const ended = found
    .map(({ record: { result, message = '' } }) => ({ result, message }))
    .filter(({ result, message }) => !message.startsWith(NOT_CALLED) && (result !== 'fenced' || message !== ''))
  const other = ended.findIndex(
    ({ result, message }) =>
      result !== 'fenced' && ![BLOCKED_AT, ENDED_PROCESS].some((begin) => message.startsWith(begin)),
  )
  const blocked = other === -1 ? ended : ended.slice(0, other)
  const told = blocked.find(({ message }) => message.startsWith(BLOCKED_AT)) ?? blocked[0]
  return told === undefined ? {} : { blocked: { runs: blocked.length, message: told.message } }
}

function toLastRun({ sequence, record }: StoredRun, { namespace }: Target): LastRun {
  const { endedAt, result, message, laps } = record
  const outcome = laps.findLast((lap) => lap.outcome !== undefined)?.outcome
  const place = laps.findLast((lap) => lap.error !== undefined)?.place
  const { written, refused, unchanged } = writesIn(record)
  const called = ({ verb, kind, name }: WriteRecord) => `${verb} ${kind} ${name}`
  return {
    run: sequence,
    endedAt,
    tookMs: tookMs(record),
    waitedMs: waitedMs(record),
    result,
    message,
    because: becauseOf(record),
    ...((outcome?.requeueAt ?? outcome?.requeueAfterSeconds) !== undefined && { asksAgain: true as const }),
    ...(place !== undefined && { place }),
    writes: written.map(called),
    refused: refused.map((one) => ({ write: called(one), error: one.error ?? '' })),
    unchanged: unchanged.map(called),
    declared: (outcome?.apply ?? []).map(({ kind, metadata, stage }) => {
      const place = metadata.namespace ?? namespace
      return { kind, namespace: place, name: metadata.name, ...(stage && { stage }) }
    }),
  }
}

/** Returns the dead letters about the object or one of its keys. */
export async function lettersAbout({ dead }: ExistingStreams, target: Target): Promise<Letter[]> {
  const found: Letter[] = []
  for await (const letter of dead.list()) {
    const { id, reconciler, reason, detail } = letter
    const place = placeOf(letter)
    if (place?.name !== target.name || place.namespace !== target.namespace) continue
    found.push({ id, reconciler, reason, detail })
  }
  return found
}

/** Returns the object that the letter names; undefined if it names none. */
function placeOf(letter: DeadLetter): { namespace: string | undefined; name: string } | undefined {
  const key = keyIn(letter)?.key
  if (key !== undefined) return isKey(key) ? parseKey(key) : undefined
  try {
    return parseObjectSubject(letter.subject.split('.').slice(-OBJECT_PARTS).join('.'))
  } catch (error) {
    if (error instanceof SubjectError) return undefined
    throw error
  }
}

/** The last parts of a subject identify the object; a prefix may precede them. */
const OBJECT_PARTS = 7
