import { setTimeout as sleep } from 'node:timers/promises'
import {
  ConflictError,
  type EventReport,
  holdsFinalizer,
  type Invoke,
  type KubeObject,
  keepsStatus,
  type ReconcilerSpec,
  type RunInput,
  type RunLog,
  type Span,
  spanAfter,
  TerminalError,
  traceparentOf,
} from '#contracts'
import { type DeadMessage, parseKey } from '#events'
import { backoffMs, type Due, type Finish, type Lease } from '#queue'
import { callWithin } from './call.ts'
import { Confidences } from './confidences.ts'
import { consequenceOf, gravest } from './consequence.ts'
import { originOf } from './echo.ts'
import type { Edition } from './edition.ts'
import { GoneError, RunTimeoutError, SupersededError, UnsettledError } from './errors.ts'
import { finalizersBefore, finalizersWithout, isFinalizing } from './finalizer.ts'
import { deepFreeze } from './freeze.ts'
import { DROPPED } from './gate.ts'
import { failureFields, withFields } from './log.ts'
import { type Observation, observePrimary } from './observe.ts'
import { parseOutcome } from './outcome.ts'
import { isPaused, pausePatch } from './pause.ts'
import { type Circumstances, type Plan, plan, type Write } from './plan.ts'
import type { EventRecorder } from './recorder.ts'
import type { RunState, StateBudget } from './state-budget.ts'
import { type Failure, failurePatch, type StatusPatch } from './status.ts'
import type { RunObserver } from './steps.ts'
import type { TooMuchStateError } from './too-much-state.ts'
import { byKind, type World, withObject, withOwned } from './world.ts'
import { Writer, type WriterDependencies } from './writer.ts'

/** Decisions on results in memory before the function counts as one that never settles. */
const MAX_ROUNDS = 8
/** What of its backoff a run that never settles waits before it ends. */
const LONGEST_HELD_MS = 10_000
/** Fresh observations in one run, after conflicts and changes that came meanwhile. */
const MAX_LAPS = 5

export interface RunDependencies extends WriterDependencies {
  state: StateBudget
  recorder: Pick<EventRecorder, 'record'>
  now: () => Date
  random: () => number
  /** Text that nobody can guess. */
  seed: () => string
  observe: RunObserver
  /** Traces are kept by somebody. */
  sampled: boolean
  bury: ((dead: DeadMessage) => Promise<void>) | undefined
}

/** A reconciler and the function that is called for it. */
export interface Served {
  name: string
  spec: ReconcilerSpec
  invoke: Invoke
  /** Whether the reconciler is for this object: its namespaces and selectors. */
  selects: (object: KubeObject) => boolean
  /** Undefined: no other one comes. */
  edition: Edition | undefined
}

/** What one observation has come to so far. */
interface Lap {
  world: World
  excess: TooMuchStateError | undefined
  writer: Writer
  now: Date
  /** The same moment by the monotonic clock. */
  beganAt: number
  seed: string
  /** No other lap follows: what was overtaken is written all the same. */
  isLast: boolean
}

/** One run of one key, from the first look to its end. */
export class Run {
  readonly #deps: RunDependencies
  readonly #served: Served
  readonly #lease: Lease
  #log: RunLog
  #span: Span | undefined
  readonly #told = new Set<string>()
  readonly #confidences: Confidences
  readonly #state: RunState

  constructor(deps: RunDependencies, served: Served, lease: Lease, log: RunLog) {
    this.#deps = deps
    this.#served = served
    this.#lease = lease
    this.#log = log
    this.#confidences = new Confidences(served.spec, deps.events)
    this.#state = deps.state.ofRun(lease)
  }

  /** Its place in a trace; undefined until it has seen its object. */
  get span(): Span | undefined {
    return this.#span
  }

  /**
   * Rejects only when the lease is lost or taken back, or with a SupersededError: the run has then stopped and its end is
   * not its own to say.
   */
  async toEnd(): Promise<Finish> {
    using _held = this.#state
    for (let number = 1; ; number++) {
      const isLast = number === MAX_LAPS
      let lap: Lap | undefined
      try {
        lap = await this.#begin(isLast)
        const finish: Finish = lap && (await this.#isToBeDecided(lap)) ? await this.#settle(lap) : { kind: 'done' }
        if (isLast || !this.#lease.overtaken.aborted) return finish
      } catch (error) {
        if (this.#lease.signal.aborted || error instanceof SupersededError) throw error
        if (error instanceof GoneError) return { kind: 'done' }
        if (error instanceof ConflictError && !isLast) continue
        const finish = await this.#fail(lap, error)
        if (finish !== undefined && error instanceof UnsettledError) await this.#holdBack()
        if (finish !== undefined) return finish
      }
    }
  }

  /** Undefined: there is nothing to reconcile. */
  async #begin(isLast: boolean): Promise<Lap | undefined> {
    await this.#lease.lap()
    const { name, spec } = this.#served
    const { signal, key, owner } = this.#lease
    const observed = await this.#observe()
    if (observed === undefined) return undefined
    const writer = new Writer(this.#deps, {
      reconciler: name,
      key,
      origin: originOf(name, key, owner),
      fieldManager: `fairlead-${name}`.slice(0, 128),
      primary: { ref: spec.for, object: observed.object, owner: observed.owner },
      hold: () => this.#lease.hold(),
      signal,
      span: this.#traced(observed),
      observe: this.#deps.observe,
      report: (event) => this.#tell(observed.object, [event]),
    })
    return {
      world: observed,
      excess: observed.excess,
      writer,
      now: this.#deps.now(),
      beganAt: performance.now(),
      seed: this.#deps.seed(),
      isLast,
    }
  }

  /** The run is in the trace of the newest change that it sees. */
  #traced({ traceparent }: Observation): Span {
    if (this.#span === undefined) {
      this.#span = spanAfter(traceparent, this.#deps.sampled)
      this.#log = withFields(this.#log, { traceId: this.#span.traceId })
    }
    return this.#span
  }

  /** Keeps the finalizer, and says of a paused object that it is. False: the function is not to be called. */
  async #isToBeDecided(lap: Lap): Promise<boolean> {
    const { name, spec, selects } = this.#served
    const { object } = lap.world
    const isSelected = selects(object)
    if (isPaused(object)) {
      const patch = isSelected && keepsStatus(spec) ? pausePatch(object, lap.now) : undefined
      if (patch !== undefined) await lap.writer.status(object, patch)
      return false
    }
    const finalizers = finalizersBefore(object, name, spec, isSelected)
    if (finalizers !== undefined) await this.#writeFinalizers(lap, finalizers)
    return isFinalizing(object, name) ? spec.finalize : isSelected
  }

  async #writeFinalizers(lap: Lap, finalizers: string[]): Promise<void> {
    const written = await lap.writer.finalizers(lap.world.object, finalizers)
    if (written.object !== undefined) lap.world = withObject(lap.world, written.object)
    if (written.overtaken) throw new ConflictError('the object was changed while its finalizers were written')
  }

  /** Decides and writes, and again on what that has made, until there is nothing left to write. */
  async #settle(lap: Lap): Promise<Finish> {
    for (let round = 1; ; round++) {
      const next = await this.#decide(lap)
      const isStable = next.stages.length === 0 && next.status === undefined
      if (next.stages.length > 0) for (const stage of next.stages) await this.#write(lap, stage)
      else if (next.status !== undefined) await this.#writeStatus(lap, next.status)
      this.#tell(lap.world.object, next.events)
      if (!isStable && round === MAX_ROUNDS) throw new UnsettledError(MAX_ROUNDS, next)
      if (!isStable) continue
      if (next.requeue !== undefined) return { kind: 'requeue', at: fromNow(next.requeue, lap) }
      await this.#release(lap)
      return { kind: 'done' }
    }
  }

  /** The function has nothing left to do for an object that is being deleted: it may go. */
  async #release(lap: Lap): Promise<void> {
    const { name } = this.#served
    const { object } = lap.world
    if (isFinalizing(object, name)) await this.#writeFinalizers(lap, finalizersWithout(object.metadata, name))
  }

  async #decide({ world, excess, now, seed }: Lap): Promise<Plan> {
    if (excess !== undefined) throw excess
    const { spec, invoke } = this.#served
    const input: RunInput = {
      object: world.object,
      owned: byKind(
        spec.owns,
        world.owned.map((child) => child.object),
      ),
      related: byKind(spec.related, world.related),
      attempt: this.#lease.attempt,
      seed,
      now: now.toISOString(),
      finalizing: isFinalizing(world.object, this.#served.name),
    }
    const { signal, suspect } = this.#lease
    const context = {
      signal,
      log: this.#log,
      suspect,
      traceparent: this.#span && traceparentOf(this.#span),
    }
    const returned = await callWithin(spec.timeoutSeconds, invoke, deepFreeze(input), context)
    const outcome = parseOutcome(returned)
    this.#confidences.noteDesired(outcome.apply)
    const isConfidential: Circumstances['isConfidential'] = (resource) => this.#deps.events.isReferenceOnly(resource)
    const next = plan(spec, world, outcome, { now, settled: this.#deps.settled, isConfidential })
    if (next.findings.length === 0) return next
    throw new TerminalError(next.findings.join('; '), { reason: 'InvalidOutcome' })
  }

  async #write(lap: Lap, stage: Write[]): Promise<void> {
    const results = await Promise.allSettled(stage.map((write) => lap.writer.owned(write)))
    const errors: unknown[] = []
    let overtaken = false
    for (const [index, { resource, object }] of stage.entries()) {
      const result = results[index]
      if (result?.status === 'rejected') errors.push(result.reason)
      if (result?.status !== 'fulfilled') continue
      lap.world = withOwned(lap.world, resource, object, result.value.object)
      overtaken ||= result.value.overtaken
    }
    if (errors.length > 0) throw gravest(errors)
    if (overtaken) await this.#lookAgain(lap)
  }

  async #writeStatus(lap: Lap, patch: StatusPatch): Promise<void> {
    const written = await lap.writer.status(lap.world.object, patch, lap.isLast ? undefined : this.#lease.overtaken)
    if (written === DROPPED) {
      this.#deps.observe({ step: 'dropped', reconciler: this.#served.name, key: this.#lease.key })
      throw new ConflictError('the status was overtaken by a change before it was written')
    }
    if (written.object !== undefined) lap.world = withObject(lap.world, written.object)
    if (written.overtaken) await this.#lookAgain(lap)
  }

  async #lookAgain(lap: Lap): Promise<void> {
    const observed = await this.#observe()
    if (observed === undefined) throw new GoneError('the object was deleted during its run')
    const { name, selects } = this.#served
    if (!selects(observed.object) && !isFinalizing(observed.object, name))
      throw new ConflictError('the object has left the selection during its run')
    if (isPaused(observed.object)) throw new ConflictError('the object was paused during its run')
    lap.world = observed
    lap.excess = observed.excess
  }

  /** Undefined: the object is gone, or goes or is not the reconciler's, and does not wait for it. */
  async #observe(): Promise<Observation | undefined> {
    const { name, selects } = this.#served
    const { key, signal } = this.#lease
    const observed = await observePrimary(this.#deps, this.#served, parseKey(key), { state: this.#state, signal })
    if (observed === undefined) return undefined
    const { object } = observed
    const isServed = selects(object) && object.metadata.deletionTimestamp === undefined
    if (!isServed && !holdsFinalizer(object, name)) return undefined
    this.#confidences.noteObserved(observed)
    return observed
  }

  /** Once in a run, however often it is decided. */
  #tell(object: KubeObject, events: readonly EventReport[]): void {
    for (const event of events) {
      const said = JSON.stringify(event)
      if (this.#told.has(said)) continue
      this.#told.add(said)
      this.#deps.recorder.record(this.#deps.kube, this.#served.name, object, event)
    }
  }

  /** How the run ends after an error; undefined: not yet, the state has moved while it was reported. */
  async #fail(lap: Lap | undefined, error: unknown): Promise<Finish | undefined> {
    const { random } = this.#deps
    const circumstances = { attempt: this.#lease.attempt, backoff: this.#served.spec.backoff, random }
    const { finish, report, shown } = this.#confidences.withheldFrom(error, consequenceOf(error, circumstances))
    this.#log.warn({ ...failureFields(error, shown), finish: withoutMessage(finish) }, 'run failed')
    if (error instanceof RunTimeoutError)
      this.#deps.observe({ step: 'timedOut', reconciler: this.#served.name, key: this.#lease.key })
    if (lap === undefined || report === undefined) return finish
    try {
      await this.#report(lap, report)
      return finish
    } catch (failure) {
      if (this.#lease.signal.aborted) throw failure
      if (failure instanceof GoneError) return { kind: 'done' }
      if (failure instanceof ConflictError && !lap.isLast) return undefined
      const { finish, shown } = this.#confidences.withheldFrom(failure, consequenceOf(failure, circumstances))
      this.#log.warn(failureFields(failure, shown), 'failure not shown on the object')
      return finish
    }
  }

  /**
   * The watch tells of its writes after it, or of those of a process that the bridge does not share: changes, which run
   * the key at once whatever its backoff says.
   */
  async #holdBack(): Promise<void> {
    const { attempt, signal } = this.#lease
    const ms = backoffMs(attempt, this.#served.spec.backoff, this.#deps.random)
    await sleep(Math.min(ms, LONGEST_HELD_MS), undefined, { signal }).catch(() => signal.throwIfAborted())
  }

  async #report(lap: Lap, failure: Failure): Promise<void> {
    const { object } = lap.world
    this.#tell(object, [{ type: 'Warning', ...failure }])
    const patch = keepsStatus(this.#served.spec) ? failurePatch(object, failure, lap.now) : undefined
    if (patch !== undefined) await lap.writer.status(object, patch)
  }
}

/** What is left of a delay that began with the lap. */
const fromNow = (due: Due, { beganAt }: Lap): Due =>
  due instanceof Date ? due : { afterMs: due.afterMs - (performance.now() - beganAt) }

/** The message is the error's. */
const withoutMessage = (finish: Finish): object => ({ ...finish, message: undefined })
