import { setImmediate } from 'node:timers/promises'
import type { Effect, KubeObject } from '#contracts'
import { RECONCILED } from '#reconcile'
import type { Kind, Reconciler } from '#sdk'
import { PATCH_RECORDS, PAUSED_ANNOTATION, retainerOf } from '#spec'
import { changesBetween, FoundAnywhere, LawBroken } from './broken.ts'
import { CHANGE_LAWS, isAsNew, keepsServing, NOTHING_CHANGED } from './change-laws.ts'
import { decidesTheSame, takesAnyOrder } from './decision-laws.ts'
import {
  cleansUp,
  EFFECT_LAWS,
  type Law,
  stateOf,
  survivesFights,
  TOUCHED,
  withoutFailure,
  withoutHistory,
  withoutPause,
} from './effect-laws.ts'
import { isOfKind, nameOf, seriesOf } from './given.ts'
import { contentOf } from './never-idle.ts'
import {
  asGroup,
  CASE,
  callingFile,
  commandOf,
  type Disturbed,
  die,
  rest,
  runDisturbed,
  type Scenario,
  Trial,
  waitForItsEnd,
} from './scenario.ts'
import type { SimulatedWrite } from './simulated-run.ts'
import type { Simulation } from './simulation.ts'
import { endsAlone, WAY_LAWS, WAY_UNTRIED } from './way-laws.ts'

/**
 * Returns the laws that every reconciler must satisfy, as rows of a test runner. Each plays the scenario in memory,
 * disturbed in its own way (crashes, conflicts, refused writes, pauses), and rejects with the difference that it finds.
 * With the context of a test (`test(law, holds)`), a law that has nothing to check skips the test; otherwise it passes
 * with a warning in the log. Writes no files and needs no cluster. Throws a RangeError if `leftOut` names no law.
 *
 * @example
 * import { deploymentsRun, lawsOf } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const rows = lawsOf(website, { objects: [object], cluster: deploymentsRun })
 * for (const [, holds] of rows.slice(0, 2)) await holds()
 * rows[1]?.[0] // => 'writes nothing when it runs again, at once or a second later'
 */
export function lawsOf<For extends Kind<unknown>, State = unknown>(
  reconciler: Reconciler<For>,
  scenario: Scenario<NoInfer<For>, State>,
): LawRow[] {
  const caller = callingFile()
  return lawsRepeatedBy(reconciler, scenario, (which, law) => commandOf(which, law, caller))
}

type LawRow = [law: string, holds: (context?: unknown) => Promise<void>]

/** As lawsOf(). `repeat`: returns the command that repeats one case of a law. */
export function lawsRepeatedBy<For extends Kind<unknown>, State = unknown>(
  reconciler: Reconciler<For>,
  scenario: Scenario<NoInfer<For>, State>,
  repeat: (which: string, law: string) => string,
): LawRow[] {
  const changing = Object.entries(CHANGE_LAWS).flatMap(([law, [check, isAbout]]): [string, Law][] =>
    isAbout(reconciler) ? [[law, check]] : [],
  )
  const effects = reconciler.external === undefined ? {} : EFFECT_LAWS
  const acts = reconciler.acts === undefined ? {} : ACT_LAWS
  const laws = [...Object.entries(LAWS), ...changing, ...Object.entries(acts), ...Object.entries(effects)]
  const told = new Map<string, string>()
  const { leftOut = {} } = scenario
  for (const law of Object.keys(leftOut))
    if (!laws.some(([name]) => name === law)) throw new RangeError(noLaw(law, laws))
  return laws.map(([law, check]): LawRow => {
    if (leftOut[law] !== undefined) return leftOutRow(law, leftOut[law])
    const why = UNTRIED.get(check)?.(scenario as Scenario, reconciler)
    const name = why === undefined ? law : `${law} (not tried: ${why})`
    const trial = () => new Trial(reconciler, scenario as Scenario, process.env[CASE])
    return [name, (context) => holds(check, trial(), { law, isNamed: why !== undefined, repeat, told }, context)]
  })
}

const noLaw = (law: string, laws: readonly [string, Law][]): string =>
  `leftOut has "${law}", which is no law of this reconciler: ${laws.map(([name]) => `"${name}"`).join(', ')}`

/** Returns the row of a law that its author leaves out. A test runner shows it as skipped if it gives its context. */
const leftOutRow = (law: string, why: string): LawRow => [
  `${law} (left out: ${why})`,
  async (context) => {
    if (isContext(context)) context.skip(`left out: ${why}`)
  },
]

/** The part of the context of a test that this uses: of `node:test`, and of vitest. */
interface TestContext {
  skip(note: string): unknown
}

interface Asked {
  law: string
  /** Whether its name says already that it is not tried. */
  isNamed: boolean
  repeat: (which: string, law: string) => string
  /** The laws that have told an error of the function. */
  told: Map<string, string>
}

/** Rejects with the error of the case that does not hold. An error of the function is told by one law of the scenario. */
async function holds(
  check: Law,
  trial: Trial,
  { law, isNamed, repeat, told }: Asked,
  context?: unknown,
): Promise<void> {
  // The test runner reports the law before: laws themselves never wait for anything.
  await setImmediate()
  try {
    await check(trial)
  } catch (error) {
    const broken = error instanceof LawBroken ? error : new FoundAnywhere('', { because: error as Error })
    const { because } = broken
    // A case that is repeated alone tells all.
    const teller = (!trial.isAlone && because && told.get(because)) || law
    if (because !== undefined) told.set(because, teller)
    throw teller === law ? trial.told(error, (which) => repeat(which, law)) : broken.asToldBy(teller)
  }
  const { missing } = trial
  if (missing !== undefined)
    throw new Error(`${CASE} is ${missing}, and this law has no such case for ${trial.reconciler.name}`)
  if (trial.note !== undefined && !trial.isAlone) console.warn(trial.note)
  const why = trial.why ?? NOTHING_TO_CHECK.get(check) ?? 'there is nothing to check'
  if (!trial.hasChecked && !isNamed) notTried(law, why, context)
}

/** A test runner shows the law as skipped if it gives its context; otherwise the reason goes to its log. */
function notTried(law: string, why: string, context: unknown): void {
  if (isContext(context)) context.skip(`not tried: ${why}`)
  else console.warn(`${law} (not tried: ${why})`)
}

const isContext = (context: unknown): context is TestContext =>
  typeof (context as Partial<TestContext> | undefined)?.skip === 'function'

const LAWS: Record<string, Law> = {
  'decides the same on the same state, whatever the order of its lists': decidesTheSame,
  'writes nothing when it runs again, at once or a second later': writesNothingTwice,
  'comes to the same end if its process dies between any two writes': survivesCrashes,
  'comes to the same end if another client writes first': survivesConflicts,
  'writes little while others fight it over a field, and sets the field again afterwards': survivesFights,
  'comes to the same end if a write is refused for some time': survivesRefusals,
  'writes nothing while it is paused, and comes to the same end when it is resumed': survivesPauses,
  'leaves nothing behind if its object goes in the middle of a run': leavesNothingBehind,
  'keeps what it retains when its object goes, at any moment': keepsWhatItRetains,
  'comes to the same end in whatever order changes come, one by one or at once': takesAnyOrder,
  ...WAY_LAWS,
}

const ACT_LAWS: Record<string, Law> = { 'asks for no act whose result is there': asksForNoMore }

const isDisordered = ({ steps = [] }: Scenario): boolean => steps.some((step) => asGroup(step).length > 1)

/** Why a scenario tries no case of a law; undefined if it may try one. */
const UNTRIED = new Map<Law, (scenario: Scenario, reconciler: Reconciler) => string | undefined>([
  [takesAnyOrder, (scenario) => (isDisordered(scenario) ? undefined : 'its steps have no nested list')],
  [keepsServing, ({ cluster }) => (cluster === undefined ? 'it has no cluster' : undefined)],
  [isAsNew, ({ steps = [] }) => (steps.length === 0 ? 'it has no steps' : undefined)],
  [cleansUp, (_, reconciler) => (reconciler.finalize === undefined ? 'there is no finalize' : undefined)],
  [
    endsAlone,
    ({ finalizeSeconds }, reconciler) => {
      if (reconciler.finalize === undefined) return 'there is no finalize'
      return finalizeSeconds === Number.POSITIVE_INFINITY ? 'finalizeSeconds is Infinity' : undefined
    },
  ],
])

/** Why a law that ran had nothing to check. */
const NOTHING_TO_CHECK = new Map<Law, string>([
  [survivesCrashes, 'nothing is written'],
  [survivesConflicts, 'nothing is written'],
  [survivesRefusals, 'nothing is written that can be refused'],
  [leavesNothingBehind, 'nothing is written'],
  [keepsWhatItRetains, 'nothing is retained'],
  ...NOTHING_CHANGED,
  ...WAY_UNTRIED,
  [asksForNoMore, 'no act is performed'],
  [
    survivesFights,
    'this law found no field that it declares and does not take over: a text or number outside of lists and metadata',
  ],
  ...Object.values(EFFECT_LAWS).map((law): [Law, string] => [law, 'no effect is performed']),
])

async function writesNothingTwice(trial: Trial): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const world = start()
    await world.runUntilIdle()
    const before = stateOf(world)
    world.draw = 'another run'
    await world.run()
    trial.same(stateOf(world), before, `a run with nothing to do has changed something, ${when}`, {
      sides: ['before the run', 'after it'],
    })
    const late = world.copy()
    await demandNothingLater(trial, world, when)
    if (late.timer === undefined || late.failure !== undefined) continue
    // A function that makes up for one period at each run needs few of them.
    late.pass((LATE * (late.timer.getTime() - late.now.getTime())) / 1000)
    await late.runUntilIdle()
    if (late.failure === undefined) await demandNothingLater(trial, late, `${when}, if its timer fires late`)
  }
}

/** How late a timer fires: so many times as much time passes as it waits for. */
const LATE = 2.5

async function demandNothingLater(trial: Trial, world: Simulation, when: string): Promise<void> {
  const { length } = world.writes
  const effects = world.effects.length
  world.pass(aMoment(world))
  const before = new Map(world.memory.all().map((one) => [nameOf(one), one]))
  await world.run()
  const found = { because: world.failure, lines: written(world.writes.slice(length), before) }
  trial.demand(
    found.lines.length === 0,
    `a run a moment later, before its timer, writes the time or so, ${when}`,
    found,
  )
  trial.none(
    performed(world.effects.slice(effects)),
    `a run a moment later, before its timer, performs an effect, ${when}`,
  )
}

/** Returns the writes, each with the fields that it has changed. */
const written = (writes: readonly SimulatedWrite[], before: ReadonlyMap<string, KubeObject>): string[] =>
  writes.flatMap((write) => {
    const { object } = write
    const found = before.get(nameOf(object))
    const fields = found === undefined ? [] : changesBetween(contentOf(found), contentOf(object))
    return [...sent([write]).map((one) => `+ ${one}`), ...fields.map((line) => `  ${line}`)]
  })

/** Another process does not remember the acts of this one, and sees their results. */
async function asksForNoMore(trial: Trial): Promise<void> {
  const acted = new Set<string>(trial.reconciler.acts?.map(({ act }) => act.toLowerCase()))
  for await (const { start, when } of trial.starts()) {
    const world = start()
    await world.runUntilIdle()
    const next = world.copy()
    await next.run()
    const [first, again] = [world, next].map(({ writes }) => sent(writes.filter(({ verb }) => acted.has(verb))))
    if ([...(first ?? []), ...(again ?? [])].length > 0)
      trial.none(again ?? [], `it asks for an act again whose result is there, ${when}`, next)
  }
}

const performed = (effects: readonly Effect[]): string[] => effects.map((effect) => JSON.stringify(effect))

const sent = (writes: readonly SimulatedWrite[]): string[] =>
  writes.map(({ verb, object }) => `${verb} of ${nameOf(object)}`)

/** Returns a second, or less if a timer fires, or the cluster changes something, earlier. */
const aMoment = ({ now, timer, clusterTimer }: Simulation): number =>
  Math.min(1, ...[timer, clusterTimer].flatMap((next) => (next ? [(next.getTime() - now.getTime()) / 2000] : [])))

async function survivesCrashes(trial: Trial): Promise<void> {
  await comesToTheSameEnd(trial, 'the process dies', die, async ({ before, undisturbed }, { dead, write }, when) => {
    const [end, late] = [undisturbed.copy(), dead.copy()]
    for (const world of [end, late]) {
      world.pass(RESTART_S)
      await world.runUntilIdle()
    }
    const again = madeAgain({ before, end, dead, late })
    const message = `it makes again what is there if the process dies before ${write}, and the next run is a minute later`
    trial.none(again, `${message}, ${when}`, late)
  })
}

/** How long after the death of a process the next one runs: a name by the second or minute is another one then. */
const RESTART_S = 60

/**
 * Returns what the late run has made beside one of its series that the process had made before it died. What was there
 * before that process is other work.
 */
function madeAgain(worlds: Record<'before' | 'end' | 'dead' | 'late', Simulation>): string[] {
  const ofSeries = (world: Simulation, series: string) => world.memory.all().filter((one) => seriesOf(one) === series)
  const isIn = (world: Simulation, one: KubeObject) => world.memory.find(one) !== undefined
  const { before, end, dead, late } = worlds
  return late.memory
    .all()
    .filter((one) => !isIn(end, one) && !isIn(dead, one))
    .filter((one) => {
      const series = seriesOf(one)
      const isMade = ofSeries(dead, series).some((earlier) => !isIn(before, earlier))
      return isMade && ofSeries(late, series).length > ofSeries(end, series).length
    })
    .map(nameOf)
}

async function survivesConflicts(trial: Trial): Promise<void> {
  const touch = (world: Simulation, { object }: SimulatedWrite): void => {
    const target = world.memory.find(object) ?? world.object
    if (target !== undefined) world.memory.patch(target, { metadata: { annotations: { [TOUCHED]: 'true' } } })
  }
  await comesToTheSameEnd(trial, 'another client writes', touch)
}

async function survivesRefusals(trial: Trial): Promise<void> {
  const { owns, for: own, acts = [], patches = [] } = trial.reconciler
  const kinds = [...owns, own, ...acts, ...patches]
  for await (const { start, when } of trial.starts()) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    let isRefused = false
    // Status and finalizers are never refused, and a write that would change nothing is not needed.
    const isNeeded = ({ verb, object }: SimulatedWrite): boolean =>
      verb !== 'status' &&
      verb !== 'finalizers' &&
      undisturbed.writes.some((one) => one.verb === verb && nameOf(one.object) === nameOf(object))
    const refuse = (world: Simulation, write: SimulatedWrite): void => {
      const kind = isNeeded(write) ? kinds.find((one) => isOfKind(write.object, one)) : undefined
      isRefused = kind !== undefined
      if (kind !== undefined) world.refuse(kind, 'Forbidden', write.object.metadata.name)
    }
    for await (const { world, write } of trial.disturbances(start, refuse)) {
      if (!isRefused) continue
      const isGivenUp = world.failure !== undefined && world.timer === undefined && undisturbed.failure === undefined
      const { failure: because } = world
      trial.demand(!isGivenUp, `it is not tried again if the ${write} is refused, ${when}`, { because })
      world.admit()
      await world.runUntilIdle()
      const [end, expected] = [world, undisturbed].map((one) => withoutFailure(withoutHistory(stateOf(one))))
      const message = `it ends otherwise if the ${write} is refused for some time, ${when}`
      trial.same(end, expected, `${message}${adviceOnReady(world, undisturbed)}`, { world, undisturbed })
    }
  }
}

/** Fairlead has set Ready to False for the refusal, and knows its status of before, not its reason. */
function adviceOnReady(world: Simulation, undisturbed: Simulation): string {
  const [is, expected] = [world, undisturbed].map(readyIn)
  if (is?.reason !== RECONCILED || expected === undefined || expected.reason === RECONCILED) return ''
  const called = world.object?.metadata.deletionTimestamp === undefined ? 'reconcile' : 'finalize'
  return `: a refusal sets Ready to False, and "${called}" returns no Ready afterwards, so only its status is restored. Return it on each path, such as conditions: [{ type: 'Ready', status: 'False', reason: 'Deleting' }]`
}

function readyIn({ object }: Simulation): { reason?: string } | undefined {
  const { conditions = [] } = (object?.status ?? {}) as { conditions?: { type: string; reason?: string }[] }
  return conditions.find(({ type }) => type === 'Ready')
}

async function comesToTheSameEnd(
  trial: Trial,
  what: string,
  happens: (world: Simulation, write: SimulatedWrite) => void,
  checks?: (worlds: Record<'before' | 'undisturbed', Simulation>, disturbed: Disturbed, when: string) => Promise<void>,
): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    for await (const disturbed of trial.disturbances(start, happens)) {
      const { world, write } = disturbed
      trial.same(stateOf(world), stateOf(undisturbed), `it ends otherwise if ${what} before ${write}, ${when}`, {
        world,
        undisturbed,
      })
      await checks?.({ before: start(), undisturbed }, disturbed, when)
    }
  }
}

async function survivesPauses(trial: Trial): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    const resumedEnd = async (paused: Simulation): Promise<unknown> => {
      if (paused.object !== undefined) pause(paused, null)
      await paused.runUntilIdle()
      return withoutPause(stateOf(paused))
    }
    const atOnce = start()
    if (atOnce.object === undefined) continue
    pause(atOnce, 'true')
    const dead = atOnce.copy()
    await runDisturbed(dead, 0, die)
    for (const paused of trial.isWhole ? [atOnce, dead.copy()] : []) {
      await paused.runUntilIdle()
      const written = paused.writes.filter(
        ({ verb, object }) => verb !== 'status' || object.kind !== trial.reconciler.for.kind,
      )
      trial.none(sent(written), `something is written while it is paused, ${when}`)
      trial.same(
        await resumedEnd(paused),
        withoutPause(stateOf(undisturbed)),
        `it ends otherwise after a pause, ${when}`,
        { world: paused, undisturbed },
      )
    }
    for await (const { world, write } of trial.disturbances(start, (one) => one.object && pause(one, 'true')))
      trial.same(
        await resumedEnd(world),
        withoutPause(stateOf(undisturbed)),
        `it ends otherwise if it is paused before ${write}, ${when}`,
        { world, undisturbed },
      )
  }
}

const pause = (world: Simulation, value: 'true' | null): void =>
  world.edit({ metadata: { annotations: { [PAUSED_ANNOTATION]: value } } })

async function leavesNothingBehind(trial: Trial): Promise<void> {
  const mayWait = trial.scenario.finalizeSeconds === Number.POSITIVE_INFINITY
  for await (const { start, when } of trial.starts()) {
    for await (const { world, write } of trial.disturbances(start, (one) => one.object && one.delete())) {
      await rest(world)
      const seconds = await waitForItsEnd(world, trial.scenario)
      const { object, timer, failure } = world
      if (object !== undefined && mayWait && failure === undefined) continue
      world.memory.collectGarbage()
      const left = world.memory.all().filter(({ metadata }) => metadata.ownerReferences !== undefined)
      const asks =
        timer === undefined ? '' : `, whose "finalize" asks to run again at ${timer.toISOString()}, after ${seconds} s`
      const found = [...(object === undefined ? [] : [`${nameOf(object)}${asks}`]), ...left.map(nameOf)]
      trial.none(found, `something is left if it is deleted before ${write}, ${when}`, world)
      const kept = world.memory.withFieldsOf(PATCH_RECORDS)
      trial.none(kept, `fields of others are not given back if it is deleted before ${write}, ${when}`, world)
    }
  }
}

/**
 * Retained objects survive the deletion of their owner. Objects that the function releases in the same run may be lost:
 * the deletion may come while that write is under way.
 */
async function keepsWhatItRetains(trial: Trial): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    const wanted = retainedIn(undisturbed)
    if (wanted.length === 0) continue
    let retained: KubeObject[] = []
    const goes = (world: Simulation): void => {
      retained = []
      if (world.object === undefined) return
      retained = retainedIn(world).filter((one) => wanted.some(({ metadata }) => metadata.uid === one.metadata.uid))
      world.delete()
    }
    const keeps = (world: Simulation, moment: string): void => {
      if (retained.length === 0) return
      world.memory.collectGarbage()
      const left = new Set(world.memory.all().map(({ metadata }) => metadata.uid))
      const lost = retained.filter(({ metadata }) => !left.has(metadata.uid))
      trial.none(lost.map(nameOf), `what it retains is gone if it is deleted ${moment}, ${when}`)
    }
    for await (const { world, write } of trial.disturbances(start, goes)) {
      await rest(world)
      keeps(world, `before ${write}`)
    }
    for await (const world of trial.cases(async (at) => (at === 0 ? undisturbed : undefined))) {
      goes(world)
      await rest(world)
      keeps(world, 'when it is idle')
    }
  }
}

const retainedIn = ({ memory }: Simulation): KubeObject[] =>
  memory.all().filter((object) => retainerOf(object) !== undefined)
