import type { KubeObject } from '#contracts'
import { finalizerOf, identityOf } from '#spec'
import type { Reconciler } from './reconcilers.ts'
import { append, SelectorIndex } from './selector-index.ts'

interface Changed {
  namespace: string | undefined
  /** Undefined: any object. */
  object: KubeObject | undefined
}

/** The Reconcilers of one kind, found by namespace, labels and finalizers of an object. */
export class PrimaryIndex {
  readonly #order = new Map<Reconciler, number>()
  /** The Reconcilers by namespace. Undefined: those for all namespaces. */
  readonly #places = new Map<string | undefined, SelectorIndex<Reconciler>>()
  readonly #byFinalizer = new Map<string, Reconciler[]>()

  add(reconciler: Reconciler): void {
    const { name, spec } = reconciler
    const { namespaces, selector } = spec.for
    this.#order.set(reconciler, this.#order.size)
    for (const namespace of namespaces ?? [undefined]) this.#at(namespace).add(reconciler, selector)
    append(this.#byFinalizer, finalizerOf(identityOf(name, spec)), reconciler)
  }

  /**
   * Returns all Reconcilers that the change may concern, in the order in which they were added. Some of them may not be
   * concerned.
   */
  candidates({ namespace, object }: Changed): Reconciler[] {
    if (object === undefined) return [...this.#order.keys()]
    const places =
      namespace === undefined ? [...this.#places.values()] : [this.#places.get(undefined), this.#places.get(namespace)]
    const { finalizers = [] } = object.metadata
    const found = new Set([
      ...places.flatMap((place) => place?.candidates(object) ?? []),
      ...finalizers.flatMap((finalizer) => this.#byFinalizer.get(finalizer) ?? []),
    ])
    return [...found].sort((a, b) => (this.#order.get(a) ?? 0) - (this.#order.get(b) ?? 0))
  }

  #at(namespace: string | undefined): SelectorIndex<Reconciler> {
    const index = this.#places.get(namespace) ?? new SelectorIndex<Reconciler>()
    this.#places.set(namespace, index)
    return index
  }
}
