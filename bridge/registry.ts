import { type KubeObject, type RunLog, resourceName } from '#contracts'
import type { Verb } from '#events'
import { finalizerOfReconciler, holderOf, isRefused, shardOf } from '#spec'
import type { ExistingReconcilers } from './orphaned-finalizers.ts'
import { parseReconciler, type Reconciler, type RefusedReconciler } from './reconcilers.ts'
import { type ListedChange, NotStreamedError, type RelistPlan, relist } from './relist.ts'
import type { BridgeDeps, RelistReport } from './types.ts'

/** The Reconcilers that exist, from their watch. */
export class Registry implements ResourceEventHandler {
  readonly #entries = new Map<string, Reconciler | RefusedReconciler>()
  readonly #log: RunLog
  readonly #shard: string
  readonly #changed: () => void
  #isComplete = false

  /**
   * `shard` is the shard of this bridge. `changed` is called when all Reconcilers are known for the first time, and then
   * after each change that concerns the bridge. A change of the status does only if it hands the Reconciler over.
   */
  constructor(log: RunLog, shard: string, changed: () => void) {
    this.#log = log
    this.#shard = shard
    this.#changed = changed
  }

  /** False until the Reconcilers have been listed. Before that, changes must not be routed. */
  get isComplete(): boolean {
    return this.#isComplete
  }

  get served(): Reconciler[] {
    return this.#of(true).filter((entry): entry is Reconciler => !isRefused(entry))
  }

  get refused(): RefusedReconciler[] {
    return this.#of(true).filter((entry): entry is RefusedReconciler => isRefused(entry))
  }

  /** The Reconcilers of other shards. */
  get elsewhere(): (Reconciler | RefusedReconciler)[] {
    return this.#of(false)
  }

  get servedElsewhere(): Reconciler[] {
    return this.elsewhere.filter((entry): entry is Reconciler => !isRefused(entry))
  }

  get paused(): string[] {
    return this.served.flatMap(({ name, spec }) => (spec.paused ? [name] : []))
  }

  /** Undefined until the Reconcilers have been listed. */
  get existing(): ExistingReconcilers | undefined {
    if (!this.#isComplete) return undefined
    const { served } = this
    const names = new Set(this.#entries.keys())
    const elsewhere = new Set(this.elsewhere.map(({ name }) => name))
    const finalizers = new Set([...this.#entries.values()].map(({ object }) => finalizerOfReconciler(object)))
    return { served, names, elsewhere, finalizers }
  }

  listed(objects: KubeObject[]): void {
    const names = new Set(objects.map(({ metadata }) => metadata.name))
    for (const name of this.#entries.keys()) if (!names.has(name)) this.#entries.delete(name)
    for (const object of objects) this.#take(object)
    this.#isComplete = true
    this.#changed()
  }

  changed(verb: Verb, object: KubeObject): void {
    const isNews = verb === 'deleted' ? this.#entries.delete(object.metadata.name) : this.#take(object)
    if (this.#isComplete && isNews) this.#changed()
  }

  /** Takes a version of a Reconciler. Returns whether the change concerns the bridge. */
  #take(object: KubeObject): boolean {
    const { name } = object.metadata
    const before = this.#entries.get(name)
    const entry = parseReconciler(object)
    if (before && this.#saysTheSame(before, entry)) {
      before.object = object
      return false
    }
    this.#entries.set(name, entry)
    if (isRefused(entry) && this.#isOwn(entry) && !(before && isRefused(before) && before.message === entry.message)) {
      const { reason, message } = entry
      this.#log.warn({ reconciler: name, reason, detail: message }, 'this Reconciler is not served')
    }
    return true
  }

  #isOwn({ object }: Pick<Reconciler, 'object'>): boolean {
    return shardOf(object) === this.#shard
  }

  #of(isOwn: boolean): (Reconciler | RefusedReconciler)[] {
    return [...this.#entries.values()].filter((entry) => this.#isOwn(entry) === isOwn)
  }

  #saysTheSame(before: Reconciler | RefusedReconciler, after: Reconciler | RefusedReconciler): boolean {
    if (isRefused(before) || isRefused(after) || before.coverageId !== after.coverageId) return false
    return this.#digest(before) === this.#digest(after)
  }

  #digest({ spec, object }: Reconciler): string {
    const { uid, generation, deletionTimestamp } = object.metadata
    const holder = holderOf(object)
    // The holder counts only if another shard holds a Reconciler of this one, or this one a Reconciler of another.
    const handover = (shardOf(object) === this.#shard) === (holder === this.#shard) ? undefined : holder
    return JSON.stringify([spec, uid, generation, deletionTimestamp, shardOf(object), handover])
  }
}

/**
 * Receives the objects of a resource from the API server, each after EVENTS has stored it, or if EVENTS can never store
 * it.
 */
export interface ResourceEventHandler {
  /** Called with all existing objects. */
  listed(objects: KubeObject[]): void
  changed(verb: 'added' | 'modified' | 'deleted', object: KubeObject): void
}

interface Sink {
  /** Resolves when there is room for the next one. */
  publish(found: ListedChange): Promise<void>
  /** Resolves when all published changes are stored. */
  stored(): Promise<void>
}

type ListerDeps = Pick<BridgeDeps, 'kube' | 'events' | 'log'> & { handler?: ResourceEventHandler | undefined }

/** Lists a resource as a stream until the server turns out not to support that, and then in pages. */
export class Lister {
  readonly #deps: ListerDeps
  #canStream = true

  constructor(deps: ListerDeps) {
    this.#deps = deps
  }

  async list(plan: RelistPlan, sink: Sink): Promise<RelistReport & { resourceVersion: string; streamed: boolean }> {
    const { kube, events, handler, log } = this.#deps
    const streamed = plan.stream && this.#canStream
    const objects = new Map<string | undefined, KubeObject>()
    const note = (object: KubeObject, isGone: boolean) =>
      isGone ? objects.delete(object.metadata.uid) : objects.set(object.metadata.uid, object)
    try {
      const publish = (found: ListedChange) => sink.publish(found)
      const report = await relist({ ...plan, stream: streamed }, { kube, events, publish, listed: handler && note })
      if (handler) await sink.stored()
      handler?.listed([...objects.values()])
      return { ...report, streamed }
    } catch (error) {
      if (!(error instanceof NotStreamedError)) throw error
      this.#canStream = false
      log.info({ resource: resourceName(plan.ref), detail: error.message }, 'lists come in pages')
      return this.list(plan, sink)
    }
  }
}
