import { type RunLog, withFields } from '#contracts'
import { deadKey, isKey, shownKey } from '#events'
import { BoundedMap } from '#primitives'
import { dated, type Finish, type HandBack, type Lease, type Worker, type WorkQueue } from '#queue'
import { dryRunDeps } from '../dry-run/dry-run-client.ts'
import { SupersededError } from '../errors.ts'
import type { ReconciliationDeps, ServedReconciler } from '../run/dependencies.ts'
import { Reconciliation } from '../run/reconciliation.ts'
import type { RunStep } from '../run/trail.ts'

/** The number of runs of this process whose echoes are recognised. */
const REMEMBERED_RUNS = 20_000

interface Current {
  reconciliation?: Reconciliation
  startedAt: Date
  /** The duration of the run, without storing its end. */
  ms?: number
  finish?: Finish
}

/** One reconciler that this process serves, until it is drained. */
export class ReconcilerWorker {
  readonly #deps: ReconciliationDeps
  readonly #stream: string
  readonly #served: ServedReconciler
  readonly #log: RunLog
  readonly #current = new Map<Lease, Current>()
  /** The runs of this process by owner. Undefined: the end of the run is stored. */
  readonly #leases = new BoundedMap<string, Lease | undefined>(REMEMBERED_RUNS)
  readonly #worker: Worker

  constructor(deps: ReconciliationDeps, queue: WorkQueue, served: ServedReconciler, log: RunLog) {
    this.#deps = deps
    this.#stream = queue.stream
    this.#served = served
    this.#log = log
    this.#worker = queue.serve({
      reconciler: served.name,
      slots: served.spec.concurrency,
      backoff: served.spec.backoff,
      rates: served.rates,
      handler: (lease) => this.#handle(lease),
      onFinished: (lease, result) => this.#end(lease, result),
    })
  }

  /**
   * Whether the run with this lease has stored its end, or still holds its key. If this process dies, the record of the
   * lease then queues the key again. After the loss of the lease, another run may have begun before the last write of
   * this one arrived, and only a new run repairs that.
   */
  needsNoRun(owner: string): boolean {
    return this.#leases.has(owner) && isHeld(this.#leases.get(owner))
  }

  /** Takes no more keys. Runs that do not end within the grace are handed back. */
  async drain(graceMs: number): Promise<void> {
    await this.#worker.drain(graceMs)
  }

  async #handle(lease: Lease): Promise<Finish | HandBack> {
    return isKey(lease.key) ? this.#run(lease) : this.#deadLetter(lease)
  }

  /**
   * Stores the dead letter of an invalid key. The record of the run stays until then, so that the queue repeats the run
   * of a process that died.
   */
  async #deadLetter({ reconciler, key, lane, enqueuedAt: since }: Lease): Promise<Finish> {
    const message = `key ${key} is not the namespace and name of an object`
    const { deadLetter } = this.#deps
    if (deadLetter === undefined) return { kind: 'terminal', message }
    await deadLetter(
      deadKey({ reconciler, key, lane, since, stream: this.#stream, reason: 'invalid-key', detail: message }),
    )
    return { kind: 'done' }
  }

  async #run(lease: Lease): Promise<Finish | HandBack> {
    const { key, attempt, fired, causes, enqueuedAt } = lease
    const log = withFields(this.#log, { reconciler: this.#served.name, key: shownKey(key), attempt })
    const current: Current = { startedAt: this.#deps.now() }
    this.#current.set(lease, current)
    this.#leases.set(lease.owner, lease)
    const queuedMs = this.#deps.now().getTime() - enqueuedAt.getTime()
    this.#observe(key, { step: 'started', attempt, fired, causes, queuedMs, leaseUntil: lease.until })
    const began = performance.now()
    try {
      current.reconciliation = new Reconciliation(this.#depsOf(log), this.#served, lease, log)
      current.finish = await current.reconciliation.toEnd()
      return current.finish
    } catch (error) {
      if (error instanceof SupersededError) return { kind: 'handback' }
      throw error
    } finally {
      current.ms = performance.now() - began
      this.#observe(key, { step: 'ended', leaseUntil: lease.until })
    }
  }

  #depsOf(log: RunLog): ReconciliationDeps {
    return this.#served.spec.dryRun ? dryRunDeps(this.#deps, (would) => log.info(would, 'dry run')) : this.#deps
  }

  #end(lease: Lease, stored: 'finished' | 'fenced'): void {
    const { key } = lease
    const current = this.#current.get(lease)
    if (current === undefined) return
    const { reconciliation, finish, ms = 0 } = current
    this.#current.delete(lease)
    this.#tellEnd(lease, current, stored)
    if (stored === 'finished') this.#leases.set(lease.owner, undefined)
    else this.#leases.delete(lease.owner)
    if (stored === 'fenced' || finish === undefined)
      return this.#observe(key, { step: 'finished', ...reconciliation?.span, result: 'fenced', ms, message: undefined })
    const message = 'message' in finish ? finish.message : undefined
    const shown = dated(finish, this.#deps.now())
    if (shown.kind === 'requeue') this.#observe(key, { step: 'armed', at: shown.at, why: 'requeue' })
    if (shown.kind === 'error') this.#observe(key, { step: 'armed', at: shown.retryAt, why: 'error' })
    this.#observe(key, { step: 'finished', ...reconciliation?.span, result: RESULTS[finish.kind], ms, message })
  }

  /** Reports the run of the key as lost: its process ends now. */
  lost(key: string, why: string): void {
    for (const [lease, { reconciliation, startedAt }] of this.#current) {
      if (lease.key !== key) continue
      const ms = this.#deps.now().getTime() - startedAt.getTime()
      this.#tellEnd(lease, { ...(reconciliation && { reconciliation }), startedAt, ms }, 'fenced', why)
    }
  }

  /** Reports the end of a run, except of a dry run, which changes nothing. */
  #tellEnd(
    lease: Lease,
    { reconciliation, finish, startedAt, ms = 0 }: Current,
    stored: 'finished' | 'fenced',
    lost?: string,
  ): void {
    const { ended, now } = this.#deps
    if (ended === undefined || reconciliation === undefined || this.#served.spec.dryRun) return
    const { span, revision, rounds, logged } = reconciliation
    const shown = stored === 'fenced' || finish === undefined ? undefined : dated(finish, now())
    const run = { lease, of: this.#served, startedAt, ms, finish: shown, span, revision, rounds, logged }
    ended(lost === undefined ? run : { ...run, lost })
  }

  #observe(key: string, step: Unkeyed<RunStep>): void {
    this.#deps.observe({ reconciler: this.#served.name, key, ...step })
  }
}

function isHeld(lease: Lease | undefined): boolean {
  try {
    lease?.hold()
    return true
  } catch {
    return false
  }
}

const RESULTS = { done: 'success', requeue: 'requeue_after', error: 'error', terminal: 'terminal' } as const

type Unkeyed<Step> = Step extends unknown ? Omit<Step, 'reconciler' | 'key'> : never
