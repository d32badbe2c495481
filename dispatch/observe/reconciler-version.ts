import type { KubeObject } from '#contracts'
import { compareVersions, type ObserveQuery, type StoredEvent } from '#events'
import { sameJson } from '#reconcile'
import { RECONCILERS, type ReconcilerSpec, readReconciler, shardOf } from '#spec'
import { SupersededError } from '../errors.ts'

/**
 * The version of a Reconciler that is served. A bridge queues keys for a new version, and the queue may deliver them
 * before the feed of this process delivers the version. So each run reads the Reconciler together with its object.
 */
export class ReconcilerVersion {
  readonly #spec: ReconcilerSpec
  readonly #superseded: (by: StoredEvent | 'absent') => void
  /** The latest version with the same specification, in the same shard. */
  #seen: StoredEvent

  constructor(event: StoredEvent, spec: ReconcilerSpec, superseded: (by: StoredEvent | 'absent') => void) {
    this.#seen = event
    this.#spec = spec
    this.#superseded = superseded
  }

  /** Returns the latest version that this process has observed. */
  get reconciler(): KubeObject {
    return this.#seen.object
  }

  get news(): NonNullable<ObserveQuery['news']> {
    const { name } = this.#seen.object.metadata
    return { of: { ref: RECONCILERS, namespace: undefined, name }, known: this.#seen.sequence }
  }

  /**
   * Throws SupersededError if the Reconciler has changed. A Reconciler that EVENTS does not have was deleted, and its
   * tombstone has expired, or it was lost. An older version is not a change.
   */
  check(news: StoredEvent | 'absent' | undefined): void {
    if (news === undefined) return
    if (news === 'absent') {
      this.#superseded(news)
      throw new SupersededError('EVENTS does not have the Reconciler any more, which this process learns by this run')
    }
    if (isOlder(news, this.#seen)) return
    if (news.verb !== 'deleted' && this.#isSame(news.object)) {
      this.#seen = news
      return
    }
    this.#superseded(news)
    throw new SupersededError('the Reconciler was changed or removed, which this process learns by this run')
  }

  #isSame(object: KubeObject): boolean {
    return sameJson(readReconciler(object), this.#spec) && shardOf(object) === shardOf(this.#seen.object)
  }
}

export const isOlder = (event: StoredEvent, known: StoredEvent): boolean =>
  (compareVersions(event.resourceVersion, known.resourceVersion) || event.sequence - known.sequence) < 0
