import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import { KeyedSerial } from '#primitives'
import type { Publication, Publisher } from './publisher.ts'
import type { Selection } from './reconcilers.ts'
import type { Pending } from './relations.ts'
import type { ListedChange } from './relist.ts'
import type { Checkpoint, Position } from './watch-progress.ts'

/** The context of all changes that one list or watch reads. */
export interface ReadContext
  extends Pick<Publication, 'routes' | 'lane' | 'isListed' | 'isPending' | 'pendingBecause'> {
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
    const { confirm, fail } = this.#begin(key, position)
    const isPartial = selection.metadataOfKind !== undefined
    const publication = { ref: this.#ref, isPartial, ...reading, ...found }
    const begun = { at: this.#deps.now() }
    this.#begun.add(begun)
    const release = publication.lane === 'low' ? await this.#deps.listed.acquire() : undefined
    await this.#limiter.admit(key, async () => {
      try {
        const { safe } = await this.#deps.publisher.publish(publication, this.#end.signal)
        if (safe === undefined) confirm()
        else void safe.then(confirm, fail)
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
  async catchUp(pending: Pending): Promise<void> {
    const { confirm, fail } = this.#begin()
    await this.idle()
    void this.#deps.publisher.enqueueRelated(this.#ref, pending, this.#end.signal).then(confirm, fail)
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
  #begin(key?: string, position?: Position): { confirm: () => void; fail: (error: unknown) => void } {
    const reach = this.#checkpoint.begin(position)
    const confirm = () => {
      reach()
      this.#deps.becameSafe()
    }
    const fail = (error: unknown) => {
      // At a stop the cursor stays before this change, and the next start repeats it.
      if (this.#end.signal.aborted) return
      this.#deps.log.error({ err: error, resource: resourceName(this.#ref), key }, 'the cursor cannot pass a change')
    }
    return { confirm, fail }
  }
}

/**
 * Runs tasks concurrently, but those of one key one after the other, in order. At most `limit` tasks are admitted at
 * once, including those that wait, so that the caller is slowed down. Tasks must not reject.
 */
export class KeyedLimiter {
  readonly #permits: Semaphore
  readonly #tasks = new KeyedSerial()

  constructor(limit: number) {
    this.#permits = new Semaphore(limit)
  }

  /** The number of tasks that are admitted and not finished. */
  get active(): number {
    return this.#permits.held
  }

  /** Resolves when the task has been admitted. The task may end later. */
  async admit(key: string, task: () => Promise<void>): Promise<void> {
    const release = await this.#permits.acquire()
    void this.#tasks.run(key, task).then(release)
  }

  /** Resolves when every task that was admitted before the call has ended. */
  idle(): Promise<void> {
    return this.#tasks.idle()
  }
}

interface SemaphoreOptions {
  /**
   * The number of holders that are admitted in one turn of the event loop. Default: as many as there are free permits.
   */
  perTurn?: number
}

/** Limits how many tasks run at once. Later callers wait in order. */
export class Semaphore {
  readonly #perTurn: number
  readonly #waiting: (() => void)[] = []
  readonly #permits: number
  #held = 0
  #admittedThisTurn = 0

  constructor(permits: number, { perTurn = Number.POSITIVE_INFINITY }: SemaphoreOptions = {}) {
    this.#permits = permits
    this.#perTurn = perTurn
  }

  get held(): number {
    return this.#held
  }

  /** Resolves with a function that releases the permit. */
  async acquire(): Promise<() => void> {
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve)
      this.#admit()
    })
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#held--
      this.#admit()
    }
  }

  #admit(): void {
    while (this.#held < this.#permits && this.#admittedThisTurn < this.#perTurn) {
      const next = this.#waiting.shift()
      if (!next) return
      if (this.#admittedThisTurn++ === 0) setImmediate(() => this.#nextTurn())
      this.#held++
      next()
    }
  }

  #nextTurn(): void {
    this.#admittedThisTurn = 0
    this.#admit()
  }
}
