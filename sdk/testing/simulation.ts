import {
  type Effect,
  type EventReport,
  type KubeObject,
  type Outcome,
  RetryAfterError,
  type RunInput,
  TerminalError,
} from '#contracts'
import { dueDate } from '#queue/terms'
import { EffectError, NoOpWrites, RefusedError, UnsettledError } from '#reconcile'
import type { AdmittedWrite, Kind, Reconciler } from '#sdk'
import { isSameKind } from '#spec'
import { admitted, type RefusedKind } from './admitted.ts'
import type { NeverIdle } from './broken.ts'
import { type ExternalModel, type SimulatedExternal, simulatedExternal } from './external.ts'
import { isOfKind, ofName, type StoredBy, timeOf } from './given.ts'
import { type Identity, Memory } from './memory.ts'
import { Loop, neverIdle, polling, theirChange } from './never-idle.ts'
import { reconcileOnce, type SimulatedRun, type SimulatedWrite } from './simulated-run.ts'

/**
 * A part of the cluster of a simulation, such as `deploymentsRun`: changes what another controller would change. It
 * returns the time of its next change, if that comes by time alone.
 *
 * @example
 * import { Job } from 'fairlead'
 * import { type Controller, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const jobsStart: Controller = (world) => world.patch(Job, { status: { active: 1 } })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object], cluster: [jobsStart] })
 * world.list(Job) // => []
 */
export type Controller<For extends Kind<unknown> = Kind<unknown>, State = unknown> = {
  // A method, so that a part for every kind of object fits a simulation of one.
  play(world: Simulation<For, State>): unknown
}['play']

/**
 * The options of `simulate()`. `now` defaults to 2030-01-01T00:00:00Z.
 *
 * @example
 * import { deploymentsRun, type SimulationOptions, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const options: SimulationOptions<typeof Website> = { objects: [object], cluster: [deploymentsRun] }
 * const world = simulate(website, options)
 * await world.runUntilIdle()
 * world.object?.status?.ready // => 1
 */
export interface SimulationOptions<For extends Kind<unknown> = Kind<unknown>, State = unknown> {
  /** The first object is reconciled; the others exist beside it. They may be older than a rule that they break. */
  objects: readonly KubeObject[]
  /**
   * The time at the start.
   *
   * @default 2030-01-01T00:00:00Z
   */
  now?: Date | string
  /** The rest of the cluster: called after each change until it changes nothing. */
  cluster?: Controller<For, State> | readonly Controller<For, State>[]
  /** A model of the external system that the function manages. */
  external?: ExternalModel<For, State>
}

/** The limit of runs at one moment, after which the function counts as never idle. */
const MAX_RUNS = 20
/** The limit of further runs that find out why. */
const MAX_TRACED = 200
/** Reasons of a TerminalError that only a mistake in the function has. */
const MISTAKES = ['InvalidOutcome', 'UndeclaredKind']
/** Failures that are results of the function or answers of the cluster: the object shows them. */
const MEANT = [TerminalError, RetryAfterError, RefusedError, EffectError]
/** The limit of consecutive changes by the rest of the cluster. */
const MAX_REACTIONS = 100
/** The limit of runs that a cluster which changes one thing at a time may cause at one moment. */
const MAX_STEPS = 500
/** A run so soon after the one before, which neither writes nor performs anything, is a poll. */
const POLL_MS = 1000
/** The limit of polls on end. Each advance would play thousands of them. */
const MOST_POLLS = 300
/** Ends a part of the cluster after the one change that it may make. */
const INTERRUPTED = new Error('the cluster has made its one change')

/**
 * One object, its function, and a cluster in memory. The clock stands still until `advance` or `pass` moves it. Runs
 * make the decisions of a dispatcher, by the same code.
 *
 * @example
 * import { type Simulation, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world: Simulation<typeof Website> = simulate(website, { objects: [object] })
 * world.now.toISOString() // => '2030-01-01T00:00:00.000Z'
 */
export class Simulation<For extends Kind<unknown> = Kind<unknown>, State = unknown> {
  readonly memory: Memory
  readonly #reconciler: Reconciler<For>
  readonly #options: SimulationOptions<For, State>
  readonly #primary: Identity
  readonly #noOps = new NoOpWrites()
  readonly #external: SimulatedExternal | undefined
  /** The time of the next run, requested by the function or by a failure. */
  timer: Date | undefined
  /** The error of the last run. */
  failure: Error | undefined
  readonly writes: SimulatedWrite[] = []
  readonly events: EventReport[] = []
  /** The inputs of the function, in order, and what it has returned for them. */
  readonly inputs: RunInput[] = []
  readonly outcomes: Promise<Outcome>[] = []
  /** Called before each write, to simulate concurrent events. */
  before: (write: SimulatedWrite) => void = () => {}
  /**
   * The random source of `secret`: while it is the same text, each run draws the same values. Left out: each run draws
   * others, as in a cluster, and the first, second, … run of each simulation the same.
   */
  draw: string | undefined
  #refused: readonly RefusedKind[] = []
  #attempt = 0
  #runs = 0
  /** Whether the last failure has a consequence of its own, instead of a retry with backoff. */
  #isMeant = false
  #isPlaying = false
  /**
   * The groups of the user who edits, creates and deletes objects, for rules such as `onlyGroups`. Undefined: policies do
   * not check these writes, as those of Kubernetes itself.
   */
  groups: readonly string[] | undefined = []
  /** Whether a user writes, and not the function or another client. */
  #isUser = false
  /** True: the rest of the cluster does nothing. */
  isAlone = false
  /** True: the whole cluster makes one change between two runs, as in `oneByOne`. */
  isStepwise = false
  /** True during a run of the function. */
  isRunning = false
  /** The time of the next change that the cluster makes by time alone. */
  clusterTimer: Date | undefined
  /** Whether `oneByOne` may make a change before the next run. */
  #mayStep = true
  /** Called before the runs of each moment. */
  beforeRuns: () => void = () => {}
  /** What the last run has read: a version of the memory. */
  #seen: number | undefined
  #ranAt: Date | undefined
  /** The time of the last run that is earlier than the present one. */
  ranBefore: Date | undefined

  constructor(reconciler: Reconciler<For>, options: SimulationOptions<For, State>, from?: Simulation<For, State>) {
    const [first] = options.objects
    if (first === undefined) throw new Error('a simulation needs the object that is reconciled: "objects" is empty')
    if (!isOfKind(first, reconciler.for))
      throw new Error(`the first object is a ${first.kind}, but ${reconciler.name} reconciles ${reconciler.for.kind}`)
    this.#reconciler = reconciler
    this.#options = options
    this.#primary = first
    this.memory = from?.memory.copy() ?? new Memory(timeOf(options.now))
    this.#external = from === undefined ? simulatedExternal(reconciler, options.external) : from.#external?.copy()
    this.timer = from?.timer
    this.#attempt = from === undefined ? 0 : from.#attempt
    this.#runs = from === undefined ? 0 : from.#runs
    this.draw = from?.draw
    this.#refused = from === undefined ? [] : from.#refused
    this.#mayStep = from === undefined ? true : from.#mayStep
    this.clusterTimer = from?.clusterTimer
    this.#seen = from === undefined ? undefined : from.#seen
    this.#ranAt = from === undefined ? undefined : from.#ranAt
    this.ranBefore = from?.ranBefore
    this.isAlone = from?.isAlone ?? false
    this.isStepwise = from?.isStepwise ?? false
    this.groups = from === undefined ? [] : from.groups
    let isOlder = from === undefined
    this.memory.admit = (object, old) => this.#admitted({ object, ...(old && { old }) }, isOlder)
    if (from !== undefined) return
    for (const object of options.objects) this.memory.create(object)
    isOlder = false
    this.#playCluster()
  }

  /** Returns an independent copy with the same state. */
  copy(): Simulation<For, State> {
    return new Simulation(this.#reconciler, this.#options, this)
  }

  get now(): Date {
    return this.memory.now
  }

  /** The reconciled object; undefined if it does not exist. */
  get object(): StoredBy<For> | undefined {
    return this.memory.find(this.#primary) as StoredBy<For> | undefined
  }

  /**
   * The state of the external system, which steps and tests may change. Undefined for a function without an external
   * system.
   */
  get external(): State {
    return this.#external?.state as State
  }

  /** Effects that the external system has accepted, in order. */
  get effects(): readonly Effect[] {
    return this.#external?.taken ?? []
  }

  /**
   * Calls `around` for each later effect; `perform` passes the effect to the external system. Throw to make an effect
   * fail, or return its result.
   */
  aroundEffects(around: (effect: Effect, perform: () => Promise<unknown>) => Promise<unknown>): void {
    if (this.#external !== undefined) this.#external.around = around
  }

  list<K extends Kind<unknown>>(kind: K): StoredBy<K>[] {
    return this.memory.all().filter((object) => isOfKind(object, kind)) as StoredBy<K>[]
  }

  /**
   * Merges the patch into objects as another client, such as a kubelet into the status of a pod. Without a name: into
   * all objects of the kind.
   */
  patch(kind: Kind<unknown>, patch: object, name?: string): void {
    for (const object of ofName(this.memory.all(), kind, name)) this.memory.patch(object, patch)
    this.#playCluster()
  }

  /** Merges the patch into the reconciled object as a user. */
  edit(patch: object): void {
    this.#asUser(() => this.memory.patch(this.#primary, patch))
    this.#playCluster()
  }

  create(object: KubeObject): void {
    this.#asUser(() => this.memory.create(object))
    this.#playCluster()
  }

  /** Deletes objects. Without a kind: the reconciled object. Without a name: all objects of the kind. */
  delete(kind?: Kind<unknown>, name?: string): void {
    for (const object of kind === undefined ? [this.#primary] : ofName(this.memory.all(), kind, name)) {
      const old = this.memory.find(object)
      if (old !== undefined) this.#asUser(() => this.#admitted({ old }))
      this.memory.delete(object)
    }
    this.#playCluster()
  }

  #asUser(write: () => unknown): void {
    this.#isUser = true
    try {
      write()
    } finally {
      this.#isUser = false
    }
  }

  #admitted(write: Pick<AdmittedWrite, 'object' | 'old'>, isOlder = false): KubeObject {
    return admitted(this.#reconciler, this.#isUser ? { ...write, groups: this.groups } : write, isOlder)
  }

  /**
   * Makes the API server refuse later writes of objects of that kind: of an owned object, or of labels, annotations and
   * the deletion of the reconciled object. Without a name: of all objects of the kind.
   */
  refuse(kind: Kind<unknown>, reason = 'Forbidden', name?: string): void {
    this.#refused = [...this.#refused, { kind, reason, name }]
  }

  /** A quota: the API server refuses to create more than so many objects of the kind, with `QuotaExceeded`. */
  limit(kind: Kind<unknown>, most: number): void {
    this.#refused = [...this.#refused, { kind, reason: 'QuotaExceeded', name: undefined, most }]
  }

  /** Whether a `limit` refuses another object of the kind. */
  isFull(kind: Kind<unknown>): boolean {
    return this.#refused.some((one) => one.most !== undefined && isSameKind(one.kind, kind) && this.#isFull(one))
  }

  /** Ends the refusals of `refuse` and `limit`. Without a kind: all of them. */
  admit(kind?: Kind<unknown>): void {
    this.#refused = kind === undefined ? [] : this.#refused.filter((one) => !isSameKind(one.kind, kind))
  }

  /**
   * Runs until no run is due at this time. Rejects with the errors of the function, except those with a consequence of
   * their own: a TerminalError, a RetryAfterError, a refused write. An outcome that is not valid is no such error. If it
   * never becomes idle, the error says who goes on, the function or the cluster, and with which fields.
   */
  async runUntilIdle(): Promise<void> {
    this.beforeRuns()
    for (let [runs, steps] = [0, 0]; runs < MAX_RUNS && steps <= MAX_STEPS; ) {
      const left = await this.#runOnce()
      if (this.failure instanceof UnsettledError) throw await this.#neverIdle(this.failure)
      if (this.failure !== undefined && !this.#isMeant) throw this.failure
      if (left === 'nothing') return
      if (left === 'a step') steps++
      else runs++
    }
    throw await this.#neverIdle()
  }

  /** Makes one run. Returns why there may be another one at this time. */
  async #runOnce(): Promise<'nothing' | 'a step' | 'a run'> {
    const before = this.writes.length + this.effects.length
    await this.run()
    if (this.#playCluster()) return 'a step'
    const isDue = this.timer !== undefined && this.timer <= this.now
    return this.writes.length + this.effects.length === before && !isDue ? 'nothing' : 'a run'
  }

  #neverIdle(within?: UnsettledError): Promise<NeverIdle> {
    const { inputs, failure, now, timer, writes, effects } = this
    const seen = { inputs, within, failure, now, timer, writes, effects }
    return neverIdle(this.#reconciler, seen, (reconciler) => this.#traced(reconciler))
  }

  /** Returns what further runs change. This simulation stays as it is. */
  async #traced(reconciler: Reconciler<For>): Promise<Loop> {
    const world = new Simulation(reconciler, this.#options, this)
    const loop = new Loop(this.object)
    world.memory.changed = (before, after) => loop.note(world.#isPlaying ? 'cluster' : 'function', before, after)
    for (let runs = 0; runs < MAX_TRACED && !loop.isSeen && !loop.hasEnded; runs++)
      loop.hasEnded = (await world.#runOnce()) === 'nothing'
    return loop
  }

  /** Advances the clock without runs, so the next run is late. */
  pass(seconds: number): void {
    this.memory.now = new Date(this.now.getTime() + seconds * 1000)
    this.#playCluster()
  }

  /**
   * Advances the clock, and runs at each timer and at each change that the cluster makes by time alone. First it runs what
   * is pending, such as after `delete()`.
   */
  async advance(seconds: number): Promise<void> {
    if (this.#seen !== this.memory.version) await this.runUntilIdle()
    const end = this.now.getTime() + seconds * 1000
    for (let polls = 0; ; ) {
      const next = Math.min(...[this.timer, this.clusterTimer].map((one) => one?.getTime() ?? Number.POSITIVE_INFINITY))
      if (next > end) break
      const before = { time: this.now.getTime(), version: this.memory.version, effects: this.effects.length }
      this.memory.now = new Date(Math.max(next, before.time))
      this.#playCluster()
      await this.runUntilIdle()
      const isIdle = this.memory.version === before.version && this.effects.length === before.effects
      polls = isIdle && next - before.time <= POLL_MS ? polls + 1 : 0
      if (polls === MOST_POLLS) throw polling(this.#reconciler.name, (next - before.time) / 1000, polls)
    }
    this.pass((end - this.now.getTime()) / 1000)
  }

  /**
   * Makes the first change of `play`, and no other one before the next run: the function sees each state on the way.
   * `play` is ended at its second change, and is called again after that run.
   */
  oneByOne(play: () => unknown): unknown {
    if (!this.#mayStep || this.isRunning) return undefined
    const { memory } = this
    const { beforeChange } = memory
    let changes = 0
    memory.beforeChange = () => {
      if (changes > 0) throw INTERRUPTED
      changes++
      this.#mayStep = false
    }
    try {
      return play()
    } catch (error) {
      if (error === INTERRUPTED) return undefined
      throw error
    } finally {
      memory.beforeChange = beforeChange
    }
  }

  /** Makes one run, as a dispatcher does. A failure is kept in `failure`. */
  async run({ isDry = false } = {}): Promise<void> {
    this.timer = undefined
    this.failure = undefined
    this.isRunning = true
    this.#mayStep = true
    this.#runs++
    this.#seen = this.memory.version
    if (this.#ranAt !== undefined && this.#ranAt < this.now) this.ranBefore = this.#ranAt
    this.#ranAt = this.now
    const { finish, failure } = await reconcileOnce(this.#simulatedRun(isDry)).finally(() => (this.isRunning = false))
    this.failure = failure
    const isMistake = failure instanceof TerminalError && MISTAKES.includes(failure.reason)
    this.#isMeant = !isMistake && MEANT.some((meant) => failure instanceof meant)
    if (finish.kind !== 'error') this.#attempt = 0
    else if (finish.isCounted !== false) this.#attempt++
    if (finish.kind === 'requeue') this.timer = dueDate(finish.at, this.now)
    if (finish.kind === 'error') this.timer = dueDate(finish.retryAt, this.now)
  }

  /** Returns the writes of one dry run, which ends before its first effect. The cluster stays unchanged. */
  async dryRun(): Promise<SimulatedWrite[]> {
    const copy = this.copy()
    await copy.run({ isDry: true })
    return copy.writes
  }

  /** Records an Event once, even if it is reported several times. */
  #tell(event: EventReport): void {
    const isTold = this.events.some(({ reason, message }) => reason === event.reason && message === event.message)
    if (!isTold) this.events.push(event)
  }

  #simulatedRun(isDry: boolean): SimulatedRun {
    return {
      reconciler: this.#reconciler,
      memory: this.memory,
      noOps: this.#noOps,
      external: this.#external,
      isDry,
      attempt: this.#attempt,
      seed: `run ${this.draw ?? this.#runs}`,
      primary: () => this.memory.find(this.#primary),
      refusal: (write) => this.#refusalOf(write),
      before: (write) => this.before(write),
      wrote: (write) => {
        this.writes.push(write)
        this.#playCluster()
      },
      decides: (input, outcome) => void (this.inputs.push(input), this.outcomes.push(outcome)),
      tells: (event) => this.#tell(event),
    }
  }

  /** Status and finalizers are never refused. */
  #refusalOf({ verb, object }: SimulatedWrite): string | undefined {
    if (verb === 'status' || verb === 'finalizers') return undefined
    const { name } = object.metadata
    const refuses = (one: RefusedKind): boolean =>
      isOfKind(object, one.kind) &&
      (one.name ?? name) === name &&
      (one.most === undefined || (this.memory.find(object) === undefined && this.#isFull(one)))
    return this.#refused.find(refuses)?.reason
  }

  #isFull({ kind, most = 0 }: RefusedKind): boolean {
    return this.list(kind).length >= most
  }

  /** Returns whether the rest of the cluster has changed something. */
  #playCluster(): boolean {
    const { cluster = [] } = this.#options
    const parts: readonly Controller<For, State>[] = typeof cluster === 'function' ? [cluster] : cluster
    if (this.#isPlaying || this.isAlone || parts.length === 0) return false
    this.#isPlaying = true
    const { version, changed } = this.memory
    const loop = new Loop(this.object)
    try {
      for (let reactions = 0; reactions < MAX_REACTIONS; reactions++) {
        const before = this.memory.version
        // The error shows the last ones.
        if (reactions === MAX_REACTIONS - 4) this.memory.changed = (old, young) => loop.note('cluster', old, young)
        const times = parts.map((part) => this.#timeOf(this.isStepwise ? this.oneByOne(() => part(this)) : part(this)))
        if (this.memory.version !== before) continue
        this.clusterTimer = times.filter((time) => time !== undefined).sort((one, other) => +one - +other)[0]
        return before !== version
      }
      throw new Error(
        `"cluster" still changes something when it is called for the ${MAX_REACTIONS}th time: ${theirChange(loop)}`,
      )
    } finally {
      this.memory.changed = changed
      this.#isPlaying = false
    }
  }

  /** The time of the next change that a part of the cluster has returned. */
  #timeOf(returned: unknown): Date | undefined {
    return returned instanceof Date && returned > this.now ? returned : undefined
  }
}

/**
 * Returns a simulation of one object. Throws an Error if the first of `objects` is not of the kind that the function
 * reconciles. Failures of the function are in `failure`; `runUntilIdle` rejects with those that the function does not
 * intend.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object] })
 * await world.runUntilIdle()
 * world.list(ConfigMap)[0]?.data // => { 'index.html': 'hi' }
 */
export const simulate = <For extends Kind<unknown>, State = unknown>(
  reconciler: Reconciler<For>,
  options: SimulationOptions<NoInfer<For>, State>,
): Simulation<For, State> => new Simulation(reconciler, options)
