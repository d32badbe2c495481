import type { KubeObject, RunLog } from '#contracts'
import type { Verb } from '#events'
import { finalizerOfReconciler, holderOf, isRefused, shardOf } from '#spec'
import type { ResourceEventHandler } from './lister.ts'
import type { ExistingReconcilers } from './orphaned-finalizers.ts'
import { parseReconciler, type Reconciler, type RefusedReconciler } from './reconcilers.ts'

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
