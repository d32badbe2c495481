import { setTimeout as sleep } from 'node:timers/promises'
import { type Invoke, type RunInput, type RunLog } from '#contracts'
import { type DeadMessage, parseKey, type Span, spanAfter, traceparentOf } from '#events'
import { type Due, dueDate, type Finish, type Lease } from '#queue'
import {
  type Answer,
  type Ask,
  fieldManagerOf,
  type Note,
  next,
  type Observed,
  type Reconciled,
  RunTimeoutError,
  type SettledWrites,
  start,
} from '#reconcile'
import type { EventRecorder } from '../apply/event-recorder.ts'
import { originOf } from '../apply/write-origin.ts'
import { type Writers, type WritersDependencies, writersOf } from '../apply/writers.ts'
import { failedBy, SupersededError } from '../errors.ts'
import { failureFields, withFields } from '../log.ts'
import type { Adoptions } from '../observe/adoptions.ts'
import { type Observation, observePrimary } from '../observe/observe.ts'
import type { ReconcilerVersion } from '../observe/reconciler-version.ts'
import type { RunState, StateBudget } from '../observe/state-budget.ts'
import type { RunObserver } from '../run-steps.ts'
import type { FunctionCalls } from './function-calls.ts'

export interface ReconciliationDependencies extends WritersDependencies {
  settled: SettledWrites
  state: StateBudget
  adoptions: Adoptions
  recorder: Pick<EventRecorder, 'record'>
  calls: FunctionCalls
  now: () => Date
  random: () => number
  /** Text that cannot be guessed. */
  seed: () => string
  observe: RunObserver
  /** Traces are collected. */
  sampled: boolean
  bury: ((dead: DeadMessage) => Promise<void>) | undefined
}

/** A reconciler and the function that is called for it. */
export interface Served extends Reconciled {
  invoke: Invoke
  /** Undefined: no other version of the Reconciler comes. */
  reconcilerVersion: ReconcilerVersion | undefined
  /** Told which revision has decided on an object; returns when the object has to run again for that. */
  ranBy?: (revision: string | undefined) => Date | undefined
}

/** One run of one key under a lease. Performs what the machine of reconcile/ asks for, on EVENTS and the API server. */
export class Reconciliation {
  readonly #deps: ReconciliationDependencies
  readonly #served: Served
  readonly #lease: Lease
  readonly #state: RunState
  #log: RunLog
  #span: Span | undefined
  /** Of the pass under way. */
  #pass: { writers: Writers; beganAt: number } | undefined
  /** The revision of the function that has answered last; undefined in the field: it has not said. */
  #answered: { revision: string | undefined } | undefined

  constructor(deps: ReconciliationDependencies, served: Served, lease: Lease, log: RunLog) {
    this.#deps = deps
    this.#served = served
    this.#lease = lease
    this.#log = log
    this.#state = deps.state.ofRun(lease)
  }

  /** Its place in a trace; undefined until it has seen its object. */
  get span(): Span | undefined {
    return this.#span
  }

  /**
   * Rejects when the lease is lost or taken back, or with a SupersededError: the run has then stopped, and how its key goes
   * on is decided elsewhere.
   */
  async toEnd(): Promise<Finish> {
    using _held = this.#state
    const { attempt } = this.#lease
    for (let step = start(this.#served, { attempt, random: this.#deps.random() }); ; ) {
      const { ask, notes } = step
      for (const note of notes) this.#tell(note)
      const isChanged = this.#lease.overtaken.aborted
      if (ask.do === 'finish' && !(ask.mayLookAgain && isChanged)) return this.#counted(ask.finish)
      step = next(step, await this.#answer(ask))
    }
  }

  async #answer(ask: Ask): Promise<Answer> {
    try {
      return await this.#perform(ask)
    } catch (error) {
      if (this.#lease.signal.aborted || error instanceof SupersededError) throw error
      return failedBy(error)
    }
  }

  async #perform(ask: Ask): Promise<Answer> {
    const { overtaken, signal } = this.#lease
    switch (ask.do) {
      case 'observe':
        return { did: ask.do, seen: await this.#observe(ask.begins) }
      case 'call':
        return { did: ask.do, returned: await this.#call(ask.input) }
      case 'write': {
        const results = await Promise.allSettled(ask.writes.map((write) => this.#writers.owned.write(write)))
        return { did: ask.do, results: results.map((one) => ('value' in one ? one.value : failedBy(one.reason))) }
      }
      case 'writeStatus': {
        const unwanted = ask.mayBeDropped ? overtaken : undefined
        return { did: ask.do, result: await this.#writers.primary.status(ask.object, ask.patch, unwanted) }
      }
      case 'writeMetadata':
        return { did: ask.do, result: await this.#writers.primary.metadata(ask.object, ask.write) }
      case 'delete':
        return { did: ask.do, result: await this.#writers.primary.delete(ask.object) }
      case 'writeFinalizers':
        return { did: ask.do, result: await this.#writers.primary.finalizers(ask.object, ask.finalizers) }
      case 'hold':
        await sleep(ask.ms, undefined, { signal }).catch(() => signal.throwIfAborted())
        return { did: ask.do }
      case 'finish':
        return { did: ask.do, changed: true }
    }
  }

  async #observe(begins: boolean): Promise<Observed | undefined> {
    const { name, identity, spec } = this.#served
    const { signal, key, owner } = this.#lease
    if (begins) await this.#lease.lap()
    const seen = await observePrimary(this.#deps, this.#served, parseKey(key), { state: this.#state, signal })
    if (seen === undefined) return undefined
    if (begins) {
      const writers = writersOf(this.#deps, {
        reconciler: name,
        key,
        origin: originOf(name, key, owner),
        identity,
        fieldManager: fieldManagerOf(identity),
        primary: { ref: spec.for, object: seen.object, owner: seen.owner },
        hold: () => this.#lease.hold(),
        signal,
        span: this.#traced(seen),
        observe: this.#deps.observe,
        report: (event) => this.#tell({ note: 'event', object: seen.object, event }),
      })
      this.#pass = { writers, beganAt: performance.now() }
    }
    const settled = this.#deps.settled.of(seen)
    return { world: seen, now: this.#deps.now(), seed: this.#deps.seed(), settled, excess: seen.excess }
  }

  get #writers(): Writers {
    if (this.#pass === undefined) throw new TypeError('a reconciliation writes before it has observed its object')
    return this.#pass.writers
  }

  /** The run is in the trace of the newest change that it sees. */
  #traced({ traceparent }: Observation): Span {
    if (this.#span === undefined) {
      this.#span = spanAfter(traceparent, this.#deps.sampled)
      this.#log = withFields(this.#log, { traceId: this.#span.traceId })
    }
    return this.#span
  }

  async #call(input: RunInput): Promise<unknown> {
    const { invoke, spec } = this.#served
    const { key, signal, suspect } = this.#lease
    const traceparent = this.#span && traceparentOf(this.#span)
    const answered: { revision: string | undefined } = { revision: undefined }
    const answeredBy = (revision: string) => {
      answered.revision = revision
    }
    const of = { reconciler: this.#served.name, key }
    const context = { signal, log: this.#log, suspect, traceparent, answeredBy }
    const returned = await this.#deps.calls.within(spec.timeoutSeconds, of, invoke, input, context)
    this.#answered = answered
    return returned
  }

  #tell(note: Note): void {
    const { recorder, kube, settled, observe } = this.#deps
    const of = { reconciler: this.#served.name, key: this.#lease.key }
    switch (note.note) {
      case 'event':
        return recorder.record(kube, of.reconciler, note.object, note.event)
      case 'settled':
        return settled.remember(note.target, note.value)
      case 'dropped':
        return observe({ step: 'dropped', ...of })
      case 'failed':
        this.#log.warn({ ...failureFields(note.error, note.shown), finish: withoutMessage(note.finish) }, 'run failed')
        if (note.error instanceof RunTimeoutError) observe({ step: 'timedOut', ...of })
        return
      case 'unreported':
        return this.#log.warn(failureFields(note.error, note.shown), 'failure not shown on the object')
    }
  }

  /** The delay of a requeue counts from the beginning of the pass. A new revision of the function may want the object sooner. */
  #counted(finish: Finish): Finish {
    if (finish.kind === 'error' || finish.kind === 'terminal') return finish
    const again = this.#answered && this.#served.ranBy?.(this.#answered.revision)
    if (finish.kind === 'done') return again === undefined ? finish : { kind: 'requeue', at: again }
    return { ...finish, at: earlier(this.#fromNow(finish.at), again, this.#deps.now()) }
  }

  #fromNow(due: Due): Due {
    if (due instanceof Date || this.#pass === undefined) return due
    return { afterMs: due.afterMs - (performance.now() - this.#pass.beganAt) }
  }
}

const earlier = (due: Due, other: Date | undefined, now: Date): Due =>
  other !== undefined && other < dueDate(due, now) ? other : due

/** The message is the error's. */
const withoutMessage = (finish: Finish): object => ({ ...finish, message: undefined })
