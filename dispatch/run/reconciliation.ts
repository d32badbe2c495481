import {
  ConflictError,
  type FunctionInput,
  type PerformInput,
  type ReadInput,
  RetryAfterError,
  type RunInput,
  type RunLog,
  TerminalError,
  withFields,
} from '#contracts'
import { parseKey, type Span, spanAfter, traceparentOf } from '#events'
import { ApiConnectionError, ApiError } from '#kube'
import { pause, type TokenBucket } from '#primitives'
import { type Due, dueDate, type Finish, type Lease } from '#queue'
import {
  type Acted,
  type Answer,
  type Ask,
  actText,
  ExternalError,
  FunctionError,
  fieldManagerOf,
  NamespaceTerminatingError,
  type Note,
  type Observed,
  type PlannedAct,
  RefusedError,
  RunTimeoutError,
  run,
  UnsettledError,
} from '#reconcile'
import { keepsStatus } from '#spec'
import { originOf } from '../apply/write-through.ts'
import { type Writers, writersOf } from '../apply/writers.ts'
import { failedBy, SupersededError } from '../errors.ts'
import { type Observation, observePrimary, RunView } from '../observe/observe.ts'
import type { RunState } from '../observe/state-budget.ts'
import type { ReconciliationDeps, ServedReconciler } from './dependencies.ts'
import type { RunObserver } from './trail.ts'
import { type Logged, RunLines, Trail, type TrailRound } from './trail.ts'

/*
 * One run of a key:
 *
 *   toEnd              drives run() of reconcile/: answers one Ask after the other, until the run returns its finish
 *     #report          passes on a note: an Event, a log line, a metric, a write without effect
 *     #perform         has a case for each Ask; #answer makes an error a Failed, except the loss of the lease
 *       #observe       reads the objects by observe/observe.ts, and makes the writers of a new pass
 *       #decide        calls the function by run/function-calls.ts
 *       ExternalCalls  calls it to read or change its external system, within the rate limit
 *       #writers       send the writes: apply/writers.ts
 *     Trail            collects rounds for the history
 *     #ended           sets the time of the requeue
 */

/** An edit that has waited this long is logged. */
const LATE_MS = 30_000

/**
 * One run of one key under a lease. Performs the requests of `run` in reconcile/ on EVENTS and the API server.
 */
export class Reconciliation {
  readonly #deps: ReconciliationDeps
  readonly #served: ServedReconciler
  readonly #lease: Lease
  readonly #state: RunState
  readonly #view = new RunView()
  readonly #external: ExternalCalls
  readonly #trail: Trail | undefined
  readonly #lines: RunLines | undefined
  readonly #beganAt = performance.now()
  #log: RunLog
  #span: Span | undefined
  /** The present pass. */
  #pass: { writers: Writers; beganAt: number } | undefined
  /** The last answer of the function. `revision` is undefined if the answer did not name it. */
  #answered: { revision: string | undefined } | undefined

  constructor(deps: ReconciliationDeps, served: ServedReconciler, lease: Lease, log: RunLog) {
    this.#deps = deps
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
  get rounds(): readonly TrailRound[] {
    return this.#trail?.rounds ?? []
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
    using _view = this.#view
    const { attempt, suspect } = this.#lease
    const tell = (note: Note) => this.#report(note)
    const { clusterInfo: cluster } = this.#deps
    const asks = run(this.#served, { attempt, suspect, random: this.#deps.random(), cluster, tell })
    let step = asks.next()
    while (!step.done) {
      const answer = await this.#answer(step.value)
      this.#trail?.note(step.value, answer)
      step = asks.next(answer)
    }
    return this.#ended(step.value)
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
      case 'writeRecord': {
        const result = await this.#writers.primary.record(ask.object, ask.annotation, ask.value)
        return { did: ask.do, result }
      }
      case 'writeFields': {
        const results = await Promise.allSettled(ask.writes.map((write) => this.#writers.fields.write(write)))
        const done = { did: ask.do, results: results.map((one) => ('value' in one ? one.value : failedBy(one.reason))) }
        return results.some(({ status }) => status === 'fulfilled') ? this.#progressed(done) : done
      }
      case 'act': {
        const { skipEffect } = this.#deps
        const send = async (act: PlannedAct): Promise<Acted> => {
          if (skipEffect === undefined) return this.#writers.acts.send(act, ask.object, stale)
          skipEffect(actText(act))
          return {}
        }
        const results = await Promise.allSettled(ask.acts.map(send))
        const done = { did: ask.do, results: results.map((one) => ('value' in one ? one.value : failedBy(one.reason))) }
        return results.some((one) => 'value' in one && one.value.waits === undefined) ? this.#progressed(done) : done
      }
      case 'wait':
        await pause(ask.ms, signal)
        signal.throwIfAborted()
        return { did: ask.do }
      case 'finish':
        return { did: ask.do, changed: stale.aborted }
    }
  }

  /** Effects and owned objects are progress. A status is not, because it may have another time in each run. */
  #progressed(answer: Answer): Answer {
    if (!('isSkipped' in answer)) this.#lease.progressed()
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
    const noOps = this.#deps.noOps.of(seen, spec.acts !== undefined)
    return { world: seen, now: this.#deps.now(), seed: this.#deps.seed(), noOps, unread: seen.unread }
  }

  /** Logs an edit that no run has handled for long, with everything that shows why. */
  #noteLateEdit({ object: { metadata, status }, storedAt }: Observation): void {
    const { lane, attempt, fired, cutShort, suspect, enqueuedAt } = this.#lease
    const { generation } = metadata
    const handled = (status as { observedGeneration?: unknown } | undefined)?.observedGeneration
    const now = this.#deps.now().getTime()
    const waitedMs = now - storedAt
    // After a failure, an earlier run has handled the edit.
    if (attempt > 0 || waitedMs < LATE_MS || !keepsStatus(this.#served.spec)) return
    if (typeof handled !== 'number' || generation === undefined || generation <= handled) return
    const readMs = Math.round(performance.now() - this.#beganAt)
    const queuedMs = now - enqueuedAt.getTime() - readMs
    this.#log.warn(
      { generation, handled, waitedMs, queuedMs, readMs, lane, fired, cutShort, suspect },
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
    const traced = this.#tracedCall()
    try {
      const returned = await this.#call(input, traced.traceparent, answeredBy)
      this.#answered = answered
      traced.ended('success')
      return returned
    } catch (error) {
      traced.ended('error')
      throw error
    }
  }

  /** A call of the function has a span of its own, if the trace is kept. */
  #tracedCall(): { traceparent: string | undefined; ended: (result: 'success' | 'error') => void } {
    const run = this.#span
    if (!run?.sampled) return { traceparent: run && traceparentOf(run), ended: () => undefined }
    const own = spanAfter(traceparentOf(run), true)
    const of = { reconciler: this.#served.name, key: this.#lease.key }
    const began = performance.now()
    const ended = (result: 'success' | 'error') =>
      this.#deps.observe({ step: 'called', ...of, ...own, result, ms: performance.now() - began })
    return { traceparent: traceparentOf(own), ended }
  }

  async #call(
    input: FunctionInput,
    traceparent: string | undefined,
    answeredBy: (revision: string) => void = () => undefined,
  ): Promise<unknown> {
    const { name, invoke, spec } = this.#served
    const { key, signal, suspect } = this.#lease
    const own = input.ask === undefined ? undefined : spec.external?.timeoutSeconds
    const log = this.#lines?.around(this.#log, input) ?? this.#log
    const config = input.ask === undefined ? undefined : await this.#served.config?.values(signal)
    if (config !== undefined) this.#lease.hold()
    const context = { signal, log, suspect, traceparent, answeredBy, ...(config && { config }) }
    const of = { reconciler: name, key }
    const returned = await this.#deps.calls.within(own ?? spec.timeoutSeconds, of, invoke, input, context)
    // The function of a suspect runs apart. Now that it has come back, something else ends the process of this run.
    if (suspect) this.#lease.progressed()
    return returned
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

interface EndOfRun {
  /** The time since the last pass began. */
  passMs: number
  /**
   * Returns the time at which another revision of the function needs the object to run again. Called if the run has not
   * failed.
   */
  rerunAt: () => Date | undefined
  now: () => Date
}

/**
 * Returns the finish with its requeue. The delay counts from the beginning of the pass, and ends at the latest when the
 * object has to run again.
 */
function withRequeue(finish: Finish, { passMs, rerunAt, now }: EndOfRun): Finish {
  if (finish.kind === 'error' || finish.kind === 'terminal') return finish
  const again = rerunAt()
  if (finish.kind === 'done') return again === undefined ? finish : { kind: 'requeue', at: again }
  return { ...finish, at: earlier(fromNow(finish.at, passMs), again, now()) }
}

const fromNow = (due: Due, passMs: number): Due => (due instanceof Date ? due : { afterMs: due.afterMs - passMs })

const earlier = (due: Due, other: Date | undefined, now: Date): Due =>
  other !== undefined && other < dueDate(due, now) ? other : due

/** The longest time for which a run keeps its slot until the rate limit allows a read. */
const LONGEST_WAIT_MS = 1000

interface ExternalCallsDeps {
  reconciler: string
  key: string
  /** The limit of this process for the reconciler. Undefined: no limit. */
  rateLimit: TokenBucket | undefined
  /** Receives each effect, which is then not performed. Undefined: effects are performed. */
  skipped: ((effect: string) => void) | undefined
  call: (input: ReadInput | PerformInput, traceparent: string | undefined) => Promise<unknown>
  /** Throws when the lease is over. */
  hold: () => void
  signal: AbortSignal
  /** Returns the span of the run. */
  span: () => Span | undefined
  observe: RunObserver
}

/** The calls of a run to the external system of its function. */
export class ExternalCalls {
  readonly #deps: ExternalCallsDeps

  constructor(deps: ExternalCallsDeps) {
    this.#deps = deps
  }

  async read({ input }: Ask & { do: 'read' }): Promise<Answer> {
    const { rateLimit, signal } = this.#deps
    const turn = rateLimit?.takeWithin(LONGEST_WAIT_MS) ?? { waitMs: 0 }
    if ('returnMs' in turn) return { did: 'read', limitedMs: turn.returnMs }
    if (turn.waitMs > 0) await pause(turn.waitMs, signal)
    signal.throwIfAborted()
    return { did: 'read', external: await this.#call(input, { step: 'read' }) }
  }

  /**
   * Performs an effect without a wait. Later reads wait longer instead. If effects waited, reads could use up a low
   * limit.
   */
  async perform({ input, shown }: Ask & { do: 'perform' }): Promise<Answer> {
    const { rateLimit, skipped, hold } = this.#deps
    if (skipped !== undefined) {
      skipped(shown)
      return { did: 'perform', isSkipped: true }
    }
    rateLimit?.take()
    hold()
    return { did: 'perform', result: await this.#call(input, { step: 'performed', kind: input.effect.kind }) }
  }

  async #call(
    input: ReadInput | PerformInput,
    what: { step: 'read' } | { step: 'performed'; kind: string },
  ): Promise<unknown> {
    const { reconciler, key, span, call, observe } = this.#deps
    const parent = span()
    const own = parent && spanAfter(traceparentOf(parent), parent.sampled)
    const began = performance.now()
    const ended = (result: 'success' | 'error') =>
      observe({ reconciler, key, ...own, ...what, result, ms: performance.now() - began })
    try {
      const answer = await call(input, own && traceparentOf(own))
      ended('success')
      return answer
    } catch (error) {
      ended('error')
      throw error
    }
  }
}

/** Passes a note of `run` to the component that handles it. */
function reportNote(
  { recorder, kube, noOps, observe }: ReconciliationDeps,
  of: { reconciler: string; key: string },
  log: RunLog,
  note: Note,
): void {
  switch (note.note) {
    case 'event':
      return recorder.record(kube, of.reconciler, note.object, note.event)
    case 'noOp':
      return noOps.remember(note.target, note.value)
    case 'counter':
      return observe({ step: 'counted', change: note.change, ...of })
    case 'gauges':
      return observe({ step: 'measured', changes: note.changes, ...of })
    case 'dropped':
      return observe({ step: 'dropped', ...of })
    case 'failed':
      log.warn({ ...failureFields(note.error, note.shown), finish: withoutMessage(note.finish) }, 'run failed')
      if (causeOf(note.error) instanceof RunTimeoutError) observe({ step: 'timedOut', ...of })
      return
    case 'performed': {
      const { effect, error } = note
      if (error === undefined) return log.info({ effect }, 'effect performed')
      return log.warn({ effect, err: { message: error } }, 'effect failed')
    }
    case 'unreported':
      return log.warn(failureFields(note.error, note.shown), 'failure not shown on the object')
  }
}

/** Removes the message, which is the same as the error's. */
const withoutMessage = (finish: object): object => ({ ...finish, message: undefined })

/**
 * Errors that are logged without a stack. Their message states the error and its place, and a stack would only show the
 * dispatcher.
 */
const EXPLAINED = [
  ApiConnectionError,
  ApiError,
  ConflictError,
  FunctionError,
  NamespaceTerminatingError,
  RefusedError,
  RetryAfterError,
  RunTimeoutError,
  TerminalError,
  UnsettledError,
]

/** Returns the cause of an error of the external system, and any other error unchanged. */
const causeOf = (error: unknown): unknown => (error instanceof ExternalError ? error.cause : error)

/** Returns the log fields of a failure. `shown` is the error as a log may show it. */
function failureFields(error: unknown, shown: unknown): object {
  const cause = causeOf(error)
  if (!(shown instanceof Error && EXPLAINED.some((explained) => cause instanceof explained))) return { err: shown }
  const { name, message } = shown
  return { err: { type: name, message } }
}
