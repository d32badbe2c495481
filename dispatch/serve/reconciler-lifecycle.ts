import { type Invoke, type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import { type StoredEvent } from '#events'
import { isConflict, isNotFound, resourcePath } from '#kube'
import { type WorkQueue } from '#queue'
import { conditionPatch, reconciled, type StatusPatch, sameJson } from '#reconcile'
import { coverageToken, identityOf, isRefused, RECONCILERS, type ReconcilerSpec, readReconciler, shownUrl } from '#spec'
import { PRIORITY } from '../gate.ts'
import { accessTo, type FunctionAccess } from '../http/function-access.ts'
import { type HttpFunction as Callee, httpFunction } from '../http/http-function.ts'
import { isOlder, ReconcilerVersion } from '../observe/reconciler-version.ts'
import type { ReconciliationDependencies } from '../run/reconciliation.ts'
import { actingAs } from './impersonation.ts'
import { resourcesOf } from './reconcilers.ts'
import { RevisionRecord } from './revision-record.ts'
import { Serving } from './serving.ts'

/** How long runs may take to end when their reconciler is changed or removed. */
const CHANGE_GRACE_MS = 10_000
const RETRY_MS = 1000

export interface ReconcilerLifecycleDependencies extends ReconciliationDependencies {
  queue: WorkQueue
  /** Names the cluster in events. */
  cluster: string
  /** Undefined: not built in here; another dispatcher may have it. */
  invoke: Invoke | undefined
  /** Of the functions in this process. */
  revision: string | undefined
  /** How the servers of functions are reached. */
  access: readonly FunctionAccess[]
  /** Whether everything of the resource that concerns the Reconciler with this coverage token has been stored. */
  isSynced: (ref: ResourceRef, token: string, namespaces?: readonly string[]) => boolean
  /** The Reconciler that may act under the identity of this one; undefined: not known yet. */
  identityHolder: () => string | undefined
  /** EVENTS does not have the Reconciler any more. */
  absent: (known: KubeObject) => void
  log: RunLog
}

/** Of its condition. */
interface Ready {
  status: 'True' | 'False'
  reason: string
  message?: string
}

/** One Reconciler object over time: served while it can be. */
export class ReconcilerLifecycle {
  readonly #name: string
  readonly #deps: ReconcilerLifecycleDependencies
  readonly #revisions: RevisionRecord
  /** The newest that is known. */
  #event: StoredEvent | undefined
  #current: { spec: ReconcilerSpec; callee: Callee; serving: Serving } | undefined
  #work: Promise<void> = Promise.resolve()
  #announcing: Promise<unknown> = Promise.resolve()
  #announced: StatusPatch | undefined
  #retry: NodeJS.Timeout | undefined
  #stopped = false
  #said = ''
  /** Why the function is not reached, as long as the Reconciler does not show it. */
  #lost: string | undefined
  /** The version of the Reconciler that an answer of the function has disproved. */
  #disproved: string | undefined

  constructor(name: string, deps: ReconcilerLifecycleDependencies) {
    this.#name = name
    this.#deps = deps
    const failed = (err: unknown) => deps.log.warn({ err, reconciler: name }, 'revision of the function not recorded')
    this.#revisions = new RevisionRecord({ ...deps, failed })
  }

  get serving(): Serving | undefined {
    return this.#current?.serving
  }

  /** Of its Reconciler, from the feed or from a run that saw it first. */
  hear(event: StoredEvent): void {
    if (this.#event !== undefined && isOlder(event, this.#event)) return
    this.#event = event
    this.#revisions.heard(event.object)
    this.reconsider()
  }

  /** What it waits for may have come. */
  reconsider(): void {
    clearTimeout(this.#retry)
    this.#work = this.#work.then(() => this.#bringAbout()).catch((error: unknown) => this.#tryLater(error))
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopped = true
    clearTimeout(this.#retry)
    this.#work = this.#work.then(() => this.#endServing(graceMs))
    await this.#work
    await this.#announcing
  }

  async #bringAbout(): Promise<void> {
    const event = this.#event
    if (this.#stopped) return
    if (event === undefined || event.verb === 'deleted') return this.#endServing(CHANGE_GRACE_MS)
    const { object } = event
    const read = readReconciler(object)
    if (isRefused(read)) {
      await this.#endServing(CHANGE_GRACE_MS)
      this.#say('error', read, 'reconciler refused')
      return this.#announce(object, { status: 'False', ...read })
    }
    if (read.paused) return this.#pause(object)
    if (read.invoke.http === undefined && this.#deps.invoke === undefined) {
      await this.#endServing(CHANGE_GRACE_MS)
      return this.#say('info', {}, 'reconciler has no function here')
    }
    const holder = this.#deps.identityHolder()
    if (holder === undefined) return
    if (holder !== this.#name) return this.#refuseIdentity(object, identityOf(this.#name, read), holder)
    if (!sameJson(read, this.#current?.spec)) await this.#serve(event, read)
    if (this.#current === undefined) return
    // Whose calls are not answered knows better than who has made none.
    if (isShownLost(object)) this.#lost = undefined
    else this.#announce(object, this.#lost === undefined ? ready(read) : unreachable(this.#lost))
  }

  /** Whatever version comes next is served. */
  #isAbsent(): void {
    const known = this.#event?.object
    this.#event = undefined
    this.reconsider()
    if (known === undefined) return
    this.#deps.absent(known)
    this.#announcing = this.#announcing.then(() => this.#storeAbsence(known))
  }

  #isLost(why: string): void {
    this.#lost = why
    this.reconsider()
  }

  #isFound(): void {
    this.#lost = undefined
    const object = this.#event?.object
    if (object === undefined || this.#current === undefined || !isShownLost(object)) return
    if (this.#disproved === object.metadata.resourceVersion) return
    this.#disproved = object.metadata.resourceVersion
    this.#announce(object, ready(this.#current.spec))
  }

  async #serve(event: StoredEvent, spec: ReconcilerSpec): Promise<void> {
    await this.#endServing(CHANGE_GRACE_MS)
    if (this.#stopped) return
    const token = coverageToken(event.object, spec)
    const missing = resourcesOf(spec).filter((ref) => !this.#deps.isSynced(ref, token, spec.for.namespaces))
    if (missing.length > 0) {
      const waitingFor = [...new Set(missing.map(resourceName))]
      return this.#say('info', { waitingFor }, 'reconciler waits for its resources')
    }
    const { queue, log } = this.#deps
    await queue.declare(this.#name)
    const callee = this.#callee(spec)
    if (callee === undefined) return
    const reconcilerVersion = new ReconcilerVersion(event, spec, (by) =>
      by === 'absent' ? this.#isAbsent() : this.hear(by),
    )
    const ownRevision = spec.invoke.http === undefined ? this.#deps.revision : undefined
    const isRecorded = spec.revision === undefined && !spec.dryRun
    const ranBy = (revision = ownRevision) =>
      isRecorded && revision !== undefined ? this.#revisions.ran(revision, reconcilerVersion.reconciler) : undefined
    const what = reconciled(this.#name, spec, (resource) => this.#deps.events.isReferenceOnly(resource))
    const served = { ...what, invoke: callee.invoke, reconcilerVersion, ranBy }
    this.#current = { spec, callee, serving: new Serving(actingAs(this.#deps, spec), queue, served, log) }
    const { concurrency: slots, invoke } = spec
    this.#say('info', { slots, ...(invoke.http && { calls: shownUrl(invoke.http.url) }) }, 'reconciler served')
  }

  #callee(spec: ReconcilerSpec): Callee | undefined {
    const { invoke, cluster, now, random } = this.#deps
    const name = this.#name
    const url = spec.invoke.http?.url
    const heard = { lost: (why: string) => this.#isLost(why), found: () => this.#isFound() }
    const access = url === undefined ? undefined : accessTo(this.#deps.access, url, name)
    if (url !== undefined) return httpFunction({ name, spec, url, access, cluster, now, random, ...heard })
    return invoke && { invoke, close: () => undefined }
  }

  /** Keys and timers stay in the queue until the other Reconciler is gone or has another identity. */
  async #refuseIdentity(object: KubeObject, identity: string, holder: string): Promise<void> {
    await this.#endServing(CHANGE_GRACE_MS)
    this.#say('error', { identity, holder }, 'reconciler not served: an older Reconciler has its identity')
    this.#announce(object, {
      status: 'False',
      reason: 'IdentityTaken',
      message: `nothing runs: the older Reconciler ${holder} has the identity ${identity} too. If this one replaces it: kubectl delete reconciler ${holder}. If not, give this one another spec.identity`,
    })
  }

  /** Keys and timers stay where they are: in the queue. */
  async #pause(object: KubeObject): Promise<void> {
    await this.#endServing(CHANGE_GRACE_MS)
    this.#say('info', {}, 'reconciler paused')
    this.#announce(object, {
      status: 'False',
      reason: 'Paused',
      message: 'spec.paused: nothing runs until it is false',
    })
  }

  async #endServing(graceMs: number): Promise<void> {
    const ending = this.#current
    this.#current = undefined
    if (ending === undefined) return
    await ending.serving.drain(graceMs)
    ending.callee.close()
    this.#lost = undefined
    this.#say('info', {}, 'reconciler not served any more')
  }

  /** One after the other, the latest of those that wait. Nothing waits for it: a slow API server delays no change. */
  #announce(object: KubeObject, condition: Ready): void {
    const patch = conditionPatch(object, { type: 'Ready', ...condition }, this.#deps.now())
    if (patch === undefined) return
    this.#announced = patch
    this.#announcing = this.#announcing.then(() => (this.#announced === patch ? this.#store(object, patch) : undefined))
  }

  /** A conflict means that a newer version of the Reconciler is on its way here, and with it another try. */
  async #store(object: KubeObject, patch: StatusPatch): Promise<void> {
    const { kube } = this.#deps
    const path = resourcePath(RECONCILERS, undefined, object.metadata.name, 'status')
    await this.#written(async () => {
      await this.#byTurn(() => kube.patch(path, patch, 'merge', { fieldManager: 'fairlead' }))
      if (isShownLost({ ...object, status: patch.status })) this.#lost = undefined
    })
  }

  #byTurn(request: () => Promise<unknown>): Promise<unknown> {
    return this.#deps.gate.run({ reconciler: this.#name, kind: PRIORITY.status }, request)
  }

  async #written(write: () => Promise<unknown>): Promise<void> {
    await write().catch((error: unknown) => {
      if (!isConflict(error) && !isNotFound(error))
        this.#deps.log.warn({ err: error, reconciler: this.#name }, 'condition of the reconciler not written')
    })
  }

  /** Where it exists after all, that is a change, for which a bridge stores it again. */
  async #storeAbsence({ apiVersion, kind, metadata: { name, uid } }: KubeObject): Promise<void> {
    const { kube, now } = this.#deps
    const condition = { type: 'Ready', ...ABSENT, lastTransitionTime: now().toISOString() }
    const patch = { apiVersion, kind, metadata: { name, ...(uid && { uid }) }, status: { conditions: [condition] } }
    const path = resourcePath(RECONCILERS, undefined, name)
    await this.#written(() =>
      this.#byTurn(() => kube.applyStatus(path, patch, { fieldManager: 'fairlead', force: true })),
    )
  }

  /** Each state once, however often it is considered again. */
  #say(level: 'info' | 'error', fields: object, message: string): void {
    const said = JSON.stringify([fields, message])
    if (said !== this.#said) this.#deps.log[level]({ reconciler: this.#name, ...fields }, message)
    this.#said = said
  }

  #tryLater(error: unknown): void {
    this.#deps.log.warn({ err: error, reconciler: this.#name }, 'reconciler cannot be served yet')
    if (!this.#stopped) this.#retry = setTimeout(() => this.reconsider(), RETRY_MS)
  }
}

const ready = ({ dryRun }: ReconcilerSpec): Ready =>
  dryRun
    ? { status: 'True', reason: 'DryRun', message: 'spec.dryRun: runs write nothing, and log what they would' }
    : { status: 'True', reason: 'Serving' }

const ABSENT: Ready = {
  status: 'False',
  reason: 'NotInEvents',
  message: 'EVENTS does not have this Reconciler: nothing runs until a bridge has stored it again',
}

const LOST = 'FunctionUnreachable'

const unreachable = (message: string): Ready => ({ status: 'False', reason: LOST, message })

/** Of the specification as it is now: another address is another function. */
function isShownLost({ metadata, status }: Pick<KubeObject, 'metadata' | 'status'>): boolean {
  const { conditions = [] } = (status ?? {}) as { conditions?: { reason?: string; observedGeneration?: number }[] }
  return conditions.some((one) => one.reason === LOST && one.observedGeneration === metadata.generation)
}
