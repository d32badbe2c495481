import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { compareVersions, type EventStore, type ObserveQuery, type StoredCursor, type StoredEvent } from '#events'
import { sameJson } from '#reconcile'
import { coverageId, RECONCILERS, type ReconcilerSpec, readReconciler, shardOf } from '#spec'
import { SupersededError } from '../errors.ts'

type ReadCursor = EventStore['cursor']

/** What was read may be incomplete: EVENTS has another message of the Reconciler than the one that was proved. */
export class UnprovedError extends Error {
  override readonly name = 'UnprovedError'
}

/**
 * The version of a Reconciler that is served. A bridge queues keys for a new version, and the queue may deliver them
 * before the feed of this process delivers the version. So each run reads the Reconciler together with its object.
 *
 * The message of the Reconciler also shows whether EVENTS is still the stream in which the cursors covered it. EVENTS that
 * was made anew has another message, and may have few of the objects. Before a read with another message counts, the
 * cursors are read, and then everything once more (docs/decisions/0006-watch-cursors.md).
 */
export class ReconcilerVersion {
  readonly #spec: ReconcilerSpec
  readonly #superseded: (by: StoredEvent | 'absent' | 'unlisted') => void
  /** The latest version with the same specification, in the same shard. */
  #seen: StoredEvent
  /** The message that was read before the cursors. */
  #known: StoredEvent
  #proof: Promise<void> | undefined

  constructor(event: StoredEvent, spec: ReconcilerSpec, superseded: (by: StoredEvent | 'absent' | 'unlisted') => void) {
    this.#seen = event
    this.#known = event
    this.#spec = spec
    this.#superseded = superseded
  }

  /** Returns the latest version that this process has observed. */
  get reconciler(): KubeObject {
    return this.#seen.object
  }

  get news(): NonNullable<ObserveQuery['news']> {
    const { name } = this.#seen.object.metadata
    return { of: { ref: RECONCILERS, namespace: undefined, name }, known: this.#known }
  }

  /** Returns the resources of which EVENTS may lack objects, because no cursor covers the Reconciler. */
  async unlisted(cursor: ReadCursor): Promise<ResourceRef[]> {
    const id = coverageId(this.reconciler, this.#spec)
    const unlisted: ResourceRef[] = []
    for (const ref of resourcesOf(this.#spec))
      if (!(await isListed(cursor, ref, id, this.#spec.for.namespaces))) unlisted.push(ref)
    return unlisted
  }

  /**
   * Returns the proof that EVENTS has all objects for runs. It holds while EVENTS has the known message of the Reconciler.
   * Rejects with SupersededError if EVENTS may lack objects.
   */
  proof(cursor: ReadCursor): Promise<void> {
    this.#proof ??= this.#prove(cursor).catch((error: unknown) => {
      this.#proof = undefined
      throw error
    })
    return this.#proof
  }

  /** Ends the proof, because a cursor may be unlisted now, or EVENTS may have lost its last messages. */
  doubt(): void {
    this.#proof = undefined
  }

  /**
   * Throws SupersededError if the Reconciler has changed, and UnprovedError if the proof that the reader had has ended. A
   * Reconciler that EVENTS does not have was deleted, and its tombstone has expired, or it was lost. An older version is
   * not a change.
   */
  check(news: StoredEvent | 'absent' | undefined, proof: Promise<void> | undefined): void {
    if (news === 'absent') {
      this.#superseded(news)
      throw new SupersededError('EVENTS does not have the Reconciler any more, which this process learns by this run')
    }
    if (news !== undefined) this.#note(news)
    if (this.#proof !== proof) throw new UnprovedError('EVENTS has another message of the Reconciler')
  }

  #note(news: StoredEvent): void {
    if (!isOlder(news, this.#seen)) {
      if (news.verb === 'deleted' || !this.#isSame(news.object)) {
        this.#superseded(news)
        throw new SupersededError('the Reconciler was changed or removed, which this process learns by this run')
      }
      this.#seen = news
    }
    this.#known = news
    this.#proof = undefined
  }

  async #prove(cursor: ReadCursor): Promise<void> {
    const unlisted = await this.unlisted(cursor)
    if (unlisted.length === 0) return
    this.#superseded('unlisted')
    throw new SupersededError(`EVENTS may lack objects: ${unlisted.map(resourceName).join(', ')} must be listed first`)
  }

  #isSame(object: KubeObject): boolean {
    return sameJson(readReconciler(object), this.#spec) && shardOf(object) === shardOf(this.#seen.object)
  }
}

export const isOlder = (event: StoredEvent, known: StoredEvent): boolean =>
  (compareVersions(event.resourceVersion, known.resourceVersion) || event.sequence - known.sequence) < 0

/**
 * Returns the resources of which all objects have to be in EVENTS before the first run. Each run looks for the kinds that
 * its primary names.
 */
export const resourcesOf = ({ for: primary, owns, related, patches = [] }: ReconcilerSpec): ResourceRef[] => [
  primary,
  ...owns,
  ...related.filter(({ kindPath }) => kindPath === undefined),
  ...patches,
]

/** Whether the cursor covers the Reconciler. A cursor without `covers` covers every Reconciler. */
export const isCovered = (cursor: StoredCursor | undefined, id: string): boolean =>
  cursor !== undefined && (cursor.covers === undefined || cursor.covers.includes(id))

/** Whether cursors cover the Reconciler. A resource has one watch, or a watch in each of the namespaces. */
export async function isListed(
  cursor: ReadCursor,
  ref: ResourceRef,
  id: string,
  namespaces: readonly string[] = [],
): Promise<boolean> {
  if (isCovered(await cursor(ref), id)) return true
  for (const namespace of namespaces) if (!isCovered(await cursor(ref, namespace), id)) return false
  return namespaces.length > 0
}
