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
 * What a bridge has to remember to map related objects back to keys: which primaries name what, and which related objects
 * matched when they were last seen. Read from EVENTS once, then kept up with what this bridge publishes, so it is never
 * behind what this bridge has enqueued (docs/decisions/0014-related-objects.md).
 */
export class Relation {
  readonly to: RelatedTo
  /** Of the primaries that name a namespace. */
  readonly fanOuts = new FanOuts()
  readonly #selects: ObjectSelector
  readonly #primaries: NamingPrimaries | undefined
  readonly #members: Members | undefined
  /** Resolves when what EVENTS has is known. */
  readonly #ready: Promise<unknown>
  #isReady = false

  /** `isWider`: more of the related resource is watched than what is related. `members`: of that resource. */
  constructor(to: RelatedTo, isWider: boolean, members: MemberIndex<Relation>, deps: RecallDeps) {
    const { related, reconciler } = to
    this.to = to
    this.#selects = selectionOf(related)
    this.#primaries = isByField(related) ? new NamingPrimaries(reconciler.spec.for, related, deps) : undefined
    this.#members =
      isWider && related.byName === undefined ? new Members(related, members.setOf(this), deps) : undefined
    this.#ready = Promise.all([this.#primaries?.ready, this.#members?.ready]).then(() => {
      this.#isReady = true
    })
  }

  /** Fields of the primaries say what is related to them. */
  get isByField(): boolean {
    return this.#primaries !== undefined
  }

  /** Changes of objects that its selector does not match may concern it too. */
  get hasMembers(): boolean {
    return this.#members !== undefined
  }

  /** Which of these objects it has is known. */
  get isReady(): boolean {
    return this.#isReady
  }

  /** Whether the change may concern a primary. What is named by its name counts whether it matches or not. */
  async concerns({ namespace, name, object }: Change): Promise<boolean> {
    await this.#ready
    if (this.to.related.byName !== undefined || object === undefined || this.#selects(object)) return true
    return this.#members?.has(keyOf(namespace, name)) ?? false
  }

  /** The keys of the primaries that name the object, or its namespace. */
  keysOf(object: Pick<Change, 'namespace' | 'name'>): string[] {
    return this.#primaries?.keysOf(object) ?? []
  }

  /** Before the keys of a primary are enqueued: a change of what it names from then on finds it. */
  learnPrimary(key: string, object: KubeObject | undefined): void {
    this.#primaries?.learn(key, object)
  }

  /** After the keys of a primary were enqueued. */
  settlePrimary(key: string, object: KubeObject | undefined): void {
    this.#primaries?.settle(key, object)
  }

  /** Whether the key was enqueued since the primary names what it names. */
  isSettled(key: string): boolean {
    return this.#primaries?.isSettled(key) ?? true
  }

  /** After what an object is related to was enqueued: until then it counts as related still. */
  learnRelated(key: string, object: KubeObject | undefined): void {
    this.#members?.learn(key, object)
  }
}
