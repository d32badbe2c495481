import { isRecord, type KubeObject } from '#contracts'
import { CONTESTED, CONTESTED_ANNOTATION, PAUSED, RECONCILED } from '#reconcile'
import type { Reconciler } from '#sdk'
import { CONTESTS, PATCH_RECORDS, recordIn } from '#spec'
import { fixedFieldsOf } from './admitted.ts'
import { decided, declares, invokeOf, isOfKind, nameOf } from './given.ts'
import { die, type Trial } from './scenario.ts'
import { Crash } from './simulated-run.ts'
import type { Simulation } from './simulation.ts'

interface Happening {
  world: Simulation
  /** Passes the effect to the external system. */
  perform: () => Promise<unknown>
  /** Passes the effect to the external system after a newer run has ended. */
  late: () => void
}

/** The disturbance of one effect. Returns the result that the platform receives, or throws. */
type Fate = (happening: Happening) => Promise<unknown>

const fails = (): never => {
  throw new Error('the answer of the external system is lost')
}

const SAME_END: Record<string, Record<string, Fate>> = {
  'comes to the same end if its process dies before or after any effect': {
    'its process dies before effect': async () => die(),
    'its process dies after effect': async ({ perform }) => {
      await perform()
      return die()
    },
  },
  'comes to the same end if an effect is performed twice': {
    'two times effect': async ({ perform }) => {
      await perform()
      return perform()
    },
  },
  'comes to the same end if an effect fails, whether it was performed or not': {
    'a failed effect': async () => fails(),
    'an effect that is performed and reported as failed': async ({ perform }) => {
      await perform()
      return fails()
    },
  },
  'comes to the same end if an effect is reported as performed before it is, or never is': {
    'an effect that is reported as performed, and is not': async () => null,
    'a delayed effect': async ({ late }) => {
      late()
      return null
    },
  },
  'comes to the same end if a process that has lost its key performs an effect late': {
    'a stalled process that performs effect': async ({ late }) => {
      late()
      return die()
    },
    'a timed out process that performs effect': async ({ late }) => {
      late()
      return fails()
    },
  },
}

const GOES: Record<string, Fate> = {
  'the object is deleted before effect': async ({ world, perform }) => {
    if (world.object !== undefined) world.delete()
    return perform()
  },
  'the object is deleted after effect': async ({ world, perform }) => {
    const result = await perform()
    if (world.object !== undefined) world.delete()
    return result
  },
}

/** Rejects if a function breaks the law in the scenario of the trial. */
export type Law = (trial: Trial) => Promise<void>

/** The laws for functions with an external system. */
export const EFFECT_LAWS: Record<string, Law> = {
  ...Object.fromEntries(
    Object.entries(SAME_END).map(([law, fates]) => [law, (trial: Trial) => comesToTheSameEnd(trial, fates)]),
  ),
  'leaves the external system as its finalizer does, if its object goes before or after any effect': cleansUp,
}

async function comesToTheSameEnd(trial: Trial, fates: Record<string, Fate>): Promise<void> {
  const { scenario } = trial
  const end = (world: Simulation): unknown => scenario.endOf?.(world) ?? withoutFailure(withoutHistory(stateOf(world)))
  for await (const { start, when } of trial.starts()) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    for await (const { world, what } of ends(trial, start, fates))
      trial.same({ end: end(world) }, { end: end(undisturbed) }, `it ends otherwise: ${what}, ${when}`, {
        world,
        undisturbed,
      })
  }
}

export async function cleansUp(trial: Trial): Promise<void> {
  if (trial.reconciler.finalize === undefined) return
  const left = (world: Simulation): unknown => ({
    object: world.object,
    external: trial.scenario.endOf?.(world) ?? world.external,
  })
  for await (const { start, when } of trial.starts()) {
    const undisturbed = start()
    await undisturbed.runUntilIdle()
    if (undisturbed.object !== undefined) undisturbed.delete()
    await undisturbed.runUntilIdle()
    for await (const { world, what } of ends(trial, start, GOES))
      trial.same(left(world), left(undisturbed), `something else is left if ${what}, ${when}`, {
        world,
        undisturbed,
      })
  }
}

/** Worlds that became idle after this disturbance of their first, second, … effect. */
async function* ends(
  trial: Trial,
  start: () => Simulation,
  fates: Record<string, Fate>,
): AsyncGenerator<{ world: Simulation; what: string }> {
  for (const [name, fate] of Object.entries(fates))
    yield* trial.cases(async (at) => {
      const world = start()
      const kind = await disturb(world, at, fate)
      if (kind === undefined) return undefined
      // A copy of the world: the process that continues knows only the stored state.
      const next = world.copy()
      await next.runUntilIdle()
      return { world: next, what: `${name} ${kind}` }
    })
}

/** Returns the kind of the disturbed effect; undefined if there was no such effect. */
async function disturb(world: Simulation, at: number, fate: Fate): Promise<string | undefined> {
  let [seen, kind]: [number, string | undefined] = [0, undefined]
  let late: (() => Promise<unknown>) | undefined
  world.aroundEffects((effect, perform) => {
    if (seen++ !== at) return perform()
    kind = effect.kind
    return fate({ world, perform, late: () => (late = perform) })
  })
  await world.runUntilIdle().catch((error: unknown) => {
    if (!(error instanceof Crash)) throw error
  })
  if (late === undefined) return kind
  await world.runUntilIdle()
  // The external system may refuse the late effect.
  await late().catch(() => undefined)
  return kind
}

/** The time for which another manager keeps changing a field, 50 ms after each correction. */
const FIGHT_S = 1200
const THEIR_PAUSE_S = 0.05
/** The limit of corrections in that time. */
const MOST_CORRECTIONS = 20
/** Longer than the longest delay of a correction, and than the time after which a fight counts as over. */
const AFTERWARDS_S = 1200

export async function survivesFights(trial: Trial): Promise<void> {
  // It fights once, wherever the scenario has a field for it first: that is the only case.
  for await (const { start, when, isTried } of trial.starts({ all: true }))
    for (let candidate = 0; ; candidate++) {
      const world = start()
      await world.runUntilIdle()
      const contested = (await contestedIn(world, trial.reconciler))[candidate]
      if (contested === undefined) break
      trial.goesOn(`${when}, while another manager sets ${contested.field}`)
      if (await isFollowed(world, contested)) continue
      if (isTried) await fight(trial, world, contested, when)
      return
    }
}

/** Another manager sets the field once. True: the function takes that value as its own, so there is no fight. */
async function isFollowed(world: Simulation, { object, theirs }: Contested): Promise<boolean> {
  const { length } = world.writes
  world.memory.patch(object, theirs)
  await world.runUntilIdle()
  return !declaredOtherwise(world, object) && correctionsOf(world, object, length) === 0
}

async function fight(
  trial: Trial,
  world: Simulation,
  { object, theirs, field }: Contested,
  when: string,
): Promise<void> {
  const { length } = world.writes
  for (const end = world.now.getTime() + FIGHT_S * 1000; world.now.getTime() < end; ) {
    if (world.memory.find(object) === undefined) return
    world.memory.patch(object, theirs)
    await world.runUntilIdle()
    const dueMs = world.timer === undefined ? Number.POSITIVE_INFINITY : world.timer.getTime() - world.now.getTime()
    const isTheirs = declaredOtherwise(world, object)
    if (correctionsOf(world, object, length) > MOST_CORRECTIONS) break
    await world.advance(isTheirs ? Math.min(dueMs / 1000, 60) : THEIR_PAUSE_S)
  }
  const isRare = correctionsOf(world, object, length) <= MOST_CORRECTIONS
  trial.demand(isRare, `a fight over ${field} costs more than ${MOST_CORRECTIONS} writes in 20 minutes, ${when}`)
  await world.advance(AFTERWARDS_S)
  trial.demand(!declaredOtherwise(world, object), `${field} is not as declared after a fight over it, ${when}`)
  trial.demand(!isContested(world), `the object is shown as contested after the fight over ${field}, ${when}`)
}

const correctionsOf = ({ writes }: Simulation, { kind, metadata }: KubeObject, from: number): number =>
  writes
    .slice(from)
    .filter(({ verb, object }) => verb === 'apply' && object.kind === kind && object.metadata.name === metadata.name)
    .length

interface Contested {
  object: KubeObject
  /** A patch that sets the field to another value. */
  theirs: object
  field: string
}

/** Returns a field of each owned object that the function declares now: what it has retained, nobody may declare. */
async function contestedIn(world: Simulation, reconciler: Reconciler): Promise<Contested[]> {
  const input = world.inputs.at(-1)
  if (world.object === undefined || input === undefined) return []
  const applied = reconciler.owns.filter(({ strategy }) => strategy === 'Apply')
  const decision = await decided(invokeOf(reconciler), input)
  const objects = world.memory
    .all()
    .filter((one) => applied.some((kind) => isOfKind(one, kind)) && declares(decision, one))
  return objects.flatMap((object) => {
    const declared = world.memory.declared(object)
    if (declared === undefined) return []
    const { apiVersion: _, kind, metadata, ...content } = declared
    const theirs = changed(withoutFixed(object, content), kind)
    return theirs ? [{ object, theirs: theirs.patch, field: `${theirs.field} of ${kind} ${metadata.name}` }] : []
  })
}

/** Nobody can fight over a field that the API server lets nobody change. */
function withoutFixed(object: KubeObject, { spec, ...content }: Record<string, unknown>): Record<string, unknown> {
  if (!isRecord(spec)) return content
  const fixed = fixedFieldsOf(object) ?? {}
  return { ...content, spec: Object.fromEntries(Object.entries(spec).filter(([field]) => !(field in fixed))) }
}

/** Changes the first number or text. A text with a capital or a digit first may be one of a set, a quantity, a time or a schedule. */
function changed(
  content: Record<string, unknown>,
  kind: string,
  path = '',
): { patch: object; field: string } | undefined {
  const isEncoded = path === '.binaryData' || (kind === 'Secret' && path === '.data')
  for (const [name, value] of Object.entries(content)) {
    const field = `${path}.${name}`
    if (typeof value === 'string' && (/^\.(data|binaryData|stringData)\./.test(field) || /^[a-z]/.test(value)))
      return { patch: { [name]: isEncoded ? longer(value) : `${value}x` }, field }
    if (typeof value === 'number') return { patch: { [name]: value + 1 }, field }
    const inside = isRecord(value) ? changed(value, kind, field) : undefined
    if (inside !== undefined) return { patch: { [name]: inside.patch }, field: inside.field }
  }
  return undefined
}

/** The API server takes nothing but base64 in these fields. */
const longer = (value: string): string =>
  Buffer.concat([Buffer.from(value, 'base64'), Buffer.from('x')]).toString('base64')

function declaredOtherwise({ memory }: Simulation, object: KubeObject): boolean {
  const declared = memory.declared(object)
  return declared !== undefined && memory.takenBack(declared).length > 0
}

function isContested({ object }: Simulation): boolean {
  const { conditions = [] } = (object?.status ?? {}) as { conditions?: { type: string; status: string }[] }
  return conditions.some(({ type, status }) => type === CONTESTED && status === 'True')
}

/** The mark of another writer. It does not count when states are compared. */
export const TOUCHED = 'testing.fairlead.dev/touched'

/** The state that laws compare. Versions, counts of writes and the time of the next retry do not count. */
export function stateOf({ memory, timer, failure, external }: Simulation): unknown {
  const objects = Object.fromEntries(memory.all().map((object) => [nameOf(object), withoutVersion(object)]))
  const outside = external === undefined ? {} : { external: structuredClone(external) }
  return { objects, ...outside, ...(failure === undefined ? { timer } : { failure: failure.message }) }
}

const OBSERVED = 'observedGeneration'
const HISTORY = new Set(['uid', 'creationTimestamp', OBSERVED, 'lastTransitionTime'])

/** Removes what differs between the ways to the same state: which object of that name it is, and times of changes. */
export const withoutHistory = (state: unknown): unknown => withoutFields(state, HISTORY)

/** Removes the condition of an earlier pause, and the times of transitions, which a pause may hide. */
export const withoutPause = (state: unknown): unknown =>
  withoutCondition(withoutFields(state, new Set(['lastTransitionTime'])), PAUSED)

const withoutFields = (state: unknown, fields: ReadonlySet<string>): unknown =>
  JSON.parse(JSON.stringify(state), (field, value: unknown) => (fields.has(field) ? undefined : value))

/** Removes the condition of an earlier failed run. */
export const withoutFailure = (state: unknown): unknown => withoutCondition(state, RECONCILED)

const withoutCondition = (state: unknown, type: string): unknown =>
  JSON.parse(JSON.stringify(state), (_, value: unknown) =>
    withoutEmpty(Array.isArray(value) ? value.filter((one: { type?: unknown } | null) => one?.type !== type) : value),
  )

/** Treats an empty object as a missing one. */
const withoutEmpty = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0 ? undefined : value

/** A generation counts the writes of a spec. Whether a status is of the present one is a part of the state. */
function withoutVersion({ metadata, status, ...content }: KubeObject): object {
  const { resourceVersion: _, generation, annotations = {}, ...kept } = metadata
  const others = Object.fromEntries(
    Object.entries(annotations)
      .filter(([name]) => name !== TOUCHED && !isContest(name))
      .map(([name, text]) => [name, name.startsWith(PATCH_RECORDS) ? withoutContests(metadata, name) : text]),
  )
  const observed = (field: string, value: unknown) =>
    field === OBSERVED ? (value === generation ? 'the present one' : 'an earlier one') : value
  const shown = status === undefined ? {} : { status: JSON.parse(JSON.stringify(status), observed) as unknown }
  return { ...content, ...shown, metadata: { ...kept, annotations: others } }
}

const withoutContests = (metadata: KubeObject['metadata'], annotation: string): unknown => {
  const record = recordIn(metadata, annotation)
  return record.length === 0
    ? metadata.annotations?.[annotation]
    : record.map((one) => ({ ...one, contest: undefined }))
}

export function permutations<T>(items: readonly T[]): T[][] {
  if (items.length <= 1) return [[...items]]
  return items.flatMap((first, index) => permutations(items.toSpliced(index, 1)).map((rest) => [first, ...rest]))
}

/** The count of corrections does not count when states are compared. */
const isContest = (annotation: string): boolean =>
  annotation === CONTESTED_ANNOTATION || annotation.startsWith(CONTESTS)
