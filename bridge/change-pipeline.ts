import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { Checkpoint } from './checkpoint.ts'
import { KeyedLimiter } from './keyed-limiter.ts'
import type { Position } from './position.ts'
import type { Publication, Publisher } from './publisher.ts'
import type { ListedChange } from './relist.ts'
import type { Selection } from './selection.ts'
import type { Semaphore } from './semaphore.ts'

/** The context of all changes that one list or watch reads. */
export interface ReadContext extends Pick<Publication, 'routes' | 'lane' | 'isListed' | 'isOwed'> {
  selection: Selection
}

interface ChangePipelineDeps {
  publisher: Publisher
  log: RunLog
  now: () => Date
  /** The limit that all lists of the process share. */
  listed: Semaphore
  /** Called when one more change is safe: it is stored, and its keys are enqueued, or read by runs that have ended. */
  becameSafe: () => void
}

const UNCONFIRMED_AT_MOST = 128

/**
 * Publishes the changes of a watch concurrently, in order per key and within a limit, and notes them in the checkpoint.
 */
export class ChangePipeline {
  readonly #ref: ResourceRef
  readonly #checkpoint: Checkpoint<Position>
  readonly #deps: ChangePipelineDeps
  readonly #limiter = new KeyedLimiter(UNCONFIRMED_AT_MOST)
  /** The times at which the changes in progress began, in this order. */
  readonly #begun = new Set<{ at: Date }>()
  readonly #end = new AbortController()

  constructor(ref: ResourceRef, checkpoint: Checkpoint<Position>, deps: ChangePipelineDeps) {
    this.#ref = ref
    this.#checkpoint = checkpoint
    this.#deps = deps
  }

  /** The number of changes that were taken and are not confirmed. */
  get unconfirmed(): number {
    return this.#limiter.active
  }

  /** The time since which the oldest unconfirmed change waits. */
  get heldBackSince(): Date | undefined {
    const [oldest] = this.#begun
    return oldest?.at
  }

  /** Takes a change. Resolves when there is room for the next one. */
  async publish(
    { key, ...found }: ListedChange,
    { selection, ...reading }: ReadContext,
    position?: Position,
  ): Promise<void> {
    const { markSafe, fail } = this.#begin(key, position)
    const isPartial = selection.metadataOfKind !== undefined
    const publication = { ref: this.#ref, isPartial, ...reading, ...found }
    const begun = { at: this.#deps.now() }
    this.#begun.add(begun)
    const release = publication.lane === 'low' ? await this.#deps.listed.acquire() : undefined
    await this.#limiter.admit(key, async () => {
      try {
        const { safe } = await this.#deps.publisher.publish(publication, this.#end.signal)
        if (safe === undefined) markSafe()
        else void safe.then(markSafe, fail)
      } catch (error) {
        fail(error)
      } finally {
        release?.()
        this.#begun.delete(begun)
      }
    })
  }

  /**
   * Resolves when every listed object is stored. The cursor passes the list when all keys of these Reconcilers, by
   * coverage ID, that are related to the resource are enqueued.
   */
  async catchUp(isOwed: (coverageId: string) => boolean): Promise<void> {
    const { markSafe, fail } = this.#begin()
    await this.idle()
    void this.#deps.publisher.enqueueRelated(this.#ref, isOwed, this.#end.signal).then(markSafe, fail)
  }

  /** Resolves when every change that was taken is confirmed or given up. */
  idle(): Promise<void> {
    return this.#limiter.idle()
  }

  /** Stops waiting for confirmations. */
  giveUp(): void {
    this.#end.abort()
  }

  /** Holds the cursor back until the change is safe. */
  #begin(key?: string, position?: Position): { markSafe: () => void; fail: (error: unknown) => void } {
    const markPosition = this.#checkpoint.begin(position)
    const markSafe = () => {
      markPosition()
      this.#deps.becameSafe()
    }
    const fail = (error: unknown) => {
      // At a stop the cursor stays before this change, and the next start repeats it.
      if (this.#end.signal.aborted) return
      this.#deps.log.error({ err: error, resource: resourceName(this.#ref), key }, 'the cursor cannot pass a change')
    }
    return { markSafe, fail }
  }
}
