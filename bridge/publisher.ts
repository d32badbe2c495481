import { hash } from 'node:crypto'
import { type KubeObject, kindName, namespacedName, type ResourceRef, resourceName } from '#contracts'
import { keyOf, type PutOptions, type PutResult, type Verb } from '#events'
import { isNotFound, type KubeClient } from '#kube'
import { BoundedMap, doubling, endedWithin, retry, unlessAborted } from '#primitives'
import type { Announced } from '#queue'
import { PAUSED_ANNOTATION, type ReconcilerSpec } from '#spec'
import type { Pending, Relations } from './relations.ts'
import type { Change, Owner, Routes, Target } from './routing.ts'
import type { BridgeDeps } from './types.ts'

/** A change to store, or keys that must run although EVENTS has the object's version. */
export type News =
  | ({ verb: Verb; object: KubeObject } & Pick<PutOptions, 'overrides'>)
  | ({ verb: undefined } & Omit<Change, 'owners' | 'counts'> & { owner: Owner | undefined })

export interface Publication {
  ref: ResourceRef
  news: News | (() => Promise<News>)
  /** The routes at the time when the change was read. The cursor records the coverage of these routes. */
  routes: Routes
  lane: 'high' | 'low'
  /**
   * The change was found by a list: EVENTS and the cursor decide that it must run, and not the memory of this process.
   */
  isListed?: boolean
  /** The Reconcilers, by coverage ID, that must run. Left out: all of them. */
  only?: (coverageId: string) => boolean
  /**
   * The Reconcilers, by coverage ID, for which enqueueRelated() follows. A change of a related object enqueues nothing
   * for them.
   */
  isPending?: (coverageId: string) => boolean
  /** Returns why every key of such a Reconciler is enqueued, in words. Undefined: the list found it. */
  pendingBecause?: (coverageId: string) => string | undefined
  /** EVENTS receives only metadata. */
  isPartial?: boolean
}

export type PublisherDeps = Pick<BridgeDeps, 'events' | 'queue' | 'log' | 'ownWrites' | 'tracer' | 'observer'> & {
  discovery: Discovery
  relations: Relations
}

const FIRST_RETRY_MS = 100
const LAST_RETRY_MS = 5000
/**
 * The longest time for which a change of an object waits for the answer to a write of a run. The change may come from
 * another client.
 */
const ANSWER_LATE_MS = 250

/**
 * Stores single changes in EVENTS, and enqueues their keys.
 *
 *     publish            the way of one change; each step is repeated until it succeeds (#persistently)
 *       #store           EVENTS: after the write of a run that is under way (#untilWritten)
 *       #announce        WORK: the keys of the object and of its owners (routes), and of those that relate to it (relations)
 *         #isEcho        leaves out the run that has written this version
 *         #announceOne   a run of the key in this process notes the change; otherwise the key is queued
 *       #remember        relations and predicates: this state is now the one before, because all keys are safe
 *     enqueueRelated     the pending keys of a list, for all objects together
 *     forgetVersions     the queue may have lost keys: no state counts as known
 */
export class Publisher {
  readonly #deps: PublisherDeps
  #predicates = new UpdatePredicates()

  constructor(deps: PublisherDeps) {
    this.#deps = deps
  }

  /**
   * Resolves when the change is stored, and each of its keys is enqueued or known to an active run of the key in this
   * process. `safe` resolves when those runs have ended: until then the cursor must not pass the change. Undefined: the
   * change is safe already. Retries until the signal. A change that EVENTS can never store enqueues nothing, because a
   * run would not see it.
   */
  async publish(publication: Publication, signal: AbortSignal): Promise<{ safe: Promise<unknown> | undefined }> {
    const { ref } = publication
    const began = performance.now()
    const news = await this.#persistently(ref, signal, () => findOut(publication))
    const stored = await this.#persistently(ref, signal, () => this.#store(publication, news, signal))
    if (stored?.outcome === 'deadLettered') return { safe: undefined }
    const noted = await this.#persistently(ref, signal, () => this.#announce(publication, news, stored, signal))
    this.#remember(publication, news)
    if (news.verb !== undefined && stored !== undefined) {
      const { verb, object } = news
      this.#deps.observer?.published?.({ ref, verb, object, outcome: stored.outcome, ms: performance.now() - began })
    }
    return { safe: noted.length === 0 ? undefined : Promise.all(noted) }
  }

  /** Puts a key into the queue of a Reconciler. */
  async enqueue(reconciler: string, key: string, lane: 'high' | 'low', cause: string): Promise<void> {
    await this.#deps.queue.enqueue(reconciler, key, { lane, cause })
    this.#deps.observer?.enqueued?.({ reconciler, key, lane, by: 'token' })
  }

  /**
   * Forgets the versions that it has observed, because enqueued keys may be lost. The next change of each object
   * counts.
   */
  forgetVersions(): void {
    this.#predicates = new UpdatePredicates()
  }

  /**
   * Resolves when every key of these Reconcilers, by coverage ID, that is related to the resource is enqueued. Retries
   * until the signal.
   */
  enqueueRelated(ref: ResourceRef, pending: Pending, signal: AbortSignal): Promise<void> {
    return this.#persistently(ref, signal, () => this.#deps.relations.enqueueAll(ref, pending))
  }

  async #store(
    { ref, routes, isPartial }: Publication,
    news: News,
    signal: AbortSignal,
  ): Promise<PutResult | undefined> {
    const { events, ownWrites, tracer } = this.#deps
    if (news.verb === undefined) {
      events.endViews()
      return undefined
    }
    const owner = routes.ownerOf(news.object)
    const traceparent = ownWrites?.traceOf(ref, news.object) ?? tracer?.begin(news.object)
    await this.#untilWritten(ref, news.object, signal)
    return events.put(ref, news.verb, news.object, {
      ...(owner && { owner: { resource: owner.resource, name: owner.name } }),
      ...(isPartial && { referenceOnly: true }),
      lastState: news.verb === 'deleted' && routes.isFinalized(ref),
      overrides: news.overrides,
      traceparent,
      signal,
    })
  }

  /**
   * Waits until a run that is writing the object has stored its write, so that the report of the watch is recognised as
   * an echo. The watch often reports some milliseconds before the answer to the write.
   */
  async #untilWritten(ref: ResourceRef, object: KubeObject, signal: AbortSignal): Promise<void> {
    const written = this.#deps.ownWrites?.written(ref, object)
    if (written !== undefined) await endedWithin(ANSWER_LATE_MS, written, signal)
  }

  /**
   * Enqueues the keys of a change. Returns a promise for each key that only an active run has noted; it resolves when
   * the change is safe.
   */
  async #announce(
    { ref, routes, lane, isListed, only, isPending, pendingBecause }: Publication,
    news: News,
    stored: PutResult | undefined,
    signal: AbortSignal,
  ): Promise<Promise<unknown>[]> {
    const { discovery, queue, relations } = this.#deps
    const change = this.#changeOf({ ref, routes, isListed }, news, stored)
    await discovery.discover(routes.ownerRefs(ref, change.owners), signal)
    const changed = keyOfChange(change)
    relations.observePrimary(ref, changed, presentIn(news))
    const isRenamed = (coverageId: string) => !relations.isConfirmed(ref, changed, coverageId)
    const targets = routes
      .targetsOf(ref, { ...change, isRenamed }, discovery.isClusterScoped)
      .filter(({ coverageId }) => only?.(coverageId) ?? true)
      .filter((target) => isRenamed(target.coverageId) || !this.#isEcho(target, stored))
    const cause = causeOf(news, isListed)
    const causeFor = (coverageId: string) =>
      (isPending?.(coverageId) ? pendingBecause?.(coverageId) : undefined) ?? cause
    const isWanted = (coverageId: string) => (only?.(coverageId) ?? true) && !(isPending?.(coverageId) ?? false)
    const [announced] = await unlessAborted(
      Promise.all([
        Promise.all(
          targets.map((target) => this.#announceOne(target, { lane, cause: causeFor(target.coverageId) }, news)),
        ),
        relations.enqueue(ref, change, { lane, cause }, isWanted),
      ]),
      signal,
    )
    return announced
      .filter(({ noted }) => noted)
      .map(async ({ reconciler, key, coverageId, safe }) => {
        const cause = causeFor(coverageId)
        const by = await safe.catch(() =>
          this.#persistently(ref, signal, () => queue.announce(reconciler, key, { lane, cause }).safe),
        )
        if (by !== 'run') this.#deps.observer?.enqueued?.({ reconciler, key, lane, by, ...objectOf(news) })
      })
  }

  async #announceOne(
    { reconciler, key, coverageId }: Target,
    as: { lane: Publication['lane']; cause: string },
    news: News,
  ): Promise<Announced & Target> {
    const { queue, observer } = this.#deps
    const { lane } = as
    const announced = queue.announce(reconciler, key, as)
    const by = announced.noted ? 'run' : await announced.safe
    observer?.enqueued?.({ reconciler, key, lane, by, ...objectOf(news) })
    return { reconciler, key, coverageId, ...announced }
  }

  #changeOf(
    { ref, routes, isListed }: Pick<Publication, 'ref' | 'routes' | 'isListed'>,
    news: News,
    stored: PutResult | undefined,
  ): Change {
    if (news.verb === undefined) return { ...news, owners: news.owner ? [news.owner] : [] }
    const { object, verb } = news
    const { namespace, name } = object.metadata
    const owner = routes.ownerOf(object)
    const owners = [...(owner ? [owner] : []), ...(stored?.formerOwners ?? [])]
    const change = { namespace, name, object, owners }
    if (verb !== 'modified' || isListed) return change
    const id = idOf(ref, keyOfChange(change))
    return { ...change, counts: (predicates) => this.#predicates.hasChanged(id, object, predicates) }
  }

  /**
   * Remembers the change after everything is enqueued, because until then the earlier state still counts. A change that
   * EVENTS had already may be new to this process.
   */
  #remember({ ref, routes }: Publication, news: News): void {
    const { namespace, name } = news.verb === undefined ? news : news.object.metadata
    const present = presentIn(news)
    const key = keyOf(namespace, name)
    this.#deps.relations.confirmPrimary(ref, key, present)
    this.#deps.relations.observeRelated(ref, key, present)
    this.#predicates.remember(idOf(ref, key), routes.isCompared(ref) ? present : undefined)
  }

  /**
   * Whether a run of the key has put this version into EVENTS, or a later one because it has written the object more
   * than once.
   */
  #isEcho({ reconciler, key }: Target, stored: PutResult | undefined): boolean {
    if (stored === undefined || stored.outcome === 'stored' || stored.origin === undefined) return false
    const { ownWrites, observer } = this.#deps
    const isEcho = ownWrites?.needsNoRun({ reconciler, key, origin: stored.origin }) ?? false
    if (isEcho) observer?.dropped?.({ reconciler, key })
    return isEcho
  }

  #persistently<T>(ref: ResourceRef, signal: AbortSignal, act: () => Promise<T>): Promise<T> {
    const nextDelay = doubling(FIRST_RETRY_MS, LAST_RETRY_MS)
    const pauseMs = (error: unknown): number => {
      const delayMs = nextDelay()
      this.#deps.log.warn(
        { err: error, resource: resourceName(ref), delayMs },
        'a change could not be published; its watch is held back until it is',
      )
      return delayMs
    }
    return retry(act, { signal, pauseMs })
  }
}

const findOut = async ({ news }: Publication): Promise<News> => (typeof news === 'function' ? news() : news)

const presentIn = ({ verb, object }: News): KubeObject | undefined => (verb === 'deleted' ? undefined : object)

const objectOf = ({ object }: News): { object?: KubeObject } => (object === undefined ? {} : { object })

/** Names the object and its version. A list also finds objects that have not changed. */
function causeOf({ verb, object }: News, isListed = false): string {
  if (object === undefined) return LISTED
  const { kind, apiVersion, metadata } = object
  const version = `${kindName(kind, apiVersion)} ${namespacedName(metadata)}@${metadata.resourceVersion ?? '?'}`
  const isFound = verb === undefined || (isListed && verb === 'modified')
  return `${isFound ? LISTED : verb} ${version}`
}

const LISTED = 'listed'

const keyOfChange = ({ namespace, name }: Pick<Change, 'namespace' | 'name'>): string => keyOf(namespace, name)

/** Returns one string for a resource and a key, which takes less memory than an object. */
const idOf = (ref: ResourceRef, key: string): string => [resourceName(ref), key].join(' ')

type Predicate = NonNullable<ReconcilerSpec['changes']>[number]

/** The number of remembered objects. Each takes one string. */
const REMEMBERED_AT_MOST = 65_536

/**
 * Decides what an update has changed, if this process has observed the version before it. An unknown version counts as
 * changed: an unnecessary run does no harm, but a missing one would.
 */
export class UpdatePredicates {
  readonly #known = new BoundedMap<string, string>(REMEMBERED_AT_MOST)

  /** Whether an update passes one of these predicates of spec.changes. */
  hasChanged(id: string, object: KubeObject, predicates: readonly Predicate[]): boolean {
    const known = this.#known.get(id)
    if (known === undefined) return true
    const before = unpacked(known)
    const now = comparedOf(object)
    return (
      ALWAYS.some((field) => before[field] !== now[field]) ||
      predicates.some((predicate) => isUnknown(predicate, object) || before[FIELD[predicate]] !== now[FIELD[predicate]])
    )
  }

  /** Remembers a version after all its keys were enqueued. */
  remember(id: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#known.delete(id)
    else this.#known.set(id, packed(comparedOf(object)))
  }
}

/**
 * An object without a generation, such as a ConfigMap, Secret or Namespace, may have changed its content in any update.
 */
const isUnknown = (predicate: Predicate, { metadata }: KubeObject): boolean =>
  predicate === 'Generation' && metadata.generation === undefined

/** The fields of an object that are compared, as texts without a blank. */
interface Compared {
  uid: string
  deletion: string
  generation: string
  labels: string
  annotations: string
  pause: string
}

const FIELD: Record<Predicate, keyof Compared> = {
  Generation: 'generation',
  Labels: 'labels',
  Annotations: 'annotations',
}
/**
 * Fields that count for every predicate: another object of the name, the beginning of a deletion, and the beginning or
 * end of a pause.
 */
const ALWAYS: readonly (keyof Compared)[] = ['uid', 'deletion', 'pause']

function comparedOf({ metadata }: KubeObject): Compared {
  const { uid = '', deletionTimestamp = '', generation = '', labels, annotations } = metadata
  return {
    uid,
    deletion: deletionTimestamp,
    generation: String(generation),
    labels: digestOf(labels),
    annotations: digestOf(annotations),
    pause: annotations?.[PAUSED_ANNOTATION] === 'true' ? 'paused' : '',
  }
}

const packed = ({ uid, deletion, generation, labels, annotations, pause }: Compared): string =>
  [uid, deletion, generation, labels, annotations, pause].join(' ')

function unpacked(text: string): Compared {
  const [uid = '', deletion = '', generation = '', labels = '', annotations = '', pause = ''] = text.split(' ')
  return { uid, deletion, generation, labels, annotations, pause }
}

/** Returns a digest of a map. The API server sends its entries in order. */
const digestOf = (map: object | undefined): string => hash('sha1', JSON.stringify(map ?? {}), 'base64url').slice(0, 12)

interface Served {
  name: string
  kind: string
  namespaced: boolean
}

/** The kind and the scope of resources, from the discovery of the API server, which is asked once for each. */
export class Discovery {
  readonly #kube: KubeClient
  readonly #ended: AbortSignal | undefined
  readonly #served = new Map<string, Omit<Served, 'name'>>()
  /** The requests under way, by path. */
  readonly #asked = new Map<string, Promise<Served[]>>()

  constructor(kube: KubeClient, ended?: AbortSignal) {
    this.#kube = kube
    this.#ended = ended
  }

  /** Answers from the results of discover(). A resource that is not served counts as namespaced. */
  isClusterScoped = (ref: ResourceRef): boolean => this.#served.get(resourceName(ref))?.namespaced === false

  /** Resolves with undefined if the resource is not served. */
  async kindOf(ref: ResourceRef, signal: AbortSignal): Promise<string | undefined> {
    await this.discover([ref], signal)
    return this.#served.get(resourceName(ref))?.kind
  }

  /** Sends one request for each unknown API group and version. */
  async discover(refs: readonly ResourceRef[], signal: AbortSignal): Promise<void> {
    const unknown = refs.filter((ref) => !this.#served.has(resourceName(ref)))
    for (const [path, asked] of Map.groupBy(unknown, discoveryPath)) {
      const served = await unlessAborted(this.#ask(path), signal)
      for (const ref of asked) {
        const found = served.find(({ name }) => name === ref.resource)
        if (found) this.#served.set(resourceName(ref), { kind: found.kind, namespaced: found.namespaced })
      }
    }
  }

  /** Forgets a resource: a definition that was removed may be installed again with another scope or kind. */
  forget(ref: ResourceRef): void {
    this.#served.delete(resourceName(ref))
  }

  #ask(path: string): Promise<Served[]> {
    const under = this.#asked.get(path) ?? this.#request(path).finally(() => this.#asked.delete(path))
    this.#asked.set(path, under)
    return under
  }

  async #request(path: string): Promise<Served[]> {
    try {
      const { resources = [] } = await this.#kube.get<{ resources?: Served[] }>(path, { signal: this.#ended })
      return resources
    } catch (error) {
      if (isNotFound(error)) return []
      throw error
    }
  }
}

const discoveryPath = ({ group, version }: ResourceRef): string =>
  group === '' ? `/api/${version}` : `/apis/${group}/${version}`
