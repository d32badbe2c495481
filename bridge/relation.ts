import { type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import { compareVersions, type EventStore, keyOf, parseKey } from '#events'
import { retry } from '#primitives'
import { namesAt, selectionOf } from '#spec'
import { NameIndex } from './name-index.ts'
import type { Change, RelatedTo } from './routing.ts'

export interface RelationDeps {
  events: EventStore
  log: RunLog
  signal: AbortSignal
}

const RETRY_MS = 1000

/**
 * What a bridge has to remember to map related objects back to keys: which primaries name what, or which related objects
 * matched when they were last seen. Read from EVENTS once, then kept up with what this bridge publishes, so it is never
 * behind what this bridge has enqueued (docs/decisions/0014-related-objects.md).
 */
export class Relation {
  readonly to: RelatedTo
  readonly #deps: RelationDeps
  readonly #selects: (object: KubeObject) => boolean
  readonly #names = new NameIndex()
  readonly #members = new Set<string>()
  /** Keys that were seen since the reading began: what EVENTS says of them may be older. */
  #seen: Set<string> | undefined = new Set()
  /** Resolves when what EVENTS has is known. */
  readonly ready: Promise<void>

  /** `isWider`: more of the related resource is watched than what is related. */
  constructor(to: RelatedTo, isWider: boolean, deps: RelationDeps) {
    this.to = to
    this.#deps = deps
    this.#selects = selectionOf(to.related)
    this.ready = this.#remembersPrimaries || isWider ? this.#load() : Promise.resolve()
  }

  /** The keys of the primaries that name the object; undefined: all that are near enough. */
  async keysOf({ namespace, name, object }: Change): Promise<string[] | undefined> {
    await this.ready
    if (!this.#remembersPrimaries) {
      const isRelated = object === undefined || this.#selects(object) || this.#members.has(keyOf(namespace, name))
      return isRelated ? undefined : []
    }
    const isAnywhere = this.to.related.within === 'Cluster' || namespace === undefined
    const keys = this.#names.keysOf(name)
    return isAnywhere ? keys : keys.filter((key) => [namespace, undefined].includes(parseKey(key).namespace))
  }

  /** Before the keys of a primary are enqueued: a change of what it names from then on finds it. */
  learnPrimary(key: string, object: KubeObject | undefined): void {
    if (!this.#remembersPrimaries) return
    this.#seen?.add(key)
    this.#takePrimary(key, object)
  }

  /** After what an object is related to was enqueued: until then it counts as related still. */
  learnRelated(key: string, object: KubeObject | undefined): void {
    if (this.#remembersPrimaries) return
    this.#seen?.add(key)
    if (object !== undefined && this.#selects(object)) this.#members.add(key)
    else this.#members.delete(key)
  }

  get #remembersPrimaries(): boolean {
    return this.to.related.byName !== undefined
  }

  #takePrimary(key: string, object: KubeObject | undefined): void {
    const { byName = '' } = this.to.related
    this.#names.set(key, object === undefined ? [] : namesAt(object, byName))
  }

  async #load(): Promise<void> {
    const { signal, log } = this.#deps
    const ref = this.#remembersPrimaries ? this.to.reconciler.spec.for : this.to.related
    const pauseMs = (error: unknown): number => {
      log.warn({ err: error, resource: resourceName(ref) }, 'what is related to what could not be read yet')
      return RETRY_MS
    }
    await retry(() => this.#read(ref), { signal, pauseMs }).then(
      () => (this.#seen = undefined),
      // retry() gives up only with the signal.
      () => undefined,
    )
  }

  async #read(ref: ResourceRef): Promise<void> {
    const { events, signal } = this.#deps
    const cursors = new Map<string | undefined, Promise<string | undefined>>()
    const coveredUpTo = (scope: string | undefined) => {
      const known = cursors.get(scope) ?? events.cursor(ref, scope).then((cursor) => cursor?.resourceVersion)
      cursors.set(scope, known)
      return known
    }
    const done = new AbortController()
    const either = AbortSignal.any([done.signal, signal])
    for await (const { key, verb, object, resourceVersion } of events.follow({ ref }, either, () => done.abort())) {
      const name = keyOf(key.namespace, key.name)
      if (verb === 'moved' || this.#seen?.has(name)) continue
      const present = verb === 'deleted' ? undefined : object
      if (this.#remembersPrimaries) this.#takePrimary(name, present)
      else {
        const cursor = (await coveredUpTo(undefined)) ?? (await coveredUpTo(key.namespace))
        // Whoever stored it may have died before it enqueued, and what it was before nobody knows.
        const isUncertain = cursor === undefined || (compareVersions(resourceVersion, cursor) ?? 1) > 0
        if (isUncertain || (present && this.#selects(present))) this.#members.add(name)
      }
    }
    signal.throwIfAborted()
  }
}
