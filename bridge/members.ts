import type { KubeObject } from '#contracts'
import { compareVersions, type StoredEvent } from '#events'
import { type RelatedResource, selectionOf } from '#spec'
import type { MemberSet } from './member-index.ts'
import { Recall, type RecallDeps } from './recall.ts'

/** The related objects that matched the selectors of a relation when they were last observed. */
export class Members {
  readonly #selects: (object: KubeObject) => boolean
  readonly #deps: RecallDeps
  readonly #related: RelatedResource
  readonly #keys: MemberSet
  readonly #recall: Recall

  constructor(related: RelatedResource, keys: MemberSet, deps: RecallDeps) {
    this.#related = related
    this.#keys = keys
    this.#deps = deps
    this.#selects = selectionOf(related)
    this.#recall = new Recall(related, () => this.#reader(), deps)
  }

  get ready(): Promise<void> {
    return this.#recall.ready
  }

  has(key: string): boolean {
    return this.#keys.has(key)
  }

  learn(key: string, object: KubeObject | undefined): void {
    this.#recall.learned(key)
    if (object !== undefined && this.#selects(object)) this.#keys.add(key)
    else this.#keys.delete(key)
  }

  #reader(): (key: string, event: StoredEvent) => Promise<void> {
    const { events } = this.#deps
    const cursors = new Map<string | undefined, Promise<string | undefined>>()
    const coveredUpTo = (scope: string | undefined) => {
      const known = cursors.get(scope) ?? events.cursor(this.#related, scope).then((cursor) => cursor?.resourceVersion)
      cursors.set(scope, known)
      return known
    }
    return async (key, { key: { namespace }, verb, object, resourceVersion }) => {
      const cursor = (await coveredUpTo(undefined)) ?? (await coveredUpTo(namespace))
      // The process that stored the event may have stopped before it enqueued the keys. The state before the event is
      // not known, so the object counts as a member.
      const isUncertain = cursor === undefined || (compareVersions(resourceVersion, cursor) ?? 1) > 0
      if (isUncertain || (verb !== 'deleted' && this.#selects(object))) this.#keys.add(key)
    }
  }
}
