import { type FunctionInput, type RunInput, type RunLog, withFields } from '#contracts'
import { parseKey, type Span, spanAfter, traceparentOf } from '#events'
import { pause } from '#primitives'
import type { Finish, Lease } from '#queue'
import { type Answer, type Ask, fieldManagerOf, type Note, next, type Observed, start } from '#reconcile'
import { keepsStatus } from '#spec'
import { originOf } from '../apply/write-origin.ts'
import { type Writers, writersOf } from '../apply/writers.ts'
import { failedBy, SupersededError } from '../errors.ts'
import { type Observation, observePrimary } from '../observe/observe.ts'
import { RunView } from '../observe/run-view.ts'
import type { RunState } from '../observe/state-budget.ts'
import type { ReconciliationDependencies, ServedReconciler } from './dependencies.ts'
import { ExternalCalls } from './external-calls.ts'
import { reportNote } from './notes.ts'
import { withRequeue } from './requeue.ts'
import { type Logged, RunLines } from './run-lines.ts'
import { Trail, type TrailLap } from './trail.ts'

/** An edit that has waited this long is logged. */
const LATE_MS = 30_000

/**
 * One run of one key under a lease. Performs the requests of the machine in reconcile/ on EVENTS and the API server.
 */
export class Reconciliation {
  readonly #deps: ReconciliationDependencies
  readonly #served: ServedReconciler
  readonly #lease: Lease
  readonly #state: RunState
  readonly #view: RunView
  readonly #external: ExternalCalls
  readonly #trail: Trail | undefined
  readonly #lines: RunLines | undefined
  #log: RunLog
  #span: Span | undefined
  /** The present pass. */
  #pass: { writers: Writers; beganAt: number } | undefined
  /** The last answer of the function. `revision` is undefined if the answer did not name it. */
  #answered: { revision: string | undefined } | undefined

  /** `view`: the view of the run before, if there was no other run in between. */
  constructor(
    deps: ReconciliationDependencies,
    served: ServedReconciler,
    lease: Lease,
    { log, view }: { log: RunLog; view?: RunView },
  ) {
    this.#deps = deps
    this.#view = view ?? new RunView()
    this.#served = served
    this.#lease = lease
    this.#log = log
    this.#state = deps.state.ofRun(lease)
    this.#trail = deps.ended && new Trail()
    this.#lines = deps.ended && new RunLines(deps.now)
    this.#external = new ExternalCalls({
      reconciler: served.name,
      key: lease.key,
      rateLimit: served.rateLimit,
      skipped: deps.skipEffect,
      call: (input, traceparent) => this.#call(input, traceparent),
      hold: () => lease.hold(),
      signal: lease.signal,
      span: () => this.#span,
      observe: deps.observe,
    })
  }

  /** Returns the span of the run. Undefined until the run has observed its object. */
  get span(): Span | undefined {
    return this.#span
  }

  /** Returns the decisions and writes of the run. Empty if no history is kept. */
  get laps(): readonly TrailLap[] {
    return this.#trail?.laps ?? []
  }

  /** Returns the lines that the function has logged. Undefined if no history is kept. */
  get logged(): Logged | undefined {
    return this.#lines
  }

  get revision(): string | undefined {
    return this.#answered?.revision
  }

  /**
   * Drives the run to its end. Rejects if the lease is lost or taken back, or with a SupersededError. The run has then
   * stopped, and the worker or another process decides about its key.
   */
  async toEnd(): Promise<Finish> {
    using _held = this.#state
    const { attempt } = this.#lease
    for (let step = start(this.#served, { attempt, random: this.#deps.random() }); ; ) {
      const { ask, notes } = step
      for (const note of notes) this.#report(note)
      const isChanged = this.#lease.stale.aborted
      if (ask.do === 'finish' && !(ask.mayLookAgain && isChanged)) return this.#ended(ask.finish)
      const answer = await this.#answer(ask)
      this.#trail?.note(ask, answer)
      step = next(step, answer)
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
    const { stale, signal } = this.#lease
    switch (ask.do) {
      case 'observe':
        return { did: ask.do, seen: await this.#observe(ask.begins) }
      case 'call':
        return { did: ask.do, returned: await this.#decide(ask.input) }
      case 'read':
        return this.#external.read(ask)
      case 'perform':
        return this.#progressed(await this.#external.perform(ask))
      case 'write': {
        const results = await Promise.allSettled(ask.writes.map((write) => this.#writers.owned.write(write)))
        const done = { did: ask.do, results: results.map((one) => ('value' in one ? one.value : failedBy(one.reason))) }
        return results.some(({ status }) => status === 'fulfilled') ? this.#progressed(done) : done
      }
      case 'writeStatus': {
        const unwanted = ask.mayBeDropped ? stale : undefined
        return { did: ask.do, result: await this.#writers.primary.status(ask.object, ask.patch, unwanted) }
      }
      case 'writeMetadata':
        return { did: ask.do, result: await this.#writers.primary.metadata(ask.object, ask.write) }
      case 'delete':
        return { did: ask.do, result: await this.#writers.primary.delete(ask.object) }
      case 'writeFinalizers':
        return { did: ask.do, result: await this.#writers.primary.finalizers(ask.object, ask.finalizers) }
      case 'hold':
        await pause(ask.ms, signal)
        signal.throwIfAborted()
        return { did: ask.do }
      case 'finish':
        return { did: ask.do, changed: true }
    }
  }

  /** Effects and owned objects are progress. A status is not, because it may have another time in each run. */
  #progressed(answer: Answer): Answer {
    if (!('did' in answer && answer.did === 'skip')) this.#lease.progressed()
    return answer
  }

  async #observe(begins: boolean): Promise<Observed | undefined> {
    const { name, identity, spec } = this.#served
    const { signal, key, owner } = this.#lease
    if (begins && (await this.#lease.beginPass()) === 'announced by a token') this.#view.end()
    const about = { state: this.#state, view: this.#view, signal }
    const seen = await observePrimary(this.#deps, this.#served, parseKey(key), about)
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
        report: (event) => this.#report({ note: 'event', object: seen.object, event }),
      })
      if (this.#pass === undefined) this.#noteLateEdit(seen)
      this.#pass = { writers, beganAt: performance.now() }
    }
    const settled = this.#deps.settled.of(seen)
    return { world: seen, now: this.#deps.now(), seed: this.#deps.seed(), settled, excess: seen.excess }
  }

  /** Logs an edit that no run has handled for long, with everything that shows why. */
  #noteLateEdit({ object: { metadata, status }, storedAt }: Observation): void {
    const { lane, attempt, fired, cutShort, enqueuedAt } = this.#lease
    const { generation } = metadata
    const handled = (status as { observedGeneration?: unknown } | undefined)?.observedGeneration
    const now = this.#deps.now().getTime()
    const waitedMs = now - storedAt
    // After a failure, an earlier run has handled the edit.
    if (attempt > 0 || waitedMs < LATE_MS || !keepsStatus(this.#served.spec)) return
    if (typeof handled !== 'number' || generation === undefined || generation <= handled) return
    const queuedMs = now - enqueuedAt.getTime()
    this.#log.warn(
      { generation, handled, waitedMs, queuedMs, lane, fired, cutShort },
      'an edit has waited long for a run',
    )
  }

  get #writers(): Writers {
    if (this.#pass === undefined) throw new TypeError('a reconciliation writes before it has observed its object')
    return this.#pass.writers
  }

  /** Puts the run into the trace of the newest change that it observes. */
  #traced({ traceparent }: Observation): Span {
    if (this.#span === undefined) {
      this.#span = spanAfter(traceparent, this.#deps.sampled)
      this.#log = withFields(this.#log, { traceId: this.#span.traceId })
    }
    return this.#span
  }

  async #decide(input: RunInput): Promise<unknown> {
    const answered: { revision: string | undefined } = { revision: undefined }
    const answeredBy = (revision: string) => {
      answered.revision = revision
    }
    const returned = await this.#call(input, this.#span && traceparentOf(this.#span), answeredBy)
    this.#answered = answered
    return returned
  }

  #call(
    input: FunctionInput,
    traceparent: string | undefined,
    answeredBy: (revision: string) => void = () => undefined,
  ): Promise<unknown> {
    const { name, invoke, spec } = this.#served
    const { key, signal, suspect } = this.#lease
    const own = input.ask === undefined ? undefined : spec.external?.timeoutSeconds
    const log = this.#lines?.around(this.#log, input) ?? this.#log
    const context = { signal, log, suspect, traceparent, answeredBy }
    return this.#deps.calls.within(own ?? spec.timeoutSeconds, { reconciler: name, key }, invoke, input, context)
  }

  #ended(finish: Finish): Finish {
    const passMs = this.#pass === undefined ? 0 : performance.now() - this.#pass.beganAt
    const rerunAt = () => this.#answered && this.#served.ranBy?.(this.#answered.revision)
    return withRequeue(finish, { passMs, rerunAt, now: this.#deps.now })
  }

  #report(note: Note): void {
    reportNote(this.#deps, { reconciler: this.#served.name, key: this.#lease.key }, this.#log, note)
  }
}
