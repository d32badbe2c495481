import type { KubeObject, RunInput } from '#contracts'
import { sameJson } from '#reconcile'
import { Deployment, Job, type Kind, type ObservedBy, Pod, StatefulSet } from '#sdk'
import { identityOf } from '#spec'
import { fixedChanges, fixedFieldsOf } from './admitted.ts'
import { LawBroken } from './broken.ts'
import { timesIn } from './changes.ts'
import type { Law } from './effect-laws.ts'
import { decided, declares, invokeOf, isOfKind, isOwned, nameOf, prepared } from './given.ts'
import { asStored } from './memory.ts'
import { rest, type Trial, waitForItsEnd } from './scenario.ts'
import type { Simulation } from './simulation.ts'

/** The laws about the way: what a function does on it, where an end that is right would hide it. */
export const WAY_LAWS: Record<string, Law> = {
  'deletes nothing that is ready and makes it again, whatever changes, is lost or is not ready for a time':
    remakesNothing,
  'sets a timer for each time at which it decides otherwise, such as one that its status promises': setsItsTimers,
  'ends its finalizer within its limit when nobody helps': endsAlone,
}

/** Why these laws had nothing to check. */
export const WAY_UNTRIED: readonly (readonly [Law, string])[] = [
  [remakesNothing, 'no object of its own is ready'],
  [setsItsTimers, 'it fails in each state'],
  [endsAlone, 'its object is always gone'],
]

async function remakesNothing(trial: Trial): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const idle = start()
    idle.isStepwise = true
    if (trial.isWhole) await demandNoRemake(trial, idle, () => rest(idle), when)
    else await rest(idle)
    const losses = lossesIn(idle, trial)
    for await (const [what, loss] of trial.cases(async (at) => losses[at])) {
      const world = idle.copy()
      await demandNoRemake(trial, world, () => loss(world), `${what}, ${when}`)
    }
  }
}

type Loss = readonly [what: string, happens: (world: Simulation) => Promise<void>]

/** Each object that the function sees is lost, or not ready for a time. */
function lossesIn({ memory, object }: Simulation, { reconciler }: Trial): Loss[] {
  if (object === undefined) return []
  const identity = identityOf(reconciler.name, prepared(reconciler).spec)
  const seen = [...reconciler.owns, ...reconciler.related]
  const others = memory
    .all()
    .filter((one) => seen.some((kind) => isOfKind(one, kind)) && nameOf(one) !== nameOf(object))
  return others.flatMap((one): Loss[] => {
    const lost: Loss = isOwned(one, object, identity)
      ? [`if ${nameOf(one)} is deleted`, (world) => isLost(world, one)]
      : [`if ${nameOf(one)} is deleted for a time`, (world) => isAway(world, one)]
    return [lost, ...unready(one)]
  })
}

async function isLost(world: Simulation, one: KubeObject): Promise<void> {
  world.memory.delete(one)
  await rest(world)
}

async function isAway(world: Simulation, one: KubeObject): Promise<void> {
  await isLost(world, one)
  if (world.memory.find(one) === undefined) world.create(one)
  await rest(world)
}

/** The statuses of what is not ready. */
const UNREADY: readonly [kind: Kind<unknown>, status: object][] = [
  [Deployment, { readyReplicas: 0, availableReplicas: 0 }],
  [StatefulSet, { readyReplicas: 0, availableReplicas: 0 }],
  [Pod, { conditions: [{ type: 'Ready', status: 'False', lastTransitionTime: '2030-01-01T00:00:00Z' }] }],
]

function unready(one: KubeObject): Loss[] {
  const [, status] = UNREADY.find(([kind]) => isOfKind(one, kind)) ?? []
  if (status === undefined || one['status'] === undefined) return []
  const happens = async (world: Simulation): Promise<void> => {
    const before = world.memory.find(one)?.['status'] as Record<string, unknown> | undefined
    world.isAlone = true
    world.memory.patch(one, { status })
    await world.runUntilIdle()
    world.isAlone = false
    const again = Object.keys(status).map((field) => [field, before?.[field] ?? null])
    if (world.memory.find(one)?.metadata.uid === one.metadata.uid)
      world.memory.patch(one, { status: Object.fromEntries(again) })
    await rest(world)
  }
  return [[`if ${nameOf(one)} is not ready for a time`, happens]]
}

async function demandNoRemake(
  trial: Trial,
  world: Simulation,
  happens: () => Promise<void>,
  when: string,
): Promise<void> {
  const { reconciler } = trial
  const isRecreated = (one: KubeObject) =>
    reconciler.owns.some((kind) => kind.strategy === 'Recreate' && isOfKind(one, kind))
  const deleted = new Map<string, Deletion>()
  const early: Deletion[] = []
  const remade: [what: string, Deletion][] = []
  world.before = ({ verb, object }) => {
    const [name, found] = [nameOf(object), world.memory.find(object)]
    const deletion = deleted.get(name)
    if (verb === 'delete' && found !== undefined && isReady(found)) {
      const made = { found, input: world.inputs.at(-1), earlier: world.ranBefore }
      deleted.set(name, made)
      if (standInsOf(world, found).every(({ status }) => !status?.readyReplicas)) early.push(made)
    } else if (found !== undefined || deletion === undefined) return
    else if (sameJson(contentOf(object), contentOf(deletion.found)))
      remade.push([`${name} is deleted and made again as it was`, deletion])
    else if (!isRecreated(object) && mayChange(object, deletion.found))
      remade.push([`${name} is deleted and made again`, deletion])
  }
  const isAnyThere = (): boolean =>
    world.memory.all().some((one) => reconciler.owns.some((kind) => isOfKind(one, kind)) && isReady(one))
  trial.hasChecked ||= isAnyThere()
  await happens()
  trial.hasChecked ||= isAnyThere()
  for (const deletion of early) {
    const [other] = standInsOf(world, deletion.found)
    const isKept = world.memory.find(deletion.found) !== undefined
    if (other === undefined || isKept || isRecreated(other)) continue
    remade.push([
      `${nameOf(deletion.found)} is deleted while ${nameOf(other)}, which takes its place, is not ready`,
      deletion,
    ])
  }
  for (const [what, deletion] of remade) {
    if (await isDue(trial, deletion)) continue
    throw new LawBroken(`${what}, ${when}`, {
      because: world.failure,
      lines: world.writes.map(({ verb, object }) => `${verb} of ${nameOf(object)}`),
    })
  }
}

type DeploymentObject = ObservedBy<typeof Deployment>

/**
 * Returns the Deployments under other names whose pods have the labels and images of this one, which is ready. With other
 * images, without replicas, or if it recreates its pods, a gap may be meant.
 */
function standInsOf(world: Simulation, object: KubeObject): DeploymentObject[] {
  if (!isOfKind(object, Deployment)) return []
  const { spec, status } = object as DeploymentObject
  if (!status?.readyReplicas || !spec || spec.strategy?.type === 'Recreate') return []
  const imagesOf = (one: DeploymentObject) => one.spec?.template?.spec?.containers.map(({ image }) => image)
  return world
    .list(Deployment)
    .filter((one) => nameOf(one) !== nameOf(object) && one.metadata.namespace === object.metadata.namespace)
    .filter((one) => one.spec?.replicas !== 0)
    .filter(
      (one) =>
        sameJson(one.spec?.selector, spec.selector) && sameJson(imagesOf(one), imagesOf(object as DeploymentObject)),
    )
}

interface Deletion {
  found: KubeObject
  /** What the function has decided on. */
  input: RunInput | undefined
  /** The time of the last run before. */
  earlier: Date | undefined
}

/** Whether the time is the reason of a deletion: earlier, the function would have kept the object. */
async function isDue({ reconciler }: Trial, { found, input, earlier }: Deletion): Promise<boolean> {
  if (input === undefined || earlier === undefined) return false
  const decision = await decided(invokeOf(reconciler), { ...input, now: earlier.toISOString() })
  return (decision as { throws?: string }).throws !== undefined || declares(decision, found)
}

/** Whether the object could have been changed into the other one, and its pods would have stayed. */
const mayChange = (object: KubeObject, before: KubeObject): boolean =>
  fixedFieldsOf(object) !== undefined && fixedChanges(object, before).length === 0

/** Only what is ready is missed. An object without a status counts as ready. */
function isReady(object: KubeObject): boolean {
  const { status = {} } = object as { status?: Record<string, unknown> }
  const {
    phase,
    readyReplicas,
    conditions = [],
  } = status as {
    phase?: string
    readyReplicas?: number
    conditions?: { type: string; status: string }[]
  }
  const has = (type: string, is: string) => conditions.some((one) => one.type === type && one.status === is)
  if (isOfKind(object, Job)) return !has('Failed', 'True')
  if (isOfKind(object, Pod)) return phase !== 'Failed' && phase !== 'Succeeded' && !has('Ready', 'False')
  if (isOfKind(object, Deployment) || isOfKind(object, StatefulSet)) return (readyReplicas ?? 1) > 0
  return !has('Ready', 'False')
}

/** What a function declares of an object. */
function contentOf(object: KubeObject): unknown {
  const { metadata, status: _, ...content } = asStored(object) as KubeObject & { status?: unknown }
  return { labels: metadata.labels, content }
}

const MINUTE_MS = 60_000
const DAY_MS = 86_400_000
/** The times, from now, at which a decision is tried. */
const LATER_MS = [1, 10, 60, 360].map((minutes) => minutes * MINUTE_MS).concat([1, 7, 30, 400].map((d) => d * DAY_MS))
/** How many timers of a rest are followed. */
const MOST_TIMERS = 3

async function setsItsTimers(trial: Trial): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const world = start()
    await world.runUntilIdle()
    for (let timers = 0; timers < MOST_TIMERS; timers++) {
      const input = world.inputs.at(-1)
      if (world.object === undefined || world.failure !== undefined || input === undefined) break
      await demandTimer(trial, world, input, when)
      if (world.timer === undefined) break
      await world.advance(Math.max(0, world.timer.getTime() - world.now.getTime()) / 1000)
    }
  }
}

/** The share by which a resync may be late. */
const RESYNC_JITTER = 0.1

async function demandTimer(trial: Trial, world: Simulation, input: RunInput, when: string): Promise<void> {
  const now = world.now.getTime()
  const { resyncSeconds = Number.POSITIVE_INFINITY } = trial.reconciler
  const wakes = Math.min(world.timer?.getTime() ?? Infinity, now + resyncSeconds * 1000 * (1 + RESYNC_JITTER))
  const promised = timesIn(input.object).flatMap((time) => [time, time + 1000])
  const times = [...LATER_MS.map((later) => now + later), ...promised].filter((time) => time > now && time < wakes)
  const invoke = invokeOf(trial.reconciler)
  const decision = async (time: number) =>
    withoutTimer(await decided(invoke, { ...input, now: new Date(time).toISOString() }))
  const atRest = await decision(now)
  const timer = world.timer === undefined ? 'no timer is set' : `its timer is set for ${world.timer.toISOString()}`
  for (const time of times.sort((one, other) => one - other)) {
    const message = `at ${new Date(time).toISOString()} it decides otherwise than now, and ${timer}, ${when}`
    trial.same(await decision(time), atRest, message, { sides: ['now', 'then'] })
  }
}

function withoutTimer(decision: unknown): unknown {
  const { requeueAt: _, requeueAfterSeconds: __, ...others } = decision as Record<string, unknown>
  return others
}

export async function endsAlone(trial: Trial): Promise<void> {
  const { reconciler, scenario } = trial
  if (reconciler.finalize === undefined || scenario.finalizeSeconds === Number.POSITIVE_INFINITY) return
  for await (const { start, when } of trial.starts()) {
    if (trial.isWhole) {
      const idle = start()
      await idle.runUntilIdle()
      if (idle.object !== undefined) await demandEnd(trial, idle, `if it is deleted ${when}`)
    }
    const going = start()
    if (going.object?.metadata.deletionTimestamp === undefined) continue
    const kinds = reconciler.owns.filter((kind) => going.list(kind).length > 0)
    for await (const kind of trial.cases(async (at) => kinds[at])) {
      const world = going.copy()
      for (const one of world.list(kind)) world.memory.delete(one)
      await demandEnd(trial, world, `if each ${kind.kind} has gone too, ${when}`)
    }
  }
}

async function demandEnd(trial: Trial, world: Simulation, when: string): Promise<void> {
  world.isAlone = true
  if (world.object?.metadata.deletionTimestamp === undefined) world.delete()
  await world.runUntilIdle()
  const seconds = await waitForItsEnd(world, trial.scenario)
  const waits = world.timer === undefined ? 'waits for others without a timer' : `has not ended after ${seconds} s`
  const advice = ': a limit of its own, or finalizeSeconds of the scenario, ends this'
  const fails = world.failure !== undefined && world.timer === undefined
  const message = `"finalize" ${fails ? 'fails' : waits}, ${when}${fails ? '' : advice}`
  const { object, failure: because } = world
  trial.demand(object === undefined, message, { because })
}
