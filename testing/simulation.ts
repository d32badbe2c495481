import {
  type Effect,
  type EventReport,
  type KubeObject,
  RetryAfterError,
  type RunInput,
  TerminalError,
} from '#contracts'
import { dueDate } from '#queue/terms'
import { EffectError, RefusedError, SettledWrites } from '#reconcile'
import type { Kind, Reconciler } from '#sdk'
import { type ExternalModel, type SimulatedExternal, simulatedExternal } from './external.ts'
import { isOfKind, timeOf } from './given.ts'
import { type Identity, Memory } from './memory.ts'
import { reconcileOnce, type SimulatedRun, type SimulatedWrite } from './simulated-run.ts'
import type { StoredBy } from './stored.ts'

/**
 * The options of `simulate()`. `now` defaults to 2030-01-01T00:00:00Z.
 *
 * @example
 * import { deploymentsRun, type SimulationOptions } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const options: SimulationOptions<typeof Website> = { objects: [object], cluster: (world) => deploymentsRun(world as never) }
 * options.objects.length // => 1
 */
export interface SimulationOptions<For extends Kind<unknown> = Kind<unknown>, State = unknown> {
  /** The first one is reconciled; the others are simply there. */
  objects: readonly KubeObject[]
  now?: Date | string
  /** Plays the rest of the cluster: called after each change, again and again until it changes nothing more. */
  cluster?(simulation: Simulation<For, State>): void
  /** Of what the function manages outside of Kubernetes. */
  external?: ExternalModel<For, State>
}

interface RefusedKind {
  kind: Kind<unknown>
  reason: string
  name: string | undefined
}

/** Runs at one moment before the function counts as one that never becomes idle. */
const MAX_RUNS = 20
/** Failures that a function means, or that the cluster answers with: they are shown on the object. */
const MEANT = [TerminalError, RetryAfterError, RefusedError, EffectError]
/** Changes in a row that the rest of the cluster may make. */
const MAX_REACTIONS = 100

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
  readonly #settled = new SettledWrites()
  readonly #external: SimulatedExternal | undefined
  /** When the function, or a failure, wants the next run. */
  timer: Date | undefined
  /** How the last run failed. */
  failure: Error | undefined
  readonly writes: SimulatedWrite[] = []
  readonly events: EventReport[] = []
  /** All that the function was given, in order. */
  readonly inputs: RunInput[] = []
  /** Called before each write: whatever may happen right then. */
  before: (write: SimulatedWrite) => void = () => {}
  /** In a cluster each run draws other secrets. Here a run does so after this text has changed. */
  draw = ''
  #refused: readonly RefusedKind[] = []
  #attempt = 0
  /** Whether the last failure has a consequence of its own, other than to be tried again. */
  #isMeant = false
  #isPlaying = false

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
    this.#refused = from === undefined ? [] : from.#refused
    if (from !== undefined) return
    for (const object of options.objects) this.memory.create(object)
    this.#playCluster()
  }

  /** The same state, to go another way from here. */
  copy(): Simulation<For, State> {
    return new Simulation(this.#reconciler, this.#options, this)
  }

  get now(): Date {
    return this.memory.now
  }

  /** The object that is reconciled; undefined when it is gone. */
  get object(): StoredBy<For> | undefined {
    return this.#stored as StoredBy<For> | undefined
  }

  /** The state of the external system, which steps and tests may change. Undefined: the function has none. */
  get external(): State {
    return this.#external?.state as State
  }

  /** Effects that the external system has taken, in order. */
  get effects(): readonly Effect[] {
    return this.#external?.taken ?? []
  }

  /**
   * From now on this happens to each effect instead: `perform` passes it to the external system. Throw for an effect that
   * fails, return its result for one that succeeds.
   */
  aroundEffects(around: (effect: Effect, perform: () => Promise<unknown>) => Promise<unknown>): void {
    if (this.#external !== undefined) this.#external.around = around
  }

  list<K extends Kind<unknown>>(kind: K): StoredBy<K>[] {
    return this.memory.all().filter((object) => isOfKind(object, kind)) as StoredBy<K>[]
  }

  /** Somebody else merges this into objects, e.g. a kubelet into the status of a pod. Without a name: into all. */
  patch(kind: Kind<unknown>, patch: object, name?: string): void {
    for (const object of this.#named(kind, name)) this.memory.patch(object, patch)
    this.#playCluster()
  }

  /** Somebody merges this into the object that is reconciled. */
  edit(patch: object): void {
    this.memory.patch(this.#primary, patch)
    this.#playCluster()
  }

  create(object: KubeObject): void {
    this.memory.create(object)
    this.#playCluster()
  }

  /** Without a kind: the object that is reconciled. Without a name: all of the kind. */
  delete(kind?: Kind<unknown>, name?: string): void {
    for (const object of kind === undefined ? [this.#primary] : this.#named(kind, name)) this.memory.delete(object)
    this.#playCluster()
  }

  /**
   * From now on the API server refuses to write objects of that kind: an owned one, or labels, annotations and the deletion
   * of the object that is reconciled. Without a name: all of them.
   */
  refuse(kind: Kind<unknown>, reason = 'Forbidden', name?: string): void {
    this.#refused = [...this.#refused, { kind, reason, name }]
  }

  /** Ends what `refuse` began. Without a kind: all of it. */
  admit(kind?: Kind<unknown>): void {
    const isOther = (one: Kind<unknown>) => one.kind !== kind?.kind || one.group !== kind.group
    this.#refused = kind === undefined ? [] : this.#refused.filter((one) => isOther(one.kind))
  }

  /**
   * Runs until there is nothing to do at this time. Rejects with what the function throws, unless its consequence was
   * meant: a TerminalError, a RetryAfterError, a refused write.
   */
  async runUntilIdle(): Promise<void> {
    for (let runs = 0; runs < MAX_RUNS; runs++) {
      const before = this.writes.length + this.effects.length
      await this.run()
      if (this.failure !== undefined && !this.#isMeant) throw this.failure
      const isDue = this.timer !== undefined && this.timer <= this.now
      if (this.writes.length + this.effects.length === before && !isDue) return
    }
    const { name } = this.#reconciler
    throw new Error(
      `${name} never becomes idle: after ${MAX_RUNS} runs at one moment it writes, or wants to run, again`,
    )
  }

  /** Lets time pass without runs: the next run is late. */
  pass(seconds: number): void {
    this.memory.now = new Date(this.now.getTime() + seconds * 1000)
    this.#playCluster()
  }

  /** Lets time pass; timers fire at their time. */
  async advance(seconds: number): Promise<void> {
    const end = this.now.getTime() + seconds * 1000
    while (this.timer !== undefined && this.timer.getTime() <= end) {
      this.memory.now = new Date(Math.max(this.timer.getTime(), this.now.getTime()))
      await this.runUntilIdle()
    }
    this.pass((end - this.now.getTime()) / 1000)
  }

  /** One run, as in a dispatcher. It survives a failure and keeps it in `failure`. */
  async run({ isDry = false } = {}): Promise<void> {
    this.timer = undefined
    this.failure = undefined
    const { finish, failure } = await reconcileOnce(this.#simulatedRun(isDry))
    this.failure = failure
    this.#isMeant = MEANT.some((meant) => failure instanceof meant)
    this.#attempt = finish.kind === 'error' || finish.kind === 'terminal' ? this.#attempt + 1 : 0
    if (finish.kind === 'requeue') this.timer = dueDate(finish.at, this.now)
    if (finish.kind === 'error') this.timer = dueDate(finish.retryAt, this.now)
  }

  /** The writes of one run, as a dry run shows them: it ends before its first effect. The cluster stays as it is. */
  async dryRun(): Promise<SimulatedWrite[]> {
    const copy = this.copy()
    await copy.run({ isDry: true })
    return copy.writes
  }

  /** The same thing twice is one Event. */
  #tell(event: EventReport): void {
    const isTold = this.events.some(({ reason, message }) => reason === event.reason && message === event.message)
    if (!isTold) this.events.push(event)
  }

  #simulatedRun(isDry: boolean): SimulatedRun {
    return {
      reconciler: this.#reconciler,
      memory: this.memory,
      settled: this.#settled,
      external: this.#external,
      isDry,
      attempt: this.#attempt,
      draw: this.draw,
      primary: () => this.#stored,
      refusal: (write) => this.#refusalOf(write),
      before: (write) => this.before(write),
      wrote: (write) => {
        this.writes.push(write)
        this.#playCluster()
      },
      decidesOn: (input) => void this.inputs.push(input),
      tells: (event) => this.#tell(event),
    }
  }

  /** Status and finalizers of the object are no part of what a test refuses. */
  #refusalOf({ verb, object }: SimulatedWrite): string | undefined {
    if (verb === 'status' || verb === 'finalizers') return undefined
    const { name } = object.metadata
    return this.#refused.find((one) => isOfKind(object, one.kind) && (one.name ?? name) === name)?.reason
  }

  get #stored(): KubeObject | undefined {
    return this.memory.find(this.#primary)
  }

  #playCluster(): void {
    if (this.#isPlaying || this.#options.cluster === undefined) return
    this.#isPlaying = true
    try {
      for (let reactions = 0; reactions < MAX_REACTIONS; reactions++) {
        const before = this.memory.version
        this.#options.cluster(this)
        if (this.memory.version === before) return
      }
      throw new Error(`"cluster" still changes something when it is called for the ${MAX_REACTIONS}th time`)
    } finally {
      this.#isPlaying = false
    }
  }

  #named(kind: Kind<unknown>, name: string | undefined): KubeObject[] {
    const found = this.memory
      .all()
      .filter((one) => isOfKind(one, kind) && (name ?? one.metadata.name) === one.metadata.name)
    if (name !== undefined && found.length === 0) throw new Error(`there is no ${kind.kind} ${name}`)
    return found
  }
}
