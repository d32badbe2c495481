import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { forEachAtMost } from '#primitives'
import { FanOuts } from './fan-out.ts'
import { keysOf } from './key-batches.ts'
import { MemberIndex } from './member-index.ts'
import type { RecallDeps } from './recall.ts'
import type { Reconciler } from './reconcilers.ts'
import { Relation } from './relation.ts'
import { RelationIndex } from './relation-index.ts'
import { type Change, type RelatedTo, Routes } from './routing.ts'
import { isSelectedBy } from './selection.ts'

type Lane = 'high' | 'low'
type Enqueue = (reconciler: string, key: string, lane: Lane) => Promise<void>

const PROMPT_AT_MOST = 64
/** The number of keys in progress when every key of a Reconciler is enqueued. */
const KEYS_AT_ONCE = 64

/** Maps changes of related objects back to the keys of the primaries. */
export class Relations {
  readonly #deps: RecallDeps
  readonly #enqueue: Enqueue
  #relations = new Map<string, Relation>()
  /** The members of relations, by related resource. */
  #members = new Map<string, MemberIndex<Relation>>()
  #index = new RelationIndex([], this.#members)
  #routes = new Routes([])
  readonly #fanOuts = new FanOuts()

  constructor(deps: RecallDeps, enqueue: Enqueue) {
    this.#deps = deps
    this.#enqueue = enqueue
  }

  /** Follows a change of the Reconcilers: reads the state of new relations, and forgets relations that are gone. */
  reroute(routes: Routes): void {
    this.#routes = routes
    const kept = new Map<string, Relation>()
    for (const to of routes.refs.flatMap((ref) => routes.relatedTo(ref))) {
      const isWider = isWatchedWider(routes, to)
      const id = `${to.reconciler.coverageId} ${to.index} ${isWider}`
      kept.set(id, this.#relations.get(id) ?? new Relation(to, isWider, this.#membersOf(to.related), this.#deps))
    }
    for (const [id, relation] of this.#relations)
      if (relation.hasMembers && !kept.has(id)) this.#membersOf(relation.to.related).drop(relation)
    this.#relations = kept
    this.#index = new RelationIndex([...kept.values()], this.#members)
  }

  /** Reads the state again from EVENTS and the cursors, because enqueued keys may be lost. */
  doubt(routes: Routes): void {
    this.#relations = new Map()
    this.#members = new Map()
    this.reroute(routes)
  }

  learnPrimary(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const relation of this.#index.namedBy(ref)) relation.learnPrimary(key, object)
  }

  settlePrimary(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const relation of this.#index.namedBy(ref)) relation.settlePrimary(key, object)
  }

  /**
   * Whether the Reconciler's key was enqueued after the primary began to name its present related objects. Before that,
   * changes of these objects caused no runs of the key.
   */
  isSettled(ref: ResourceRef, key: string, coverageId: string): boolean {
    return this.#index.namedBy(ref, coverageId).every((relation) => relation.isSettled(key))
  }

  learnRelated(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const relation of this.#index.remembering(ref, key, object)) relation.learnRelated(key, object)
  }

  /** Resolves when every key that the change concerns is enqueued, for the Reconcilers that are wanted. */
  async enqueue(ref: ResourceRef, change: Change, lane: Lane, isWanted: (coverageId: string) => boolean) {
    const wanted = this.#index.concernedBy(ref, change).filter(({ to }) => isWanted(to.reconciler.coverageId))
    await Promise.all(
      wanted.map(async (relation) => {
        if (await relation.concerns(change)) await this.#enqueueFor(relation, change, lane)
      }),
    )
  }

  /** Resolves when every key of the wanted Reconcilers that are related to the resource is enqueued. */
  async enqueueAll(ref: ResourceRef, isWanted: (coverageId: string) => boolean): Promise<void> {
    const wanted = this.#index.of(ref).filter(({ to }) => isWanted(to.reconciler.coverageId))
    const each = new Map(wanted.map(({ to }) => [to.reconciler.coverageId, to.reconciler]))
    await Promise.all([...each.values()].map((reconciler) => this.#everyKey(reconciler, undefined, 'low')))
  }

  #membersOf(ref: ResourceRef): MemberIndex<Relation> {
    const index = this.#members.get(resourceName(ref)) ?? new MemberIndex<Relation>()
    this.#members.set(resourceName(ref), index)
    return index
  }

  #enqueueFor(relation: Relation, { namespace, name }: Change, lane: Lane): Promise<void> {
    const { related, reconciler } = relation.to
    const named = () => this.#all(reconciler.name, relation.keysOf({ namespace, name }), lane)
    if (related.byName !== undefined) return named()
    if (related.namespacePath !== undefined) return relation.fanOuts.run([namespace ?? '', lane].join(' '), named)
    return this.#everyKey(reconciler, related.within === 'Cluster' ? undefined : namespace, lane)
  }

  #everyKey(reconciler: Reconciler, namespace: string | undefined, lane: Lane): Promise<void> {
    const { name } = reconciler
    return this.#fanOuts.run([name, namespace ?? '', lane].join(' '), () =>
      this.#all(name, keysOf(this.#deps.events, this.#routes, reconciler, namespace), lane),
    )
  }

  /** Enqueues keys, those after the first few in the low lane, so that one change does not delay other keys. */
  async #all(reconciler: string, keys: Iterable<string> | AsyncIterable<string>, lane: Lane): Promise<void> {
    await forEachAtMost(KEYS_AT_ONCE, keys, (key, index) =>
      this.#enqueue(reconciler, key, index < PROMPT_AT_MOST ? lane : 'low'),
    )
  }
}

/**
 * Whether the watch includes more objects than the relation selects. Then the earlier state of an object must be
 * remembered to interpret a change. A watch with the same selector reports it by itself.
 */
function isWatchedWider(routes: Routes, { related }: RelatedTo): boolean {
  const { selector, fieldSelector } = related
  if (selector === undefined && fieldSelector === undefined) return false
  return !isSelectedBy(related, routes.selectionOf(related))
}
