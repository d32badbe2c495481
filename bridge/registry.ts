import type { KubeObject, RunLog } from '#contracts'
import type { Verb } from '#events'
import { finalizerOfReconciler, isRefused } from '#spec'
import type { ResourceEventHandler } from './lister.ts'
import type { ExistingReconcilers } from './orphaned-finalizers.ts'
import { parseReconciler, type Reconciler, type RefusedReconciler } from './reconcilers.ts'

/** The Reconcilers that exist, as their watch tells them. */
export class Registry implements ResourceEventHandler {
  readonly #entries = new Map<string, Reconciler | RefusedReconciler>()
  readonly #log: RunLog
  readonly #changed: () => void
  #isComplete = false

  /** `changed` is called when they are all known for the first time, and after each change from then on. */
  constructor(log: RunLog, changed: () => void) {
    this.#log = log
    this.#changed = changed
  }

  /** False until they have been listed: before that nothing may be routed. */
  get isComplete(): boolean {
    return this.#isComplete
  }

  get served(): Reconciler[] {
    return [...this.#entries.values()].filter((entry): entry is Reconciler => !isRefused(entry))
  }

  get refused(): RefusedReconciler[] {
    return [...this.#entries.values()].filter((entry): entry is RefusedReconciler => isRefused(entry))
  }

  /** Undefined until they have been listed. */
  get existing(): ExistingReconcilers | undefined {
    if (!this.#isComplete) return undefined
    const { served } = this
    const names = new Set(this.#entries.keys())
    const finalizers = new Set([...this.#entries.values()].map(({ object }) => finalizerOfReconciler(object)))
    return { served, names, finalizers }
  }

  listed(objects: KubeObject[]): void {
    const names = new Set(objects.map(({ metadata }) => metadata.name))
    for (const name of this.#entries.keys()) if (!names.has(name)) this.#entries.delete(name)
    for (const object of objects) this.#take(object)
    this.#isComplete = true
    this.#changed()
  }

  changed(verb: Verb, object: KubeObject): void {
    if (verb === 'deleted') this.#entries.delete(object.metadata.name)
    else this.#take(object)
    if (this.#isComplete) this.#changed()
  }

  #take(object: KubeObject): void {
    const { name } = object.metadata
    const before = this.#entries.get(name)
    const entry = parseReconciler(object)
    this.#entries.set(name, entry)
    if (!isRefused(entry)) return
    if (before && isRefused(before) && before.message === entry.message) return
    const { reason, message } = entry
    this.#log.warn({ reconciler: name, reason, detail: message }, 'this Reconciler is not served')
  }
}
