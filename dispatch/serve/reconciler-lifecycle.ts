import { type Invoke, type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { StoredEvent } from '#events'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { Serial, TokenBucket, unlessAborted } from '#primitives'
import type { RunRate, WorkQueue } from '#queue'
import { isDeclared, type MetricChange, reconciled, sameJson } from '#reconcile'
import {
  coverageId,
  holderOf,
  identityOf,
  isRefused,
  RECONCILERS,
  type ReconcilerSpec,
  type Revision,
  readReconciler,
  revisionsOf,
  shardOf,
  shownUrl,
  userNameOf,
} from '#spec'
import { type Gate, PRIORITY } from '../gate.ts'
import { accessTo, type HttpFunction as Callee, type FunctionAccess, httpFunction } from '../http/http-function.ts'
import { isOlder, ReconcilerVersion, resourcesOf } from '../observe/reconciler-version.ts'
import { configOf, type ReconciliationDeps } from '../run/dependencies.ts'
import { identityTaken, PAUSED, ReadyReporter } from './ready-reporter.ts'
import { ReconcilerWorker } from './reconciler-worker.ts'

/** The time that runs have to end when their reconciler is changed or removed. */
const CHANGE_GRACE_MS = 10_000
const RETRY_MS = 1000

export interface ReconcilerLifecycleDeps extends ReconciliationDeps {
  queue: WorkQueue
  /** The name of the cluster in events. */
  cluster: string
  /** The shard of this process. */
  shard: string
  /** Returns the function of this name. Undefined: this process does not have it. Another dispatcher may have it. */
  functionOf: (name: string) => Invoke | undefined
  /** See DispatcherDeps. */
  fixForMissing?: (reconciler: string) => string | undefined
  /** The revision of the functions in this process. */
  revision: string | undefined
  /** The access to the servers of functions. */
  access: readonly FunctionAccess[]
  /** See DispatcherDeps. */
  runRates: readonly RunRate[]
  /** Whether EVENTS has all objects of the resource that concern the Reconciler with this coverage ID, as last known. */
  isSynced: (ref: ResourceRef, coverageId: string, namespaces?: readonly string[]) => boolean
  /** Returns the Reconciler that may act under the identity of this one. Undefined: not known yet. */
  identityHolder: () => string | undefined
  /** See DispatcherDeps. */
  declared: (reconciler: string, has: (metric: Pick<MetricChange, 'name' | 'labels'>) => boolean) => void
  /** Whether no other Reconciler may write the status of its objects. */
  isAlone: () => boolean
  /** Called when EVENTS no longer has the Reconciler. */
  absent: (known: KubeObject) => void
  log: RunLog
}

/** Serves one Reconciler through its changes, while it can be served. */
export class ReconcilerLifecycle {
  readonly #name: string
  readonly #deps: ReconcilerLifecycleDeps
  readonly #revisions: RevisionRecord
  readonly #ready: ReadyReporter
  /** The newest known event of the Reconciler. */
  #event: StoredEvent | undefined
  #current: { spec: ReconcilerSpec; version: ReconcilerVersion; callee: Callee; worker: ReconcilerWorker } | undefined
  /** A run has found that a resource of the served Reconciler is not listed completely. */
  #isUnlisted = false
  readonly #work = new Serial()
  #retry: NodeJS.Timeout | undefined
  readonly #stopped = new AbortController()
  #logged = ''

  constructor(name: string, deps: ReconcilerLifecycleDeps) {
    this.#name = name
    this.#deps = deps
    const failed = (err: unknown) => deps.log.warn({ err, reconciler: name }, 'revision of the function not recorded')
    this.#revisions = new RevisionRecord({ ...deps, failed })
    this.#ready = new ReadyReporter(name, deps)
  }

  get worker(): ReconcilerWorker | undefined {
    return this.#current?.worker
  }

  /** Takes a version of the Reconciler, from the feed or from a run that has read it earlier. */
  reconcilerChanged(event: StoredEvent): void {
    if (this.#event !== undefined && isOlder(event, this.#event)) return
    this.#event = event
    this.#revisions.reconcilerChanged(event.object)
    this.reconsider()
  }

  /** Serves the Reconciler if it has become possible, and stops serving it if it is no longer possible. */
  reconsider(): void {
    clearTimeout(this.#retry)
    void this.#work.run(async () => {
      await this.#serveIfPossible().catch((error: unknown) => this.#tryLater(error))
      const spec = this.#current?.spec ?? {}
      this.#deps.declared(this.#name, (metric) => isDeclared(spec, metric))
    })
  }

  /** Makes the next run look at the cursors itself: objects may be missing in EVENTS. */
  doubt(): void {
    this.#current?.version.doubt()
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopped.abort()
    clearTimeout(this.#retry)
    await this.#work.run(() => this.#endServing(graceMs))
    await this.#ready.flush()
  }

  async #serveIfPossible(): Promise<void> {
    const event = this.#event
    if (this.#isStopped) return
    if (event === undefined || event.verb === 'deleted') return this.#endServing(CHANGE_GRACE_MS)
    const { object } = event
    if (shardOf(object) !== this.#deps.shard) return this.#endServing(CHANGE_GRACE_MS)
    const read = readReconciler(object)
    if (isRefused(read)) {
      await this.#endServing(CHANGE_GRACE_MS)
      this.#logOnce('error', read, 'reconciler refused')
      return this.#ready.report(object, { status: 'False', ...read })
    }
    if (read.paused) return this.#pause(object)
    const called = this.#functionIn(read)
    if (read.invoke.http === undefined && this.#deps.functionOf(called) === undefined) {
      await this.#endServing(CHANGE_GRACE_MS)
      const fix = this.#deps.fixForMissing?.(called)
      return this.#logOnce(fix ? 'warn' : 'info', { ...(fix && { fix }) }, 'reconciler has no function here')
    }
    const holder = this.#deps.identityHolder()
    if (holder === undefined) return
    if (holder !== this.#name) return this.#refuseIdentity(object, identityOf(this.#name, read), holder)
    if (this.#isUnlisted || !sameJson(read, this.#current?.spec)) await this.#serve(event, read)
    if (this.#current === undefined) return
    this.#ready.reportServed(object, read)
  }

  #superseded(by: StoredEvent | 'absent' | 'unlisted'): void {
    if (by === 'absent') return this.#reconcilerAbsent()
    if (by !== 'unlisted') return this.reconcilerChanged(by)
    this.#isUnlisted = true
    this.reconsider()
  }

  /** Returns the resources that are not listed completely, by the cursors that EVENTS has now. */
  async #unlisted(version: ReconcilerVersion): Promise<ResourceRef[]> {
    const { events } = this.#deps
    return events.cursor ? unlessAborted(version.unlisted(events.cursor.bind(events)), this.#stopped.signal) : []
  }

  /** Forgets the known version, so that the next version is served, even an older one. */
  #reconcilerAbsent(): void {
    const known = this.#event?.object
    this.#event = undefined
    this.reconsider()
    if (known === undefined) return
    this.#deps.absent(known)
    this.#ready.reportNotInEvents(known)
  }

  async #serve(event: StoredEvent, spec: ReconcilerSpec): Promise<void> {
    await this.#endServing(CHANGE_GRACE_MS)
    this.#isUnlisted = false
    if (this.#isStopped) return
    const holder = holderOf(event.object) ?? this.#deps.shard
    if (holder !== this.#deps.shard) return this.#logOnce('info', { holder }, 'reconciler waits for its former shard')
    const id = coverageId(event.object, spec)
    const version = new ReconcilerVersion(event, spec, (by) => this.#superseded(by))
    const unsynced = resourcesOf(spec).filter((ref) => !this.#deps.isSynced(ref, id, spec.for.namespaces))
    const missing = unsynced.length > 0 ? unsynced : await this.#unlisted(version)
    if (missing.length > 0) {
      // The feed of cursors may be late, and then repeats what is known here.
      if (unsynced.length === 0) this.#retryLater()
      const waitingFor = [...new Set(missing.map(resourceName))]
      // The first line names all of them: one for each resource that arrives would tell nothing new.
      return this.#logOnce('info', { waitingFor }, 'reconciler waits for its resources', {})
    }
    const { queue, log } = this.#deps
    await queue.declare(this.#name)
    const callee = this.#callee(spec)
    if (callee === undefined) return
    const ownRevision = spec.invoke.http === undefined ? this.#deps.revision : undefined
    const isRecorded = spec.revision === undefined && !spec.dryRun
    const ranBy = (revision = ownRevision) =>
      isRecorded && revision !== undefined ? this.#revisions.ran(revision, version.reconciler) : undefined
    const { events, state } = this.#deps
    const what = reconciled(this.#name, spec, (resource) => events.isReferenceOnly(resource), state.maxBytes)
    const limit = spec.external?.rateLimit
    const rateLimit = limit && new TokenBucket(limit, () => performance.now())
    const rates = ratesOf(this.#name, spec, this.#deps.runRates)
    const deps = actingAs(this.#deps, spec)
    const config = configOf(this.#name, spec, deps)
    const { isAlone } = this.#deps
    const served = {
      ...what,
      isAlone,
      invoke: callee.invoke,
      reconcilerVersion: version,
      ranBy,
      rateLimit,
      config,
      rates,
    }
    this.#current = { spec, version, callee, worker: new ReconcilerWorker(deps, queue, served, log) }
    const { concurrency: slots, invoke } = spec
    this.#logOnce('info', { slots, ...(invoke.http && { calls: shownUrl(invoke.http.url) }) }, 'reconciler served')
  }

  #callee(spec: ReconcilerSpec): Callee | undefined {
    const { functionOf, cluster, now, random } = this.#deps
    const name = this.#name
    const url = spec.invoke.http?.url
    const handlers = {
      unreachable: (why: string) => {
        this.#ready.functionUnreachable(why)
        this.reconsider()
      },
      answered: () => this.#ready.functionAnswered(this.#event?.object, this.#current?.spec),
    }
    const access = url === undefined ? undefined : accessTo(this.#deps.access, url, name)
    if (url !== undefined) return httpFunction({ name, spec, url, access, cluster, now, random, ...handlers })
    const invoke = functionOf(this.#functionIn(spec))
    const given = spec.invoke.pull?.with
    const called: Invoke | undefined =
      given && invoke ? (input, context) => invoke(input, { ...context, with: given }) : invoke
    return called && { invoke: called, close: () => undefined }
  }

  #functionIn({ invoke }: ReconcilerSpec): string {
    return invoke.pull?.function ?? this.#name
  }

  /** Stops serving. Keys and timers stay in the queue until the other Reconciler is gone or has another identity. */
  async #refuseIdentity(object: KubeObject, identity: string, holder: string): Promise<void> {
    await this.#endServing(CHANGE_GRACE_MS)
    this.#logOnce('error', { identity, holder }, 'reconciler not served: an older Reconciler has its identity')
    this.#ready.report(object, identityTaken(identity, holder))
  }

  /** Stops serving. Keys and timers stay in the queue. */
  async #pause(object: KubeObject): Promise<void> {
    await this.#endServing(CHANGE_GRACE_MS)
    this.#logOnce('info', {}, 'reconciler paused')
    this.#ready.report(object, PAUSED)
  }

  async #endServing(graceMs: number): Promise<void> {
    const ending = this.#current
    this.#current = undefined
    if (ending === undefined) return
    await ending.worker.drain(graceMs)
    ending.callee.close()
    this.#ready.forgetFunction()
    this.#logOnce('info', {}, 'reconciler not served any more')
  }

  /** Logs a state when it begins, and not at each reconsideration. */
  #logOnce(level: 'info' | 'warn' | 'error', fields: object, message: string, state = fields): void {
    const line = JSON.stringify([state, message])
    if (line !== this.#logged) this.#deps.log[level]({ reconciler: this.#name, ...fields }, message)
    this.#logged = line
  }

  #tryLater(error: unknown): void {
    this.#deps.log.warn({ err: error, reconciler: this.#name }, 'reconciler cannot be served yet')
    this.#retryLater()
  }

  #retryLater(): void {
    if (!this.#isStopped) this.#retry = setTimeout(() => this.reconsider(), RETRY_MS)
  }

  get #isStopped(): boolean {
    return this.#stopped.signal.aborted
  }
}

/** Returns the rates of a Reconciler. Its own is asked first: permits of the others are not lost for it. */
function ratesOf(name: string, { runRate }: ReconcilerSpec, shared: readonly RunRate[]): RunRate[] {
  const ofTeams = shared.filter(({ limits }) => limits.includes(name))
  return runRate === undefined ? ofTeams : [{ name, limits: [name], ...runRate }, ...ofTeams]
}

/**
 * Returns dependencies with which a reconciler's runs use the rights of its account, for writes, and for reads of
 * objects that EVENTS has only as references. These objects are not shared with other accounts. Without an account,
 * runs have the rights of this process.
 */
function actingAs<Deps extends ReconciliationDeps>(deps: Deps, { serviceAccount }: ReconcilerSpec): Deps {
  if (serviceAccount === undefined) return deps
  const account = userNameOf(serviceAccount)
  const kube = deps.kube.as(account)
  return { ...deps, kube, references: deps.references.as(account, kube), adoptions: deps.adoptions.as(kube) }
}

export interface RevisionRecordDeps {
  kube: Pick<KubeClient, 'patch'>
  gate: Gate
  now: () => Date
  random: () => number
  failed: (error: unknown) => void
}

/** Records the revisions of a function in the status of its Reconciler. A bridge then runs every object again. */
export class RevisionRecord {
  readonly #deps: RevisionRecordDeps
  /**
   * Revisions that this process has stored. An API server whose CRD does not have the field drops them, and they must
   * not be stored again and again.
   */
  readonly #stored = new Set<string>()
  /** A revision that was not stored, because a newer version of the Reconciler was on its way. */
  #pending: string | undefined
  /** The newest version of the Reconciler that has arrived. */
  #latest: KubeObject | undefined
  #storing: Promise<void> = Promise.resolve()

  constructor(deps: RevisionRecordDeps) {
    this.#deps = deps
  }

  /**
   * Notes that a revision has run an object under this version of the Reconciler. Returns the time at which the object
   * has to run again for that.
   */
  ran(name: string, reconciler: KubeObject): Date | undefined {
    const { now, random } = this.#deps
    const known = revisionsOf(reconciler)
    const more = this.#stored.has(name) ? undefined : recorded(known, name, now())
    if (more !== undefined) this.#storing = this.#storing.then(() => this.#store(name, reconciler, more))
    return repeatedAt(known, name, { now: now(), random })
  }

  /** Notes a newer version of the Reconciler. */
  reconcilerChanged(reconciler: KubeObject): void {
    this.#latest = reconciler
    const pending = this.#pending
    this.#pending = undefined
    if (pending !== undefined) this.ran(pending, reconciler)
  }

  async #store(name: string, { metadata }: KubeObject, revisions: Revision[]): Promise<void> {
    if (this.#stored.has(name)) return
    const { kube, gate, failed } = this.#deps
    const path = resourcePath(RECONCILERS, undefined, metadata.name, 'status')
    const patch = { metadata: { resourceVersion: metadata.resourceVersion }, status: { revisions } }
    try {
      const caller = { reconciler: metadata.name, kind: PRIORITY.status }
      await gate.run(caller, () => kube.patch(path, patch, 'merge', { fieldManager: 'fairlead' }))
      this.#stored.add(name)
    } catch (error) {
      if (isConflict(error)) this.#tryWithNewer(name, metadata.resourceVersion)
      else if (!isNotFound(error)) failed(error)
    }
  }

  /** Retries with a newer version, which may have arrived during the request. Otherwise waits for it. */
  #tryWithNewer(name: string, tried: string | undefined): void {
    const latest = this.#latest
    if (latest === undefined || latest.metadata.resourceVersion === tried) this.#pending = name
    else this.ran(name, latest)
  }
}

/** Longer than most roll-outs take. */
const ROLL_OUT_MS = 600_000
/** The time over which the repeated runs are spread. */
const SPREAD_MS = 60_000
/** The number of recorded revisions: more than are active at the same time. */
const MOST_REVISIONS = 10

/**
 * Returns the record after an answer of this revision. Undefined if the record has the revision. The order of the first
 * answers stays.
 */
export function recorded(known: readonly Revision[], name: string, now: Date): Revision[] | undefined {
  if (known.some((revision) => revision.name === name)) return undefined
  return [...known, { name, at: now.toISOString() }].slice(-MOST_REVISIONS)
}

/**
 * Returns the time at which an object runs again because an older revision has run it during the roll-out of a newer
 * one: the end of the roll-out. After that, a run of an older revision is not repeated, so that two revisions that stay
 * active do not run every object without end.
 */
export function repeatedAt(
  known: readonly Revision[],
  name: string,
  { now, random }: { now: Date; random: () => number },
): Date | undefined {
  const newest = known.at(-1)
  if (newest === undefined || newest.name === name || !known.some((revision) => revision.name === name))
    return undefined
  const end = Date.parse(newest.at) + ROLL_OUT_MS
  return now.getTime() < end ? new Date(end + random() * SPREAD_MS) : undefined
}
