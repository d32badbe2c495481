import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject, ResourceRef } from '#contracts'
import { compareVersions } from '#events'
import { type KubeClient, resourcePath, type ServedResource, servedResources } from '#kube'
import { UnknownOutcomeError } from '#nats'
import { mapAtMost } from '#primitives'
import { UsageError } from '#process/exit'
import {
  finalizerOfReconciler,
  identityOf,
  isRefused,
  RECONCILERS,
  type ReconcilerSpec,
  readReconciler,
  shardOf,
} from '#spec'
import type { ExistingStreams } from '../existing-streams.ts'
import { isCutShort, type Row } from '../keys.ts'
import { reconcilersIn, watchedAs, watchedIn } from '../selection.ts'
import {
  elsewhereIn,
  eventsAbout,
  isMarkedFor,
  isTerminating,
  lastBlocked,
  lastRunsOf,
  lettersAbout,
  missingRightsOf,
  namedIn,
  objectIn,
  ownedIn,
  ownedInEvents,
  rowsOf,
  storedObject,
  withStuckPod,
} from './facts.ts'
import type { EndedBy, ReconcilerSituation, Relative, Situation, Target } from './situation.ts'
import { conversionFailure, webhookOf } from './webhook.ts'

/** The two servers. For a server that is unreachable, the reason as text. */
export interface Sources {
  kube: KubeClient | string
  streams: ExistingStreams | string
}

export interface Asked {
  kind: string
  namespace: string | undefined
  name: string
}

/** Attempts within which a working bridge has stored a change. */
const LOOKS = 6
const LOOK_AGAIN_MS = 200
const READS_AT_ONCE = 8

/** Reads the situation of an object. Writes nothing. NATS counts as away if it does not answer one of the requests. */
export async function gather(asked: Asked, sources: Sources, now: () => Date): Promise<Situation> {
  try {
    return await gatherFrom(asked, sources, now)
  } catch (error) {
    if (!(error instanceof UnknownOutcomeError) || typeof sources.kube === 'string') throw error
    return gatherFrom(asked, { ...sources, streams: error.message }, now)
  }
}

async function gatherFrom(asked: Asked, { kube: api, streams: nats }: Sources, now: () => Date): Promise<Situation> {
  const [kube, apiAway] = typeof api === 'string' ? [undefined, api] : [api, undefined]
  const [streams, natsAway] = typeof nats === 'string' ? [undefined, nats] : [nats, undefined]
  const all = kube ? await reconcilersOf(kube) : streams ? await reconcilersIn(streams.view) : []
  const target = await targetOf(asked, all, kube && (await servedResources(kube)), streams)
  const { object, stored } = await versionsOf(target, kube, streams)
  const reconcilers = all.filter((one) => isFor(one, target.ref))
  const [known, elsewhere, isNamespaceTerminating, events, letters, webhook] = await Promise.all([
    Promise.all(reconcilers.map((one) => situationOf(one, target, object, kube, streams, all))),
    kube && object === undefined && target.isServed !== false ? elsewhereIn(kube, target) : [],
    kube && target.namespace !== undefined ? isTerminating(kube, target.namespace) : undefined,
    kube && object ? eventsAbout(kube, object) : [],
    streams ? lettersAbout(streams, target) : [],
    kube && object ? webhookOf(kube, target) : undefined,
  ])
  const { isServed: isKindServed, ...shown } = target
  const storedVersion = stored?.metadata.resourceVersion
  return {
    now: now().toISOString(),
    target: shown,
    apiAway,
    natsAway,
    isKindServed,
    ...(object && { object }),
    storedVersion,
    elsewhere,
    isNamespaceTerminating,
    reconcilers: known,
    ...((kube || streams) && { finalizers: all.map(finalizerOfReconciler) }),
    events,
    letters,
    ...(webhook && { webhook }),
  }
}

export async function reconcilersOf(kube: KubeClient): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  for await (const { items } of kube.list(resourcePath(RECONCILERS))) found.push(...items)
  return found
}

/** Returns what the names mean. `served`: the kinds of the API server; undefined while it is away. */
export async function targetOf(
  { kind: asked, namespace, name }: Asked,
  reconcilers: readonly KubeObject[],
  served: readonly ServedResource[] | undefined,
  streams: ExistingStreams | undefined,
): Promise<Target & { isServed?: boolean }> {
  const watched = streams && served === undefined ? await watchedIn(streams.view) : []
  const { kind, ref, namespaced, isServed } = kindNamed(asked, reconcilers, served, watched)
  const inNamespace = { namespace: namespace ?? 'default' }
  const isNamespaced =
    namespaced ??
    (streams === undefined || (await storedObject(streams.view, { ref, ...inNamespace, name })) !== undefined)
  return { kind, ref, ...(isNamespaced && inNamespace), name, isServed }
}

/** Returns the versions in the API server and in EVENTS. Waits, since a working bridge is some milliseconds behind. */
async function versionsOf(
  target: Target & { isServed?: boolean },
  kube: KubeClient | undefined,
  streams: ExistingStreams | undefined,
): Promise<{ object: KubeObject | undefined; stored: KubeObject | undefined }> {
  for (let looks = 1; ; looks++) {
    let failure: Error | undefined
    const isAsked = kube !== undefined && target.isServed !== false
    const live = isAsked ? await objectIn(kube, target).catch((error: Error) => void (failure = error)) : undefined
    const stored = streams && (await storedObject(streams.view, target))
    // Its webhook is away: a bridge may have stored it before.
    if (failure !== undefined && (stored === undefined || conversionFailure(failure) === undefined)) throw failure
    const object = kube && failure === undefined ? live : stored
    const order = compareVersions(stored?.metadata.resourceVersion ?? '0', live?.metadata.resourceVersion ?? '0') ?? 0
    if (live === undefined || streams === undefined || order >= 0 || looks >= LOOKS) return { object, stored }
    await sleep(LOOK_AGAIN_MS)
  }
}

async function situationOf(
  reconciler: KubeObject,
  target: Target,
  object: KubeObject | undefined,
  kube: KubeClient | undefined,
  asked: ExistingStreams | undefined,
  all: readonly KubeObject[],
): Promise<ReconcilerSituation> {
  const isElsewhere = asked !== undefined && asked.shard !== shardOf(reconciler)
  const streams = isElsewhere ? undefined : asked
  const { name } = reconciler.metadata
  const read = readReconciler(reconciler)
  const spec = isRefused(read) ? undefined : read
  const [queue, missingRights, owned, named] = await Promise.all([
    streams &&
      Promise.all([
        rowsOf(streams, name, target),
        streams.queue.isServed(name),
        lastRunsOf(streams, name, target),
        spec && quietMsOf(streams, spec.for, target.namespace),
      ]),
    kube && spec ? missingRightsOf(kube, reconciler, spec, target.namespace) : undefined,
    spec && object ? ownedOf(reconciler, spec, object, kube, streams) : [],
    kube && spec && object ? namedIn(kube, object, spec, identityOf(name, spec)) : [],
  ])
  const [rows, isServed, lastRuns, quietMs] = queue ?? []
  const cut = lastRuns?.blocked === undefined ? rows?.find(isCutShort) : undefined
  const endedBy = streams && cut && (await endedByOther(streams, cut, all))
  return {
    object: reconciler,
    ...(isElsewhere && { isElsewhere }),
    ...(rows && { rows }),
    isServed,
    ...(quietMs !== undefined && { quietMs }),
    ...(missingRights && { missingRights }),
    ...lastRuns,
    ...(endedBy && { endedBy }),
    owned,
    named,
  }
}

/** Returns the object whose run has blocked a process about the time at which the key was cut short. */
async function endedByOther(
  streams: ExistingStreams,
  cut: Row,
  reconcilers: readonly KubeObject[],
): Promise<EndedBy | undefined> {
  const record = await lastBlocked(streams, cut.since)
  const of = record && reconcilers.find(({ metadata }) => metadata.name === record.reconciler)
  const [primary] = of === undefined ? [] : declaredKinds(of)
  if (record === undefined || primary === undefined) return undefined
  const { namespace, name, endedAt, message = '' } = record
  return { kind: primary.kind, ref: refOf(primary), namespace, name, endedAt, message }
}

/**
 * Returns for how long no bridge has watched a resource. While it is listed, which may take many minutes, a bridge moves
 * only the other cursors, such as that of the Reconcilers.
 */
export async function quietMsOf(
  { view }: Pick<ExistingStreams, 'view'>,
  ref: ResourceRef,
  namespace: string | undefined,
): Promise<number | undefined> {
  const [own, bridge] = await Promise.all([view.quietMs(ref, namespace), view.quietMs(RECONCILERS, undefined)])
  return own && Math.min(own, bridge ?? own)
}

/** Returns the owned objects. EVENTS finds them by their owner; the API server needs a list of each kind. */
async function ownedOf(
  reconciler: KubeObject,
  spec: ReconcilerSpec,
  object: KubeObject,
  kube: KubeClient | undefined,
  streams: ExistingStreams | undefined,
): Promise<Relative[]> {
  const found = streams
    ? await ownedInEvents(streams.view, object, spec, kube)
    : kube
      ? await ownedIn(kube, object, spec)
      : []
  const owned = found
    .filter((child) => isMarkedFor(reconciler, spec, object, child))
    .map((child) => relativeOf(child, spec))
    .sort((a, b) => `${a.kind} ${a.name}`.localeCompare(`${b.kind} ${b.name}`))
  return kube ? mapAtMost(READS_AT_ONCE, owned, (one) => withStuckPod(kube, one)) : owned
}

function relativeOf(object: KubeObject, { owns }: ReconcilerSpec): Relative {
  const { kind, metadata } = object
  const resource = owns.find((one) => one.kind === kind)
  const { group = '', version = '', resource: plural = kind.toLowerCase() } = resource ?? {}
  const { namespace, name } = metadata
  return {
    kind,
    ref: { group, version, resource: plural },
    namespace,
    name,
    object,
  }
}

/** A kind that the user has named. */
interface NamedKind {
  kind: string
  ref: ResourceRef
  /** Undefined if it is unknown. */
  namespaced?: boolean
  /** Undefined if it is unknown. */
  isServed?: boolean
}

/**
 * Finds a kind by its name. The API server knows all names of a kind. If it is unreachable, or no longer has the
 * definition, the Reconcilers know their kinds, and EVENTS knows the watched kinds.
 */
function kindNamed(
  name: string,
  reconcilers: readonly KubeObject[],
  served: readonly ServedResource[] | undefined,
  watched: readonly ResourceRef[],
): NamedKind {
  const [wanted = '', ...rest] = name.toLowerCase().split('.')
  const group = rest.join('.')
  const isCalled = (one: ResourceRef, names: readonly string[]) =>
    (one.resource === wanted || names.includes(wanted)) && (group === '' || one.group === group)
  const declared = reconcilers.flatMap(declaredKinds).find((one) => isCalled(one, [one.kind.toLowerCase()]))
  const there = served?.find((one) => isCalled(one, one.aliases))
  if (there) {
    const same = reconcilers.flatMap(declaredKinds).find((one) => isSameKind(one, there))
    const { kind, namespaced } = there
    return { kind, namespaced, isServed: true, ref: refOf(same ?? there) }
  }
  if (declared) return { kind: declared.kind, ref: refOf(declared), ...(served && { isServed: false }) }
  if (served)
    throw new UsageError(`the API server has no resource ${JSON.stringify(name)}: kubectl api-resources lists them`)
  const [ref] = watchedAs(name, watched)
  if (ref === undefined) throw new UsageError(`no bridge watches ${name}`)
  return { kind: name, ref: refOf(ref) }
}

const isSameKind = (a: Pick<ResourceRef, 'group' | 'resource'>, b: Pick<ResourceRef, 'group' | 'resource'>) =>
  a.group === b.group && a.resource === b.resource

/** Returns the kinds of a Reconciler, the primary kind first: users ask for it most often. */
function declaredKinds(object: KubeObject): (ResourceRef & { kind: string })[] {
  const spec = readReconciler(object)
  return isRefused(spec) ? primaryOf(object) : [spec.for, ...spec.owns, ...spec.related, ...(spec.patches ?? [])]
}

/** Returns the primary kind of a rejected Reconciler, if its spec contains one. */
function primaryOf({ spec }: KubeObject): (ResourceRef & { kind: string })[] {
  const { for: primary } = (spec ?? {}) as { for?: Partial<ResourceRef & { kind: string }> }
  const { group, version, resource, kind } = primary ?? {}
  if (group === undefined || version === undefined || resource === undefined || kind === undefined) return []
  return [{ group, version, resource, kind }]
}

/** Whether the Reconciler reconciles objects of that kind. */
const isFor = (reconciler: KubeObject, ref: ResourceRef): boolean => {
  const spec = readReconciler(reconciler)
  return (isRefused(spec) ? primaryOf(reconciler) : [spec.for]).some((one) => isSameKind(one, ref))
}

const refOf = ({ group, version, resource }: ResourceRef): ResourceRef => ({ group, version, resource })
