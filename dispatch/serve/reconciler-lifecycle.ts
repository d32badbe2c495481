import { type Invoke, type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { StoredEvent } from '#events'
import { TokenBucket } from '#primitives'
import type { WorkQueue } from '#queue'
import { reconciled, sameJson } from '#reconcile'
import {
  coverageId,
  holderOf,
  identityOf,
  isRefused,
  type ReconcilerSpec,
  readReconciler,
  shardOf,
  shownUrl,
} from '#spec'
import { accessTo, type FunctionAccess } from '../http/function-access.ts'
import { type HttpFunction as Callee, httpFunction } from '../http/http-function.ts'
import { isOlder, ReconcilerVersion } from '../observe/reconciler-version.ts'
import type { ReconciliationDependencies } from '../run/dependencies.ts'
import { actingAs } from './impersonation.ts'
import { identityTaken, PAUSED } from './ready-condition.ts'
import { ReadyReporter } from './ready-reporter.ts'
import { ReconcilerWorker } from './reconciler-worker.ts'
import { RevisionRecord } from './revision-record.ts'

/** The time that runs have to end when their reconciler is changed or removed. */
const CHANGE_GRACE_MS = 10_000
const RETRY_MS = 1000

export interface ReconcilerLifecycleDependencies extends ReconciliationDependencies {
  queue: WorkQueue
  /** The name of the cluster in events. */
  cluster: string
  /** The shard of this process. */
  shard: string
  /** Undefined: this process does not have the function. Another dispatcher may have it. */
  invoke: Invoke | undefined
  /** The revision of the functions in this process. */
  revision: string | undefined
  /** The access to the servers of functions. */
  access: readonly FunctionAccess[]
  /** Whether EVENTS has all objects of the resource that concern the Reconciler with this coverage ID. */
  isSynced: (ref: ResourceRef, coverageId: string, namespaces?: readonly string[]) => boolean
  /** Returns the Reconciler that may act under the identity of this one. Undefined: not known yet. */
  identityHolder: () => string | undefined
  /** Called when EVENTS no longer has the Reconciler. */
  absent: (known: KubeObject) => void
  log: RunLog
}

/** Serves one Reconciler through its changes, while it can be served. */
export class ReconcilerLifecycle {
  readonly #name: string
  readonly #deps: ReconcilerLifecycleDependencies
  readonly #revisions: RevisionRecord
  readonly #ready: ReadyReporter
  /** The newest known event of the Reconciler. */
  #event: StoredEvent | undefined
  #current: { spec: ReconcilerSpec; callee: Callee; worker: ReconcilerWorker } | undefined
  #work: Promise<void> = Promise.resolve()
  #retry: NodeJS.Timeout | undefined
  #stopped = false
  #logged = ''

  constructor(name: string, deps: ReconcilerLifecycleDependencies) {
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
    this.#work = this.#work.then(() => this.#serveIfPossible()).catch((error: unknown) => this.#tryLater(error))
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#retry)
    this.#work = this.#work.then(() => this.#endServing(graceMs))
    await this.#work
    await this.#ready.flush()
  }

  async #serveIfPossible(): Promise<void> {
    const event = this.#event
    if (this.#stopped) return
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
    if (read.invoke.http === undefined && this.#deps.invoke === undefined) {
      await this.#endServing(CHANGE_GRACE_MS)
      return this.#logOnce('info', {}, 'reconciler has no function here')
    }
    const holder = this.#deps.identityHolder()
    if (holder === undefined) return
    if (holder !== this.#name) return this.#refuseIdentity(object, identityOf(this.#name, read), holder)
    if (!sameJson(read, this.#current?.spec)) await this.#serve(event, read)
    if (this.#current === undefined) return
    this.#ready.reportServed(object, read)
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
    if (this.#stopped) return
    const holder = holderOf(event.object) ?? this.#deps.shard
    if (holder !== this.#deps.shard) return this.#logOnce('info', { holder }, 'reconciler waits for its former shard')
    const id = coverageId(event.object, spec)
    const missing = resourcesOf(spec).filter((ref) => !this.#deps.isSynced(ref, id, spec.for.namespaces))
    if (missing.length > 0) {
      const waitingFor = [...new Set(missing.map(resourceName))]
      return this.#logOnce('info', { waitingFor }, 'reconciler waits for its resources')
    }
    const { queue, log } = this.#deps
    await queue.declare(this.#name)
    const callee = this.#callee(spec)
    if (callee === undefined) return
    const reconcilerVersion = new ReconcilerVersion(event, spec, (by) =>
      by === 'absent' ? this.#reconcilerAbsent() : this.reconcilerChanged(by),
    )
    const ownRevision = spec.invoke.http === undefined ? this.#deps.revision : undefined
    const isRecorded = spec.revision === undefined && !spec.dryRun
    const ranBy = (revision = ownRevision) =>
      isRecorded && revision !== undefined ? this.#revisions.ran(revision, reconcilerVersion.reconciler) : undefined
    const { events, state } = this.#deps
    const what = reconciled(this.#name, spec, (resource) => events.isReferenceOnly(resource), state.maxBytes)
    const limit = spec.external?.rateLimit
    const rateLimit = limit && new TokenBucket(limit, () => performance.now())
    const served = { ...what, invoke: callee.invoke, reconcilerVersion, ranBy, rateLimit }
    this.#current = { spec, callee, worker: new ReconcilerWorker(actingAs(this.#deps, spec), queue, served, log) }
    const { concurrency: slots, invoke } = spec
    this.#logOnce('info', { slots, ...(invoke.http && { calls: shownUrl(invoke.http.url) }) }, 'reconciler served')
  }

  #callee(spec: ReconcilerSpec): Callee | undefined {
    const { invoke, cluster, now, random } = this.#deps
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
    return invoke && { invoke, close: () => undefined }
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
  #logOnce(level: 'info' | 'error', fields: object, message: string): void {
    const line = JSON.stringify([fields, message])
    if (line !== this.#logged) this.#deps.log[level]({ reconciler: this.#name, ...fields }, message)
    this.#logged = line
  }

  #tryLater(error: unknown): void {
    this.#deps.log.warn({ err: error, reconciler: this.#name }, 'reconciler cannot be served yet')
    if (!this.#stopped) this.#retry = setTimeout(() => this.reconsider(), RETRY_MS)
  }
}

/** Returns the resources of which all objects have to be in EVENTS before the first run. */
const resourcesOf = ({ for: primary, owns, related }: ReconcilerSpec): ResourceRef[] => [primary, ...owns, ...related]
