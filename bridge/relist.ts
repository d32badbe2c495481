import { setImmediate as endOfTurn } from 'node:timers/promises'
import { apiVersionOf, type KubeObject, type ResourceRef } from '#contracts'
import {
  compareVersions,
  type EventStore,
  type Identity,
  keyOf,
  type OwnerKey,
  ownerPart,
  parseKey,
  parseOwner,
} from '#events'
import { endsInitialEvents, isInvalid, type KubeClient, METADATA_ONLY, METADATA_ONLY_LIST, resourcePath } from '#kube'
import { CompactMap } from '#primitives'
import type { News } from './publisher.ts'
import type { Selection } from './reconcilers.ts'
import type { Routes } from './routing.ts'
import type { RelistReport } from './types.ts'
import { UnwatchableError } from './watch-state.ts'

export interface RelistPlan extends ListObjectsOptions {
  ref: ResourceRef
  /** Left out: all namespaces. */
  namespace: string | undefined
  routes: Routes
  /**
   * The position up to which keys were certainly enqueued, and the Reconcilers (by coverage ID) for which they were.
   */
  coveredUpTo: CoveredUpTo | undefined
  covers: ReadonlySet<string>
  /** A sweep may delete objects below this sequence of EVENTS, so the list stores them again. */
  unsafeBelow: number
}

/** One change to publish. Changes with the same `key` keep their order. */
export interface ListedChange {
  key: string
  news: News | (() => Promise<News>)
  /** Left out: the lane of the list. */
  lane?: 'high'
  /** Left out: every Reconciler must run. */
  only?: (coverageId: string) => boolean
}

export interface RelistDeps {
  kube: KubeClient
  events: EventStore
  /** Resolves when there is room for the next one. */
  publish: (found: ListedChange) => Promise<void>
  /** Receives every listed object, and then its changes during the list. */
  listed?: (object: KubeObject, isGone: boolean) => void
}

/** The number of objects of EVENTS that are read in one turn of the event loop. */
const KNOWN_IN_A_TURN = 100

/**
 * Lists a resource, compares the list with EVENTS, and publishes the difference: new and changed objects, and missing
 * objects as deletions with their last known state. An unchanged object costs nothing, unless its keys must run.
 *
 * EVENTS is read first. Each object in it existed at that time, so an object that a later list of the newest state
 * lacks is gone. An object in the list exists, even if EVENTS has its deletion
 * (docs/decisions/0089-copies-of-dead-writers.md).
 */
export async function relist(plan: RelistPlan, deps: RelistDeps): Promise<RelistReport & { resourceVersion: string }> {
  const { ref, namespace, selection } = plan
  const { stored, kind } = await readKnown(plan, deps.events)
  // The memory of the writer may have objects that were swept.
  if (plan.unsafeBelow > 0) deps.events.forget(ref)
  const report = { objects: 0, changed: 0, deleted: 0, resourceVersion: '' }
  const comparison = { ...plan, events: deps.events, isPending: pendingOf(plan) }
  for await (const event of listObjects(deps.kube, resourcePath(ref, namespace), plan)) {
    if (event.type === 'COMPLETE') {
      report.resourceVersion = event.resourceVersion
      break
    }
    const object = ofKind(event.object, selection, apiVersionOf(ref))
    const { uid, resourceVersion } = object.metadata
    if (!uid || !resourceVersion)
      throw new UnwatchableError(`${object.metadata.name} has no uid or no resourceVersion: choose another resource`)
    if (!plan.routes.isAsked(ref, object.metadata.namespace)) continue
    const key = keyOf(object.metadata.namespace, object.metadata.name)
    const findings = findingsOf(comparison, key, stored.take(key), object, event.type)
    deps.listed?.(object, event.type === 'DELETED')
    if (event.type === 'PRESENT') report.objects++
    if (findings.some(({ news }) => isChange(news))) report.changed++
    for (const found of findings) await deps.publish(found)
  }
  for (const [key, gone] of stored.remaining()) {
    if (gone.deleted && gone.hasStaleCopy) await deps.publish({ key, news: deletionOf(ref, kind, key, gone) })
    else if (!gone.deleted || !gone.covered) await deps.publish({ key, news: ending(ref, key, gone, deps.events) })
    if (!gone.deleted) report.deleted++
  }
  return report
}

async function readKnown(
  { ref, namespace, coveredUpTo, signal }: RelistPlan,
  events: EventStore,
): Promise<{ stored: KnownObjects; kind: string }> {
  const stored = new KnownObjects()
  let kind = ''
  let read = 0
  for await (const identity of events.identities(ref, namespace)) {
    signal.throwIfAborted()
    stored.add(keyOf(identity.key.namespace, identity.key.name), known(identity, coveredUpTo))
    kind = identity.object.kind
    // Up to 24 MiB of objects arrive at once. Changes must not wait until all of them are parsed.
    if (++read % KNOWN_IN_A_TURN === 0) await endOfTurn()
  }
  return { stored, kind }
}

interface Comparison extends RelistPlan {
  events: EventStore
  isPending: ((coverageId: string) => boolean) | undefined
}

/** Returns whether every key of a Reconciler must run. Undefined: this is the case for none. Asks once for the list. */
function pendingOf({ ref, routes, covers }: RelistPlan): Comparison['isPending'] {
  const isPending = (coverageId: string) => !covers.has(coverageId)
  return routes.coverageIdsOf(ref).some(isPending) ? isPending : undefined
}

function findingsOf(
  { ref, routes, events, selection, unsafeBelow, isPending }: Comparison,
  key: string,
  before: StoredState | undefined,
  object: KubeObject,
  type: 'PRESENT' | 'MODIFIED' | 'DELETED',
): ListedChange[] {
  // The change has just happened, so it does not wait behind the objects of the list.
  if (type !== 'PRESENT')
    return [{ key, lane: 'high', news: { verb: type === 'DELETED' ? 'deleted' : 'modified', object } }]
  const owner = routes.ownerOf(object)
  const verb = difference(before, object, owner)
  switch (verb) {
    case 'added':
    case 'modified':
      return [{ key, news: { verb, object, overrides: overriddenBy(before, object) ?? staleBeside(before) } }]
    case 'replaced':
      return [
        ...(before ? [{ key, news: ending(ref, key, before, events) }] : []),
        { key, news: { verb: 'added', object } },
      ]
    case 'same': {
      const isRepaired = before?.hasStaleCopy === true && (owner !== undefined || before.owner === undefined)
      if (before && (before.sequence < unsafeBelow || isRepaired))
        return [{ key, news: { verb: 'modified', object, overrides: before.sequence } }]
      const isCovered = before?.covered === true
      if (isCovered && isPending === undefined) return []
      const only = isCovered ? isPending : undefined
      // A Reconciler needs the whole object now.
      const isWanting = before?.partial === true && selection.metadataOfKind === undefined
      const { namespace, name } = object.metadata
      return [
        {
          key,
          only,
          news: isWanting ? { verb: 'modified', object } : { verb: undefined, namespace, name, object, owner },
        },
      ]
    }
  }
}

/** Returns the deletion of an object that no longer exists, or its keys if the deletion is stored already. */
function ending(ref: ResourceRef, key: string, gone: StoredState, events: EventStore): () => Promise<News> {
  const { namespace, name } = parseKey(key)
  return async () => {
    const { primary } = gone.deleted ? {} : await events.observe({ primary: { ref, namespace, name } })
    const isUntold = primary?.uid === gone.uid && primary.resourceVersion === gone.resourceVersion
    if (primary && isUntold) return { verb: 'deleted', object: primary.object, overrides: staleBeside(gone) }
    return { verb: undefined, namespace, name, object: undefined, owner: gone.owner }
  }
}

/** Returns a deletion that EVENTS has already, to be stored once more, because a stale copy is beside it. */
function deletionOf(ref: ResourceRef, kind: string, key: string, gone: StoredState): News {
  const { namespace, name } = parseKey(key)
  const { uid, resourceVersion } = gone
  const metadata = { name, ...(namespace !== undefined && { namespace }), uid, resourceVersion }
  return { verb: 'deleted', object: { apiVersion: apiVersionOf(ref), kind, metadata }, overrides: staleBeside(gone) }
}

/**
 * The sequence of a copy that has a stale copy beside it. A write that overrides it looks at all copies, and replaces the
 * stale one.
 */
const staleBeside = (before: StoredState | undefined): number | undefined =>
  before?.hasStaleCopy === true ? before.sequence : undefined

const isChange = (news: ListedChange['news']): boolean => typeof news !== 'function' && news.verb !== undefined

/**
 * The server does not begin a watch with the existing objects, or does not report when they are complete: list in
 * pages.
 */
export class NotStreamedError extends Error {
  override readonly name = 'NotStreamedError'
}

/** One event of a list: an existing object, a change of an object during the list, or the end of the list. */
type ListEvent =
  | { type: 'PRESENT' | 'MODIFIED' | 'DELETED'; object: KubeObject }
  | { type: 'COMPLETE'; resourceVersion: string }

interface ListObjectsOptions {
  selection: Selection
  /** Lists as a stream, which costs the server less than pages and arrives as it is read. Otherwise lists in pages. */
  stream: boolean
  onBytes?: (bytes: number) => void
  signal: AbortSignal
}

/**
 * The silence after which a stream counts as failed. A server ends the existing objects within a second or two after
 * the last one (Kubernetes 1.36).
 */
const SILENCE_SECONDS = 10
/** The time that a stream may take, because the reader may be slowed down. */
const STREAM_SECONDS = 1800

/**
 * Returns every object of the newest state. With `stream`, throws a NotStreamedError if the server does not support it.
 */
const listObjects = (kube: KubeClient, path: string, options: ListObjectsOptions): AsyncGenerator<ListEvent> =>
  options.stream ? streamed(kube, path, options) : paged(kube, path, options)

/** Returns the query of a watch for a selection. */
export const watchQuery = ({ labelSelector, fieldSelector, metadataOfKind }: Selection) => ({
  labelSelector,
  fieldSelector,
  accept: metadataOfKind === undefined ? undefined : METADATA_ONLY,
})

/** Returns the object with its own kind. The API server sends metadata as objects of the kind PartialObjectMetadata. */
export const ofKind = (object: KubeObject, { metadataOfKind: kind }: Selection, apiVersion: string): KubeObject =>
  kind === undefined ? object : { apiVersion, kind, metadata: object.metadata }

async function* paged(
  kube: KubeClient,
  path: string,
  { selection, signal }: ListObjectsOptions,
): AsyncGenerator<ListEvent> {
  const { labelSelector, fieldSelector, metadataOfKind } = selection
  const accept = metadataOfKind === undefined ? undefined : METADATA_ONLY_LIST
  let resourceVersion = ''
  for await (const page of kube.list(path, { labelSelector, fieldSelector, accept, signal })) {
    for (const object of page.items) yield { type: 'PRESENT', object }
    resourceVersion = page.resourceVersion
  }
  yield { type: 'COMPLETE', resourceVersion }
}

async function* streamed(kube: KubeClient, path: string, options: ListObjectsOptions): AsyncGenerator<ListEvent> {
  const { selection, signal, onBytes } = options
  const events = kube.watch<KubeObject>(path, {
    ...watchQuery(selection),
    sendInitialEvents: true,
    silenceSeconds: SILENCE_SECONDS,
    timeoutSeconds: STREAM_SECONDS,
    onBytes,
    signal,
  })
  try {
    for await (const event of events) {
      if (event.type !== 'BOOKMARK')
        yield { type: event.type === 'ADDED' ? 'PRESENT' : event.type, object: event.object }
      else if (endsInitialEvents(event))
        return yield { type: 'COMPLETE', resourceVersion: event.object.metadata.resourceVersion }
    }
  } catch (error) {
    if (isInvalid(error)) throw new NotStreamedError(`${path}: the server does not stream lists`, { cause: error })
    throw error
  }
  throw new NotStreamedError(`${path}: the server did not mark the end of the list`)
}

/** The state of one object in EVENTS. */
export interface StoredState {
  uid: string
  resourceVersion: string
  deleted: boolean
  owner: OwnerKey | undefined
  /** According to a cursor, the keys of this version were enqueued. */
  covered: boolean
  /** EVENTS has only the metadata of the object. */
  partial: boolean
  /** The sequence in EVENTS. */
  sequence: number
  /** EVENTS has another copy of the object, under an owner that it has left: a writer has died during a move. */
  hasStaleCopy: boolean
}

/**
 * The difference between a listed object and its state in EVENTS. `replaced`: EVENTS has an earlier object of this
 * name, whose deletion was not reported.
 */
export type Difference = 'added' | 'modified' | 'replaced' | 'same'

/** The position of a cursor in the API server's history and in EVENTS. */
export interface CoveredUpTo {
  resourceVersion: string
  sequence: number
}

export function known(identity: Identity, coveredUpTo: CoveredUpTo | undefined): StoredState {
  const { uid, resourceVersion, deleted, owner, referenceOnly: partial, sequence } = identity
  const covered = isCovered(identity, coveredUpTo)
  return { uid, resourceVersion, deleted, owner, partial, sequence, covered, hasStaleCopy: false }
}

/**
 * Whether the first of two copies in EVENTS is the later one, by the rule of its writers. At the same version, the
 * deletion is the later copy.
 */
function isLater(one: Pick<StoredState, 'resourceVersion' | 'deleted'>, other: StoredState): boolean {
  const order = compareVersions(one.resourceVersion, other.resourceVersion) ?? 1
  return order > 0 || (order === 0 && one.deleted)
}

/**
 * Returns the sequence of a state in EVENTS that the listed object overrides. That is a deletion of the same version,
 * after which the object is back in a selection; or a later version, if the API server was restored from a backup.
 */
export function overriddenBy(before: StoredState | undefined, { metadata }: KubeObject): number | undefined {
  if (before === undefined) return undefined
  const order = compareVersions(metadata.resourceVersion ?? '', before.resourceVersion) ?? 1
  const isBack = before.deleted && before.uid === metadata.uid && order === 0
  return isBack || order < 0 ? before.sequence : undefined
}

export function difference(
  before: StoredState | undefined,
  object: KubeObject,
  owner: OwnerKey | undefined,
): Difference {
  if (before === undefined || before.deleted) return 'added'
  const { uid, resourceVersion } = object.metadata
  if (before.uid !== uid) return overriddenBy(before, object) === undefined ? 'replaced' : 'added'
  const sameOwner = owner === undefined || ownerPart(before.owner) === ownerPart(owner)
  return before.resourceVersion === resourceVersion && sameOwner ? 'same' : 'modified'
}

/** Compares both positions, because a deletion that a list has found has a resourceVersion from long before. */
const isCovered = ({ resourceVersion, sequence }: Identity, cursor: CoveredUpTo | undefined): boolean =>
  cursor !== undefined &&
  sequence < cursor.sequence &&
  (compareVersions(resourceVersion, cursor.resourceVersion) ?? 1) <= 0

const DELETED = 1
const COVERED = 2
const PARTIAL = 4
const STALE_COPY = 8

/**
 * The objects of a resource that EVENTS has, for the duration of a list. A cluster may have a million of them. An
 * object takes about 120 bytes, and each distinct owner about 60.
 */
export class KnownObjects {
  readonly #objects = new CompactMap()
  readonly #owners = new CompactMap()

  /** Adds an object. Keeps the latest of several copies, and notes that there are others. */
  add(key: string, known: StoredState): void {
    const text = this.#objects.get(key)
    if (text === undefined) return void this.#objects.set(key, this.#packed(known))
    const before = this.#unpacked(text)
    const [kept, other] = isLater(known, before) ? [known, before] : [before, known]
    const isElsewhere = ownerPart(other.owner) !== ownerPart(kept.owner)
    const hasStaleCopy = before.hasStaleCopy || (isElsewhere && !other.deleted)
    this.#objects.set(key, this.#packed({ ...kept, hasStaleCopy }))
  }

  /** Returns the object and removes it. */
  take(key: string): StoredState | undefined {
    const text = this.#objects.get(key)
    if (text === undefined) return undefined
    this.#objects.delete(key)
    return this.#unpacked(text)
  }

  *remaining(): Generator<[key: string, known: StoredState]> {
    for (const [key, text] of this.#objects.entries()) yield [key, this.#unpacked(text)]
  }

  #packed({ uid, resourceVersion, deleted, owner, covered, partial, sequence, hasStaleCopy }: StoredState): string {
    const position = owner === undefined ? '' : this.#owners.set(ownerPart(owner), '')
    const flags =
      (deleted ? DELETED : 0) | (covered ? COVERED : 0) | (partial ? PARTIAL : 0) | (hasStaleCopy ? STALE_COPY : 0)
    return [flags, sequence, uid, resourceVersion, position].join(' ')
  }

  #unpacked(text: string): StoredState {
    const [flags, sequence, uid = '', resourceVersion = '', owner = ''] = text.split(' ')
    const has = (flag: number): boolean => (Number(flags) & flag) !== 0
    return {
      uid,
      resourceVersion,
      deleted: has(DELETED),
      covered: has(COVERED),
      partial: has(PARTIAL),
      hasStaleCopy: has(STALE_COPY),
      sequence: Number(sequence),
      owner: owner === '' ? undefined : parseOwner(this.#owners.keyAt(Number(owner))),
    }
  }
}
