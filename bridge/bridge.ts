import { setTimeout } from 'node:timers'
import { type ResourceRef, resourceName } from '#contracts'
import { pause } from '#primitives'
import { holderOf, isRefused, RECONCILERS } from '#spec'
import { Admission } from './admission.ts'
import { Semaphore } from './change-pipeline.ts'
import { ConditionWriter, currentConditions, type OverlappingCondition, overlapsOf } from './conditions.ts'
import { isRefused as isWatchRefused } from './health.ts'
import { NamedKinds } from './named-kinds.ts'
import { FINALIZED, OrphanedFinalizers } from './orphaned-finalizers.ts'
import { Discovery, Publisher } from './publisher.ts'
import type { Reconciler, RefusedReconciler } from './reconcilers.ts'
import { Registry } from './registry.ts'
import { Relations } from './relations.ts'
import { Releases } from './releases.ts'
import { ResourceWatch } from './resource-watch.ts'
import { RESYNCS, Resyncs } from './resyncs.ts'
import { type CoveredAsk, type IsClusterScoped, type IsWatched, Routes } from './routing.ts'
import { Sweeper, type SweeperDeps, unlistAll } from './sweeper.ts'
import { createTriggers } from './triggers.ts'
import type { Bridge, BridgeDeps, BridgeStatus, ResourceStatus } from './types.ts'
import { StreamContinuity } from './watch-progress.ts'
import { isStarting, type State } from './watch-state.ts'

/** Returns a bridge. Several bridges may run at once: each recognises the changes that EVENTS has already. */
export const createBridge = (deps: BridgeDeps): Bridge => new WatchingBridge(deps)

interface RunningWatch extends WatchScope {
  watch: ResourceWatch
  stop: AbortController
  done: Promise<void>
}

/** The number of concurrent lists. It prevents a storm of requests at the start with hundreds of resources. */
const LISTS_AT_ONCE = 8
/** The number of listed objects in progress. The rest of the capacity is for watches, whose changes overtake lists. */
const LISTED_AT_ONCE = 32
/** Listed objects per turn of the event loop: about 0.5 ms, for which a change on the socket waits at most. */
const LISTED_PER_TURN = 4
const ASK_FOR_INCARNATION_EVERY_MS = 5000

class WatchingBridge implements Bridge {
  readonly #deps: BridgeDeps
  readonly #continuity: StreamContinuity
  readonly #discovery: Discovery
  readonly #publisher: Publisher
  readonly #named: NamedKinds
  readonly #relations: Relations
  readonly #resyncs: Resyncs
  readonly #ended = new AbortController()
  readonly #semaphores: Record<'lists' | 'listed', Semaphore>
  readonly #registry: Registry
  readonly #admission: Admission
  readonly #conditions: ConditionWriter
  readonly #releases: Releases
  readonly #sweeper: Sweeper
  readonly orphanedKeys: OrphanedFinalizers
  readonly #watches = new Map<string, RunningWatch>()
  readonly #stopping = new Set<Promise<void>>()
  readonly #rerouting = new Paced(() => this.#reroute())
  #routes = new Routes([])
  /** What Reconcilers ask for, also before it is watched. Undefined: it is not known. */
  #asked: Routes | undefined
  #isRouted = false
  #overlaps: ReadonlyMap<Reconciler, OverlappingCondition> = new Map()
  #isStopping = false
  #graceMs = 0
  /** The last known incarnation of the streams. */
  #known: string | undefined

  constructor(deps: BridgeDeps) {
    this.#deps = deps
    this.#semaphores = {
      lists: new Semaphore(deps.listsAtOnce ?? LISTS_AT_ONCE),
      listed: new Semaphore(LISTED_AT_ONCE, { perTurn: LISTED_PER_TURN }),
    }
    this.#continuity = new StreamContinuity(deps)
    deps.watermark?.onLoss(() => this.#recheck())
    this.#discovery = new Discovery(deps.kube, this.#ended.signal)
    const { events, log, random = Math.random, shard = '' } = deps
    const enqueue = (reconciler: string, key: string, lane: 'high' | 'low', cause: string) =>
      this.#publisher.enqueue(reconciler, key, lane, cause)
    const isClusterScoped = async (ref: ResourceRef) => {
      await this.#discovery.discover([ref], this.#ended.signal)
      return this.#discovery.isClusterScoped(ref)
    }
    const reading = { events, log, signal: this.#ended.signal }
    this.#named = new NamedKinds({
      ...reading,
      staysMs: deps.staysMs,
      routes: () => this.#asked,
      isRefused: (ref, scope) => this.#statusesOf(ref).some((one) => one.namespace === scope && isWatchRefused(one)),
      changed: () => this.#rerouting.poke(),
    })
    this.#relations = new Relations({ ...reading, isClusterScoped, named: this.#named }, enqueue)
    this.#resyncs = new Resyncs({
      events,
      log,
      random,
      enqueue,
      now: this.#now,
      reconcilers: () => this.#admitted,
      routes: () => this.#routes,
    })
    this.#publisher = new Publisher({ ...deps, discovery: this.#discovery, relations: this.#relations })
    this.#admission = new Admission({
      ...deps,
      shard,
      kindOf: (ref) => this.#discovery.kindOf(ref, this.#ended.signal),
      changed: () => this.#rerouting.poke(),
    })
    this.#registry = new Registry(log, shard, () => this.#review())
    this.#sweeper = new Sweeper({ ...deps, ...deps.sweep, now: this.#now, isWanted: () => this.#demand() })
    this.orphanedKeys = new OrphanedFinalizers({
      ...deps,
      existing: () => this.#registry.existing,
      changed: () => this.#rerouting.poke(),
    })
    const writing = { kube: deps.kube, log, now: this.#now }
    this.#conditions = new ConditionWriter({
      ...writing,
      conditions: () =>
        currentConditions({
          registry: this.#registry,
          admission: this.#admission,
          overlaps: this.#overlaps,
          isWatched: this.#isWatched,
          statusesOf: (ref) => this.#statusesOf(ref),
          shard,
        }),
    })
    const leaving = () =>
      this.#registry.elsewhere.map(({ object }) => object).filter((object) => holderOf(object) === shard)
    this.#releases = new Releases({ ...writing, queue: deps.queue, shard, leaving })
  }

  async run(signal: AbortSignal, graceMs: number): Promise<void> {
    this.#graceMs = graceMs
    this.#start(RECONCILERS)
    const jobs = [this.#conditions, this.#releases, this.#resyncs, this.#sweeper, this.orphanedKeys, this.#named]
    const sideJobs = jobs.map((job) => job.run(signal))
    sideJobs.push(this.#noticeRestarts(signal), this.#acceptTriggers(signal))
    await new Promise((resolve) => {
      if (signal.aborted) resolve(undefined)
      else signal.addEventListener('abort', resolve, { once: true })
    })
    this.#isStopping = true
    this.#rerouting.stop()
    this.#admission.stop()
    for (const name of this.#watches.keys()) this.#stop(name)
    await Promise.all([...this.#stopping, ...sideJobs])
    this.#ended.abort()
  }

  reconcilers(): readonly Reconciler[] | undefined {
    return this.#registry.isComplete ? this.#registry.served : undefined
  }

  async unlist(): Promise<void> {
    const isRecord = ({ ref }: Pick<WatchScope, 'ref'>) =>
      [FINALIZED, RESYNCS].some((record) => resourceName(record) === resourceName(ref))
    await unlistAll(this.#deps.events, { isRecord, now: this.#now })
  }

  status(): BridgeStatus {
    return {
      // Before the first routing it is not known which other resources have to be watched.
      resources: [...this.#watches.values()]
        .filter(({ ref }) => !this.#routes.isOnlyKept(ref))
        .map(({ watch }) => watch.status())
        .map((status) => ({ ...status, synced: status.synced && this.#isRouted })),
      refused: this.#registry.refused.map(({ name, reason, message }) => ({ name, reason, message })),
      orphans: this.orphanedKeys.status(),
      paused: this.#registry.paused,
    }
  }

  #review(): void {
    if (this.#isStopping) return
    this.#admission.review(this.#registry.served)
    this.orphanedKeys.poke()
    this.#releases.poke()
    this.#rerouting.poke()
  }

  get #admitted(): Reconciler[] {
    return this.#registry.served.filter((one) => this.#admission.isAdmitted(one))
  }

  /**
   * Watches exactly the resources that the admitted Reconcilers name, and the kinds that their primaries name. The first
   * call waits until each Reconciler has been tried, and these primaries are read: after a cursor that does not cover one
   * of them, the next start would list everything.
   */
  #reroute(): void {
    if (this.#isStopping || !(this.#isRouted || this.#admission.isDecided)) return
    this.#named.follow(this.#admitted)
    if (!(this.#isRouted || this.#named.isRead)) return
    const { events } = this.#deps
    const isReferenceOnly = (ref: ResourceRef) => events.isReferenceOnly(ref)
    this.#asked = new Routes(this.#admitted, isReferenceOnly, this.orphanedKeys.asks(), this.#isWatched)
    if (!(this.#isRouted || this.#named.isReady)) return
    this.#isRouted = true
    this.#routes = this.#asked
    this.#overlaps = overlapsOf([...this.#admitted, ...this.#registry.servedElsewhere])
    this.#relations.reroute(this.#routes)
    const before = [...this.#watches.values()]
    this.#arrange()
    for (const { watch } of before) watch.reroute()
    this.#conditions.poke()
    void this.#discoverScopes()
  }

  /** Returns the demand of all Reconcilers, including refused and unprepared ones, which a user may correct. */
  #demand(): ReturnType<SweeperDeps['isWanted']> {
    if (!this.#registry.isComplete || !this.#isRouted || !this.#named.isRead) return undefined
    const { served, refused } = this.#registry
    return demandOf(served, refused, this.#discovery.isClusterScoped, this.orphanedKeys.asks(), this.#isWatched)
  }

  readonly #isWatched: IsWatched = (reconciler, related) => this.#named.isWatched(reconciler, related)

  #arrange(): void {
    const wanted = new Map(
      [{ ref: RECONCILERS, namespace: undefined }, ...this.#routes.refs.flatMap((ref) => this.#places(ref))].map(
        (place) => [nameOf(place), place],
      ),
    )
    for (const name of this.#watches.keys()) if (!wanted.has(name)) this.#stop(name)
    for (const [name, { ref, namespace }] of wanted) if (!this.#watches.has(name)) this.#start(ref, namespace)
  }

  #places(ref: ResourceRef): WatchScope[] {
    const namespaces = this.#discovery.isClusterScoped(ref) ? undefined : this.#routes.namespacesOf(ref)
    return (namespaces ?? [undefined]).map((namespace) => ({ ref, namespace }))
  }

  /** Asks which resources are cluster-scoped: these are not watched by namespace. */
  async #discoverScopes(): Promise<void> {
    const { signal } = this.#ended
    const refs = this.#routes.refs.filter((ref) => this.#routes.namespacesOf(ref) !== undefined)
    try {
      await this.#discovery.discover(refs, signal)
    } catch (error) {
      if (!signal.aborted) this.#deps.log.warn({ err: error }, 'which resources are cluster-scoped is not known yet')
    }
    if (!signal.aborted) this.#arrange()
  }

  #start(ref: ResourceRef, namespace?: string): void {
    const name = nameOf({ ref, namespace })
    const stop = new AbortController()
    const { kube, events, log, observer, silenceSeconds, requireCluster, random = Math.random } = this.#deps
    const watch = new ResourceWatch(ref, namespace, {
      kube,
      events,
      log,
      observer,
      publisher: this.#publisher,
      routes: () => this.#routes,
      semaphores: this.#semaphores,
      silenceSeconds,
      requireCluster,
      continuity: this.#continuity,
      handler: resourceName(ref) === resourceName(RECONCILERS) ? this.#registry : undefined,
      moved: (state) => this.#noteMove(ref, state),
      synced: () => this.#conditions.poke(),
      covered: (ids) => void this.#enqueueNaming(ref, namespace, ids),
      now: this.#now,
      random,
    })
    this.#watches.set(name, { ref, namespace, watch, stop, done: watch.run(stop.signal, this.#graceMs) })
  }

  #stop(name: string): void {
    const running = this.#watches.get(name)
    if (!running) return
    this.#watches.delete(name)
    running.stop.abort()
    const done = running.done.finally(() => {
      this.#stopping.delete(done)
      this.#named.watchEnded()
    })
    this.#stopping.add(done)
  }

  /** If this fails, the runs that the dispatcher has postponed follow by their timers. */
  async #enqueueNaming(ref: ResourceRef, namespace: string | undefined, coverageIds: readonly string[]): Promise<void> {
    try {
      await this.#relations.enqueueNaming(ref, namespace, coverageIds)
    } catch (error) {
      const resource = resourceName(ref)
      this.#deps.log.warn({ err: error, resource }, 'objects that name this kind run later, by their timers')
    }
  }

  #noteMove(ref: ResourceRef, state: State): void {
    this.#conditions.poke()
    this.orphanedKeys.noteWatch(ref, state)
    if (state.phase !== 'waiting') return
    const { ms, failure, next } = state
    const resource = resourceName(ref)
    if (next.attempt === 1) this.#named.watchEnded()
    if (failure.kind === 'absent') {
      this.#discovery.forget(ref)
      this.#admission.doubt(ref)
      void this.#discoverScopes()
    }
    this.#deps.observer?.interrupted?.({ resource, failure: failure.kind })
    const isNotInstalled = failure.kind === 'absent' && resource === resourceName(RECONCILERS)
    if (isNotInstalled && next.attempt === 1)
      this.#deps.log.error(
        { resource },
        'the API server knows no Reconcilers, so there is nothing to do: run fairlead install, or up --install',
      )
    const level = isNotInstalled || isStarting(failure, next.attempt) ? 'debug' : 'warn'
    this.#deps.log[level]({ resource, reason: failure.kind, detail: failure.message, ms }, 'a watch waits to go on')
  }

  /** Begins again at the cursors, as at a start, because NATS may have lost the last messages that it confirmed. */
  #recheck(): void {
    if (this.#isStopping) return
    this.#known = undefined
    this.#publisher.forgetVersions()
    this.#relations.recheck(this.#routes)
    for (const { watch } of this.#watches.values()) watch.recheck()
  }

  /** Notices a stream whose last sequence has decreased although the connection was never interrupted. */
  async #noticeRestarts(signal: AbortSignal): Promise<void> {
    const { incarnation, log } = this.#deps
    if (!incarnation) return
    while (!signal.aborted) {
      const current = await incarnation().catch(() => this.#known)
      if (this.#known !== undefined && current !== this.#known) {
        log.warn(
          { before: this.#known, now: current },
          'NATS has lost messages: everything is listed and enqueued again',
        )
        for (const { watch } of this.#watches.values()) watch.demand('store-restarted')
      }
      this.#known = current
      await pause(ASK_FOR_INCARNATION_EVERY_MS, signal)
    }
  }

  async #acceptTriggers(signal: AbortSignal): Promise<void> {
    const { events, queue, triggers } = this.#deps
    const find = (name: string) => {
      const { isComplete, served, refused } = this.#registry
      if (!isComplete) return 'starting'
      const found = [...served, ...refused].find((one) => one.name === name)
      if (found === undefined || isRefused(found) || this.#admission.isAdmitted(found)) return found
      const failure = this.#admission.failureOf(found)
      return failure?.reason === 'KindMismatch' ? failure : 'starting'
    }
    const isListed = ({ spec, coverageId }: Reconciler, place: string | undefined) => {
      const isThere = ({ namespace = place }) => place === undefined || namespace === place
      const statuses = this.#statusesOf(spec.for).filter(isThere)
      return statuses.length > 0 && statuses.every(({ covers }) => covers.includes(coverageId))
    }
    await triggers?.(createTriggers({ events, queue, find, isListed }), signal)
  }

  #statusesOf(ref: ResourceRef): ResourceStatus[] {
    return this.#places(ref).flatMap((place) => this.#watches.get(nameOf(place))?.watch.status() ?? [])
  }

  readonly #now = (): Date => (this.#deps.now ?? (() => new Date()))()
}

/**
 * Returns whether a Reconciler asks for a resource in a scope. The scope is a namespace, or undefined for all of them.
 * The time of the last resync is stored as a cursor too; its scope is the Reconciler's name.
 */
export function demandOf(
  served: readonly Reconciler[],
  refused: readonly RefusedReconciler[],
  isClusterScoped: IsClusterScoped,
  kept: readonly CoveredAsk[] = [],
  isWatched?: IsWatched,
): (ref: ResourceRef, scope: string | undefined) => boolean {
  const routes = new Routes(served, undefined, kept, isWatched)
  const places = routes.refs.flatMap((ref) => {
    const namespaces = isClusterScoped(ref) ? undefined : routes.namespacesOf(ref)
    return (namespaces ?? [undefined]).map((namespace) => placeName(ref, namespace))
  })
  const resyncs = [...served, ...refused].map(({ name }) => placeName(RESYNCS, name))
  const wanted = new Set([placeName(RECONCILERS, undefined), ...places, ...resyncs])
  const untold = new Set(refused.flatMap(({ object }) => refsIn(object.spec)).map(resourceName))
  return (ref, scope) =>
    wanted.has(placeName(ref, scope)) ||
    untold.has(resourceName(ref)) ||
    // OrphanedFinalizers removes these records itself.
    resourceName(ref) === resourceName(FINALIZED)
}

const placeName = (ref: ResourceRef, scope = ''): string => `${resourceName(ref)} ${scope}`

/**
 * Returns everything that looks like a resource in a refused specification, because another version of Fairlead may
 * accept it.
 */
function refsIn(value: unknown): ResourceRef[] {
  if (typeof value !== 'object' || value === null) return []
  const { group, version, resource } = value as Partial<Record<keyof ResourceRef, unknown>>
  const isRef = [group, version, resource].every((part) => typeof part === 'string')
  return [...(isRef ? [value as ResourceRef] : []), ...Object.values(value).flatMap(refsIn)]
}

/** The length of the pause after the work, as a multiple of the time of the work. */
const PAUSES = 9

/** Repeats an action after each poke, at once. A long action takes a tenth of the time at most. */
class Paced {
  readonly #act: () => void
  #notBefore = 0
  #waiting: NodeJS.Timeout | undefined

  constructor(act: () => void) {
    this.#act = act
  }

  poke(): void {
    if (this.#waiting !== undefined) return
    const waitMs = this.#notBefore - performance.now()
    if (waitMs <= 0) this.#run()
    else this.#waiting = setTimeout(() => this.#run(), waitMs)
  }

  stop(): void {
    clearTimeout(this.#waiting)
  }

  #run(): void {
    this.#waiting = undefined
    const began = performance.now()
    this.#act()
    const now = performance.now()
    this.#notBefore = now + PAUSES * (now - began)
  }
}

/** The scope of one watch. */
interface WatchScope {
  ref: ResourceRef
  /** Undefined: all namespaces. */
  namespace: string | undefined
}

const nameOf = ({ ref, namespace }: WatchScope): string => [resourceName(ref), namespace ?? ''].join(' ')
