import type { KubeObject } from '#contracts'
import { keyOf } from '#events'
import { isByField, type ObjectSelector, selectionOf } from '#spec'
import { FanOuts } from './fan-out.ts'
import type { MemberIndex } from './member-index.ts'
import { Members } from './members.ts'
import { NamingPrimaries } from './naming-primaries.ts'
import type { RecallDeps } from './recall.ts'
import type { Change, RelatedTo } from './routing.ts'

/**
 * The state that maps related objects back to keys: the names in the fields of primaries, and the related objects that
 * matched when they were last observed. It is read from EVENTS once, and then updated with the changes that this bridge
 * publishes, so it is never behind the keys that this bridge has enqueued (docs/decisions/0014-related-objects.md).
 */
export class Relation {
  readonly to: RelatedTo
  /** Rounds for all primaries that name a namespace. */
  readonly fanOuts = new FanOuts()
  readonly #selects: ObjectSelector
  readonly #primaries: NamingPrimaries | undefined
  readonly #members: Members | undefined
  /** Resolves when the objects in EVENTS have been read. */
  readonly #ready: Promise<unknown>
  #isReady = false

  /**
   * `isWider`: the watch includes objects of the related resource that do not match the relation. `members`: those of
   * the resource.
   */
  constructor(to: RelatedTo, isWider: boolean, members: MemberIndex<Relation>, deps: RecallDeps) {
    const { related, reconciler } = to
    this.to = to
    this.#selects = selectionOf(related)
    this.#primaries = isByField(related) ? new NamingPrimaries(reconciler, related, deps) : undefined
    this.#members =
      isWider && related.byName === undefined ? new Members(related, members.setOf(this), deps) : undefined
    this.#ready = Promise.all([this.#primaries?.ready, this.#members?.ready]).then(() => {
      this.#isReady = true
    })
  }

  /** Whether fields of the primaries name the related objects. */
  get isByField(): boolean {
    return this.#primaries !== undefined
  }

  /** Whether changes of objects that the selector does not match may concern the relation. */
  get hasMembers(): boolean {
    return this.#members !== undefined
  }

  /** Whether its members are known. */
  get isReady(): boolean {
    return this.#isReady
  }

  /**
   * Whether the change may concern a primary. An object that is related by its name counts, whether the selector
   * matches or not.
   */
  async concerns({ namespace, name, object }: Change): Promise<boolean> {
    await this.#ready
    if (this.to.related.byName !== undefined || object === undefined || this.#selects(object)) return true
    return this.#members?.has(keyOf(namespace, name)) ?? false
  }

  /** Returns the keys of the primaries that name the object, or its namespace. */
  keysOf(object: Pick<Change, 'namespace' | 'name'>): string[] {
    return this.#primaries?.keysOf(object) ?? []
  }

  /**
   * Must be called before the keys of a primary are enqueued. From then on, a change of the objects that it names finds
   * it.
   */
  learnPrimary(key: string, object: KubeObject | undefined): void {
    this.#primaries?.learn(key, object)
  }

  /** Must be called after the keys of a primary were enqueued. */
  settlePrimary(key: string, object: KubeObject | undefined): void {
    this.#primaries?.settle(key, object)
  }

  /** Whether the key was enqueued after the primary began to name its present objects. */
  isSettled(key: string): boolean {
    return this.#primaries?.isSettled(key) ?? true
  }

  /**
   * Must be called after the keys that an object is related to were enqueued. Until then the object still counts as
   * related.
   */
  learnRelated(key: string, object: KubeObject | undefined): void {
    this.#members?.learn(key, object)
  }
}
