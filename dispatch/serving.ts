import type { RunLog } from '#contracts'
import type { Finish, Lease, Worker, WorkQueue } from '#queue'
import { messageOf } from './consequence.ts'
import { withFields } from './log.ts'
import { Run, type RunDependencies, type Served } from './run.ts'
import type { RunStep } from './steps.ts'

/** One reconciler being served by this process, until it is drained. */
export class Serving {
  readonly #deps: RunDependencies
  readonly #served: Served
  readonly #log: RunLog
  readonly #runs = new Map<string, Run>()
  readonly #worker: Worker

  constructor(deps: RunDependencies, queue: WorkQueue, served: Served, log: RunLog) {
    this.#deps = deps
    this.#served = served
    this.#log = log
    this.#worker = queue.serve({
      fn: served.name,
      slots: served.spec.concurrency,
      handler: (lease) => this.#handle(lease),
    })
  }

  noteChange(key: string): void {
    this.#runs.get(key)?.noteChange()
  }

  /** Takes no more keys; runs that do not end within the grace are handed back. */
  drain(graceMs: number): Promise<void> {
    return this.#worker.drain(graceMs)
  }

  async #handle(lease: Lease): Promise<Finish> {
    const began = performance.now()
    const { key, attempt, fired } = lease
    const log = withFields(this.#log, { reconciler: this.#served.name, key, attempt })
    const run = new Run(this.#deps, this.#served, lease, log)
    this.#runs.set(key, run)
    this.#observe(key, { step: 'started', attempt, fired, queuedMs: queuedFor(lease) })
    try {
      const finish = await run.toEnd()
      this.#observeEnd(key, finish, performance.now() - began)
      return finish
    } catch (error) {
      const ms = performance.now() - began
      this.#observe(key, { step: 'finished', result: 'fenced', ms, message: messageOf(error) })
      throw error
    } finally {
      this.#runs.delete(key)
    }
  }

  /** Said before the queue has stored it: a finish that turns out fenced is told by the queue. */
  #observeEnd(key: string, finish: Finish, ms: number): void {
    const at = finish.kind === 'requeue' ? finish.at : finish.kind === 'error' ? finish.retryAt : undefined
    if (at !== undefined)
      this.#observe(key, { step: 'armed', at, why: finish.kind === 'requeue' ? 'requeue' : 'error' })
    const message = finish.kind === 'error' || finish.kind === 'terminal' ? finish.message : undefined
    this.#observe(key, { step: 'finished', result: RESULTS[finish.kind], ms, message })
  }

  #observe(key: string, step: Unkeyed<RunStep>): void {
    this.#deps.observe({ reconciler: this.#served.name, key, ...step } as RunStep)
  }
}

const RESULTS = { done: 'success', requeue: 'requeue_after', error: 'error', terminal: 'terminal' } as const

type Unkeyed<Step> = Step extends unknown ? Omit<Step, 'reconciler' | 'key'> : never
