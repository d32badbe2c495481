import { isDeepStrictEqual } from 'node:util'
import { firstOwnPlace } from '#contracts'
import type { Kind, Reconciler } from '#sdk'
import { changesBetween, FoundAnywhere, LawBroken } from './broken.ts'
import { seriesOf } from './given.ts'
import { Crash, type SimulatedWrite } from './simulated-run.ts'
import { Simulation, type SimulationOptions } from './simulation.ts'

/**
 * A change from outside of the function: its name in messages, and the change.
 *
 * @example
 * import { type Step, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const [, grows]: Step<typeof Website> = ['the website grows', (world) => world.edit({ spec: { replicas: 3 } })]
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object] })
 * await grows(world)
 * world.object?.spec.replicas // => 3
 */
export type Step<For extends Kind<unknown> = Kind<unknown>, State = unknown> = readonly [
  what: string,
  change: (world: Simulation<For, State>) => void | Promise<void>,
]

/**
 * A simulation with the changes that happen to it. `lawsOf` replays it, disturbed at every write.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * import { lawsOf, type Scenario } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const scenario: Scenario<typeof Website> = {
 *   objects: [object],
 *   steps: [['its ConfigMap is deleted', (world) => world.delete(ConfigMap)]],
 * }
 * lawsOf(website, scenario).length // => 15
 */
export interface Scenario<For extends Kind<unknown> = Kind<unknown>, State = unknown>
  extends SimulationOptions<For, State> {
  /** The changes in their order. Changes in a nested list come in any order. */
  steps?: readonly (Step<For, State> | readonly Step<For, State>[])[]
  /**
   * Returns the state to compare after disturbed effects.
   *
   * @default all objects, and the state of the external system
   */
  endOf?(world: Simulation<For, State>): unknown
  /**
   * How long `finalize` may wait for others that do nothing, in seconds. Infinity: for ever.
   *
   * @default 86400
   */
  finalizeSeconds?: number
  /** The laws that are not tried, by name, each with the reason, which the name of its test has. */
  leftOut?: Readonly<Record<string, string>>
}

interface Start {
  /** Returns a new world with possible work. */
  start: () => Simulation
  when: string
  /** Whether it is among the cases to try. */
  isTried: boolean
}

/** A world that became idle after the disturbance of a write. */
export interface Disturbed {
  world: Simulation
  write: string
  /** The same world when the disturbed run had ended: of a process that died, what it has left. */
  dead: Simulation
}

/** Where a value that two worlds share was found, and what it is compared with. */
interface Compared {
  world?: Simulation
  undisturbed?: Simulation
  sides?: readonly [string, string]
}

/** The variable that selects one case of a law. */
export const CASE = 'FAIRLEAD_CASE'

/** One law on one scenario: its cases, and the error of the first one that does not hold. */
export class Trial {
  readonly reconciler: Reconciler
  readonly scenario: Scenario
  /** The numbers of the case: of the start, of the disturbance, and of the disturbed write. */
  #case: number[] = []
  #when = ''
  /** Undefined: all cases. */
  readonly #only: readonly number[] | undefined
  /** Whether the case that is selected exists. */
  #isFound = false
  /** Whether there was something to check. */
  hasChecked = false
  /** Why there was nothing, if the law knows it better than its name does. */
  why: string | undefined
  /** What its scenario leaves out, although the law holds. */
  note: string | undefined

  constructor(reconciler: Reconciler, scenario: Scenario, only: string | undefined) {
    this.reconciler = reconciler
    this.scenario = scenario
    this.#only = only === undefined || only === '' ? undefined : only.split('.').map(Number)
  }

  /** Begins a case. Returns whether it is to be tried. */
  begins(number: number, when: string): boolean {
    this.#case = [number]
    this.#when = when
    const isTried = this.#only === undefined || this.#only[0] === number
    if (isTried && this.#only?.[2] === undefined) this.#isFound = true
    return isTried
  }

  /** Says what of the case is under way. */
  goesOn(when: string): void {
    this.#when = when
  }

  /** Whether the cases of this kind are tried, which are part of the case that has begun. */
  get isWhole(): boolean {
    return this.#only?.[1] === undefined
  }

  /** Whether one case is tried, and no other one. */
  get isAlone(): boolean {
    return this.#only !== undefined
  }

  /** Undefined: all cases. Otherwise the one that is selected and does not exist. */
  get missing(): string | undefined {
    return this.#isFound ? undefined : this.#only?.join('.')
  }

  /** Returns the initial world. Its runs draw the same values, so that two ways to one end can be compared. */
  world(changes: Partial<SimulationOptions> = {}): Simulation {
    const { steps: _, ...options } = this.scenario
    const world = new Simulation(this.reconciler, { ...options, ...changes })
    world.draw = 'the same in each run'
    // Laws delete and pause objects as Kubernetes itself does.
    world.groups = undefined
    return world
  }

  /**
   * Yields the initial world, the world after each step, and the world after the deletion of its object; before it, the
   * worlds at the moments of that step at which the function writes. `all`: those that are not to be tried too.
   */
  async *starts({ all = false } = {}): AsyncGenerator<Start> {
    const { steps = [] } = this.scenario
    const world = this.world()
    const known = new Set<string>()
    let number = 0
    const begins = (from: Simulation, when: string): Start[] => {
      const isTried = this.begins(number++, when)
      return isTried || all ? [{ start: () => from.copy(), when, isTried }] : []
    }
    const momentsOf = async function* (change: Step[1], when: string): AsyncGenerator<Start> {
      for (const { start, writes } of await momentsIn(world, change)) {
        if (writes === '' || known.has(writes)) continue
        known.add(writes)
        yield* begins(start, `${when}, when it is ${start.now.toISOString()}`)
      }
    }
    yield* begins(world, 'at the start')
    await world.runUntilIdle()
    for (const [what, change] of steps.flatMap(asGroup)) {
      // An error of the function in the step is told with the case that follows.
      this.begins(number, `in "${what}"`)
      yield* momentsOf(change, `in "${what}"`)
      yield* begins(world, `after "${what}"`)
      await world.runUntilIdle()
    }
    if (world.object === undefined) return
    world.delete()
    yield* begins(world, 'after its deletion')
    await world.runUntilIdle()
    this.begins(number, 'after its deletion')
    yield* momentsOf(toItsEnd, 'after its deletion')
  }

  /** Yields worlds that became idle after this disturbance of their first, second, … write. */
  disturbances(
    start: () => Simulation,
    happens: (world: Simulation, write: SimulatedWrite) => void,
  ): AsyncGenerator<Disturbed> {
    return this.cases((at) => disturbed(start, at, happens))
  }

  /** Yields the first, second, … case of a disturbance, until there is none. */
  async *cases<Case>(make: (at: number) => Promise<Case | undefined>): AsyncGenerator<Case> {
    const [start = 0, before = -1] = this.#case
    for (let at = 0; ; at++) {
      this.#case = [start, before + 1, at]
      const isOther = this.#only?.[1] !== undefined && this.#only[1] !== before + 1
      const isBefore = at < (this.#only?.[2] ?? 0)
      if (isOther) return
      if (isBefore) continue
      const made = await make(at)
      if (made === undefined) {
        // There is no such case: an error that follows is told with all cases of the kind.
        this.#case = [start, before + 1]
        return
      }
      this.#isFound = true
      yield made
      if (this.#only?.[2] !== undefined) return
    }
  }

  /** Throws if both differ. */
  same(actual: unknown, expected: unknown, message: string, { world, undisturbed, sides }: Compared = {}): void {
    this.hasChecked = true
    if (isDeepStrictEqual(actual, expected)) return
    const isTheirs = world?.failure === undefined && undisturbed?.failure !== undefined
    throw new LawBroken(message, {
      lines: changesBetween(expected, actual),
      sides: sides ?? (undisturbed && ['undisturbed', 'disturbed']),
      because: world?.failure ?? undisturbed?.failure,
      ...(isTheirs && { where: 'undisturbed' }),
    })
  }

  /** Throws if it is not so. The message says it all. */
  demand(isSo: boolean, message: string, found: { because?: Error | undefined; lines?: readonly string[] } = {}): void {
    this.hasChecked = true
    if (!isSo) throw new LawBroken(message, found)
  }

  /** Throws if there is something that should not be. */
  none(found: readonly string[], message: string, world?: Simulation): void {
    this.demand(found.length === 0, message, { because: world?.failure, lines: found.map((one) => `+ ${one}`) })
  }

  /** Returns the error of the case that was tried last, with the command that tries it again. */
  told(error: unknown, repeat: (which: string) => string): LawBroken {
    const [broken, when] =
      error instanceof FoundAnywhere
        ? [error, `, ${this.#when}`]
        : error instanceof LawBroken
          ? [error, '']
          : [new LawBroken(`this happens in the case that begins ${this.#when}`, { because: error as Error }), '']
    return broken.inCase(when, repeat(this.#case.join('.')))
  }
}

/** Returns the command that repeats one case of one law, for the test runner that is running. */
export function commandOf(which: string, law: string, caller: string | undefined): string {
  const file = caller === undefined ? '' : ` ${caller}`
  const setting = `${CASE}=${which}`
  if (process.env['VITEST'] !== undefined) return `${setting} npx vitest run${file} -t '${law}'`
  return `${setting} node --test --test-name-pattern='${law}'${file}`
}

/** Returns the author's outermost file that is calling, relative to the root of its package: that of the test. */
export function callingFile(): string | undefined {
  const frames = new Error('where').stack?.split('\n').slice(1) ?? []
  return firstOwnPlace(frames.toReversed())?.replace(/:\d+:\d+$/, '')
}

interface Moment {
  start: Simulation
  /** What the function writes then, without numbers. */
  writes: string
}

/** Makes the change, and returns the moments at which the function runs meanwhile. */
async function momentsIn(world: Simulation, change: Step[1]): Promise<Moment[]> {
  const moments: { start: Simulation; from: number }[] = []
  world.beforeRuns = () => void moments.push({ start: world.copy(), from: world.writes.length })
  await change(world)
  world.beforeRuns = () => {}
  return moments.map(({ start, from }, index) => {
    const writes = world.writes.slice(from, moments[index + 1]?.from)
    return { start, writes: writes.map(({ verb, object }) => `${verb} of ${seriesOf(object)}`).join(', ') }
  })
}

/** Lets time pass for a finalizer that waits for the cluster, or for its own timers. */
async function toItsEnd(world: Simulation): Promise<void> {
  await rest(world)
  for (let timers = 0; timers < MOST_TIMERS && world.object !== undefined && world.timer !== undefined; timers++) {
    await world.advance(Math.max(0, world.timer.getTime() - world.now.getTime()) / 1000)
    await rest(world)
  }
}

/** How many timers of a finalizer are followed. */
const MOST_TIMERS = 3

async function disturbed(
  start: () => Simulation,
  at: number,
  happens: (world: Simulation, write: SimulatedWrite) => void,
): Promise<Disturbed | undefined> {
  const world = start()
  const write = await runDisturbed(world, at, happens)
  if (write === undefined) return undefined
  // A copy of the world: the process that continues knows only the stored state.
  const next = world.copy()
  await next.runUntilIdle()
  return { world: next, write, dead: world }
}

/** Runs until neither the function nor the cluster has anything to do at this time, nor the cluster later on. */
export async function rest(world: Simulation): Promise<void> {
  await world.runUntilIdle()
  for (let changes = 0; changes < MOST_CHANGES && world.clusterTimer !== undefined; changes++)
    await world.advance((world.clusterTimer.getTime() - world.now.getTime()) / 1000)
}

/** The limit of changes that a cluster makes by time alone. */
const MOST_CHANGES = 40

/** Lets so many seconds pass at most for what waits, with a run at each timer. */
export async function waitFor(isOver: () => boolean, world: Simulation, seconds: number): Promise<void> {
  const end = world.now.getTime() + seconds * 1000
  while (!isOver() && world.now.getTime() < end) {
    const timers = [world.timer, world.isAlone ? undefined : world.clusterTimer].filter((one) => one !== undefined)
    if (timers.length === 0) return
    const early = world.now.getTime() + (seconds * 1000) / MOST_WAKES
    const next = Math.max(early, Math.min(...timers.map((one) => one.getTime())))
    world.pass((Math.min(next, end) - world.now.getTime()) / 1000)
    await world.runUntilIdle()
  }
}

/** What asks more often than so many times in that time runs late. */
const MOST_WAKES = 100

/** How long `finalize` may wait if the scenario has no limit, or none that ends. */
const FINALIZE_S = 86_400

/** Lets time pass until the object is gone, or the limit of its finalizer is over. Returns that limit in seconds. */
export async function waitForItsEnd(world: Simulation, { finalizeSeconds = FINALIZE_S }: Scenario): Promise<number> {
  const seconds = Number.isFinite(finalizeSeconds) ? finalizeSeconds : FINALIZE_S
  await waitFor(() => world.object === undefined, world, seconds)
  return seconds
}

export const die = (): never => {
  throw new Crash()
}

/** Returns undefined if there is no such write. */
export async function runDisturbed(
  world: Simulation,
  at: number,
  happens: (world: Simulation, write: SimulatedWrite) => void,
): Promise<string | undefined> {
  let writes = 0
  let disturbed: string | undefined
  world.before = (write) => {
    if (writes++ !== at) return
    disturbed = `${write.verb} of ${write.object.kind} ${write.object.metadata.name}`
    happens(world, write)
  }
  await world.runUntilIdle().catch((error: unknown) => {
    if (!(error instanceof Crash)) throw error
  })
  return disturbed
}

const isStep = (step: Step | readonly Step[]): step is Step => typeof step[0] === 'string'

export const asGroup = (step: Step | readonly Step[]): readonly Step[] => (isStep(step) ? [step] : step)
