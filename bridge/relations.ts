import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { forEachAtMost } from '#primitives'
import { FanOut } from './fan-out.ts'
import { KEYS_AT_ONCE, keysIn } from './key-batches.ts'
import { Relation, type RelationDeps } from './relation.ts'
import type { Change, RelatedTo, Routes } from './routing.ts'
import { isSameSelection } from './selection.ts'

type Enqueue = (reconciler: string, key: string, lane: 'high' | 'low') => Promise<void>

const PROMPT_AT_MOST = 64

/** Maps changes of related objects back to the keys of the primaries. */
export class Relations {
  readonly #deps: RelationDeps
  readonly #enqueue: Enqueue
  #relations = new Map<string, Relation>()
  readonly #fanOuts = new Map<string, FanOut>()

  constructor(deps: RelationDeps, enqueue: Enqueue) {
    this.#deps = deps
    this.#enqueue = enqueue
  }

  /** The Reconcilers have changed: what is new is read, what is gone is forgotten. */
  reroute(routes: Routes): void {
    const kept = new Map<string, Relation>()
    for (const to of routes.refs.flatMap((ref) => routes.relatedTo(ref))) {
      const isWider = isWatchedWider(routes, to)
      const id = `${to.reconciler.coverageId} ${to.index} ${isWider}`
      kept.set(id, this.#relations.get(id) ?? new Relation(to, isWider, this.#deps))
    }
    this.#relations = kept
  }

  /** What was enqueued may be lost: EVENTS and the cursors say again what is certain. */
  doubt(routes: Routes): void {
    this.#relations = new Map()
    this.reroute(routes)
  }

  learnPrimary(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const relation of this.#relations.values())
      if (resourceName(relation.to.reconciler.spec.for) === resourceName(ref)) relation.learnPrimary(key, object)
  }

  learnRelated(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const relation of this.#of(ref)) relation.learnRelated(key, object)
  }

  /** Resolves when every key that the change concerns is enqueued, for the Reconcilers that are wanted. */
  async enqueue(ref: ResourceRef, change: Change, lane: 'high' | 'low', isWanted: (coverageId: string) => boolean) {
    const wanted = this.#of(ref).filter(({ to }) => isWanted(to.reconciler.coverageId))
    await Promise.all(
      wanted.map(async (relation) => {
        const keys = await relation.keysOf(change)
        if (keys === undefined) await this.#everyKey(relation.to, change.namespace, lane).run()
        else await this.#all(relation.to.reconciler.name, keys, lane)
      }),
    )
  }

  /** Resolves when every key of the Reconcilers that are related to the resource and wanted is enqueued. */
  async enqueueAll(ref: ResourceRef, isWanted: (coverageId: string) => boolean): Promise<void> {
    const wanted = this.#of(ref).filter(({ to }) => isWanted(to.reconciler.coverageId))
    const each = new Map(wanted.map(({ to }) => [to.reconciler.coverageId, to]))
    await Promise.all([...each.values()].map((to) => this.#everyKey(to, undefined, 'low').run()))
  }

  #of(ref: ResourceRef): Relation[] {
    return [...this.#relations.values()].filter(({ to }) => resourceName(to.related) === resourceName(ref))
  }

  #everyKey(to: RelatedTo, changedIn: string | undefined, lane: 'high' | 'low'): FanOut {
    const { name, spec } = to.reconciler
    const namespace = to.related.within === 'Cluster' ? undefined : changedIn
    const id = [name, namespace ?? '', lane].join(' ')
    const known = this.#fanOuts.get(id)
    if (known) return known
    const fanOut = new FanOut(async () => {
      await this.#all(name, keysIn(this.#deps.events, spec.for, namespace), lane)
      this.#fanOuts.delete(id)
    })
    this.#fanOuts.set(id, fanOut)
    return fanOut
  }

  /** Beyond the first few in the low lane: one change must not keep everybody else waiting. */
  async #all(reconciler: string, keys: Iterable<string> | AsyncIterable<string>, lane: 'high' | 'low'): Promise<void> {
    await forEachAtMost(KEYS_AT_ONCE, keys, (key, index) =>
      this.#enqueue(reconciler, key, index < PROMPT_AT_MOST ? lane : 'low'),
    )
  }
}

/** A change is seen for what it is only by who knows what was before; a watch with the very selector tells by itself. */
function isWatchedWider(routes: Routes, { related }: RelatedTo): boolean {
  const { selector, fieldSelector } = related
  if (selector === undefined && fieldSelector === undefined) return false
  const { metadataOfKind: _, ...watched } = routes.selectionOf(related)
  return !isSameSelection(watched, {
    ...(selector !== undefined && { labelSelector: selector }),
    ...(fieldSelector !== undefined && { fieldSelector }),
  })
}
