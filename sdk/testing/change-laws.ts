import { isDeepStrictEqual } from 'node:util'
import { apiVersionOf, controllerOf, isRecord, type KubeObject, kindName, type RunInput } from '#contracts'
import { RefusedError, sameJson } from '#reconcile'
import { Deployment, Job, type Kind, type ObservedBy, Pod, type Reconciler, Secret, Service, StatefulSet } from '#sdk'
import { isOwnedBy, retainerOf } from '#spec'
import { changesBetween, LawBroken } from './broken.ts'
import { type Change, changesOf, unchangedIn } from './changes.ts'
import { isReady as isPodReady } from './controllers.ts'
import type { Law } from './effect-laws.ts'
import { decided, declaredBy, invokeOf, isOfKind, nameOf, seriesOf } from './given.ts'
import { rest, type Trial, waitFor } from './scenario.ts'
import type { Simulation } from './simulation.ts'

const owns = (kind: Kind<unknown>) => (reconciler: Reconciler) =>
  reconciler.owns.some((one) => one.kind === kind.kind && one.group === kind.group)

/**
 * The laws about a change: what was there before it, and must neither stand for what is to come nor stay. With each:
 * whether it is about this reconciler.
 */
export const CHANGE_LAWS: Record<string, [law: Law, isAbout: (reconciler: Reconciler) => boolean]> = {
  'makes the Jobs that are due, whether complete Jobs of before are there or not': [makesWhatIsDue, owns(Job)],
  'shows the failure of a Job, and does not wait for it as if it still ran': [showsFailures, owns(Job)],
  'deletes what has ended in the order of its age, as time passes': [
    deletesTheOldest,
    (reconciler) => owns(Job)(reconciler) || owns(Pod)(reconciler),
  ],
  'changes no Service so that it selects none of the pods that are ready': [keepsServing, owns(Service)],
  'gives a changed object the access and the work of a new one with its spec': [
    isAsNew,
    ({ external }) => external === undefined,
  ],
  'keeps the values that it has drawn for a Secret when something else changes': [keepsItsDraws, owns(Secret)],
}

/** Why these laws had nothing to check. */
export const NOTHING_CHANGED: readonly (readonly [Law, string])[] = [
  [makesWhatIsDue, 'no Job is complete when something changes'],
  [showsFailures, 'it sees no Job'],
  [deletesTheOldest, 'at no timer does it delete one of several of a series that have ended'],
  [keepsServing, 'no Service selects a ready pod'],
  [isAsNew, 'its object is always gone'],
  [keepsItsDraws, 'no Secret of its own is there before and after a change in which no time passes'],
]

type JobObject = ObservedBy<typeof Job>

const hasEnded = (object: KubeObject): boolean => {
  const { phase, conditions = [] } = (object.status ?? {}) as {
    phase?: string
    conditions?: { type: string; status: string }[]
  }
  if (isOfKind(object, Pod)) return phase === 'Succeeded'
  return isOfKind(object, Job) && conditions.some(({ type, status }) => type === 'Complete' && status === 'True')
}

/**
 * As `ttlSecondsAfterFinished` does it, which is in no spec that the function sees. A complete Job of another series may
 * be a reason to make none, such as a backup that is young enough.
 */
async function makesWhatIsDue(trial: Trial): Promise<void> {
  let written = ''
  let isRecorded = false
  for await (const { before, change, when, isTime } of changesOf(trial)) {
    for (const [series, jobs] of Map.groupBy(before.list(Job).filter(hasEnded), seriesOf)) {
      const cleaned = before.copy()
      for (const job of jobs) cleaned.memory.delete(job)
      await cleaned.runUntilIdle()
      // A function that has no other record of what was done begins again. One that counts Jobs in its status does not.
      const again = cleaned.writes.find(({ verb }) => verb !== 'status')
      if (again) written ||= `: ${again.verb} of ${nameOf(again.object)}`
      else isRecorded = true
      trial.why = isRecorded
        ? 'without the complete Jobs of a series, none of it is made after a change'
        : `without its complete Jobs, it makes its next write at once${written}`
      if (again) continue
      const stored = (job: KubeObject) => jobs.find((one) => nameOf(one) === nameOf(job))
      // What was done already, and is done once more for want of its Job, is not due. Time alone makes the same due again.
      const due = (await jobsMadeIn(cleaned, change, series)).find(
        (job) => isTime || !isDeepStrictEqual(stored(job)?.spec, job.spec),
      )
      if (due === undefined) continue
      trial.hasChecked = true
      if ((await jobsMadeIn(before.copy(), change, series)).length > 0) continue
      const old = stored(due)
      // One that waited for something else first, such as a Job that ran or has failed, begins again now.
      if (old !== undefined && (await isMadeAgain(due, cleaned))) continue
      if (old === undefined) {
        const names = jobs.map(nameOf).join(', ')
        throw new LawBroken(
          `${nameOf(due)} is due and is not made, ${when}: without these complete Jobs it is: ${names}`,
        )
      }
      throw new LawBroken(
        `the complete ${nameOf(old)}, made at ${old.metadata.creationTimestamp}, stands for the one that is due, ${when}`,
        { lines: changesBetween({ spec: old.spec }, { spec: due.spec }), sides: ['complete', 'due'] },
      )
    }
  }
}

/** Returns the Jobs of a series that are made after a change. */
async function jobsMadeIn(world: Simulation, change: Change['change'], series: string): Promise<KubeObject[]> {
  const made: KubeObject[] = []
  world.before = ({ object }) => {
    if (isOfKind(object, Job) && seriesOf(object) === series && world.memory.find(object) === undefined)
      made.push(object)
  }
  await change(world)
  await rest(world)
  return made
}

/** Whether a Job that has become complete is made at once when it is gone, so that the function has no other record of it. */
async function isMadeAgain(job: KubeObject, world: Simulation): Promise<boolean> {
  const complete = world.memory.find(job)
  if (complete === undefined || !hasEnded(complete)) return false
  world.memory.delete(complete)
  await world.runUntilIdle()
  return world.memory.find(job) !== undefined
}

/** What a Job has in its status while it runs, and at its ends. */
const JOB_STATUSES = {
  active: { active: 1 },
  complete: { succeeded: 1, conditions: [{ type: 'Complete', status: 'True', reason: 'CompletionsReached' }] },
  failed: { failed: 1, conditions: [{ type: 'Failed', status: 'True', reason: 'BackoffLimitExceeded' }] },
}

async function showsFailures(trial: Trial): Promise<void> {
  for await (const { start, when } of trial.starts()) {
    const world = start()
    await world.runUntilIdle()
    for (const input of world.inputs)
      for (const job of newestIn(input.owned[JOBS] ?? [])) {
        const { active, complete, failed } = await decisionsOn(trial.reconciler, input, job)
        trial.hasChecked ||= !isDeepStrictEqual(shownBy(failed), shownBy(active))
        trial.why = 'it decides the same, whether a Job runs, is complete or has failed'
        // A function that does not care how the Job ends may do so.
        if (isDeepStrictEqual(active, complete)) continue
        trial.hasChecked = true
        const found = { lines: changesBetween(failed, complete), sides: ['failed', 'complete'] as const }
        if (isDeepStrictEqual(failed, active)) {
          if (await goesOn(trial.reconciler, start(), job)) continue
          throw new LawBroken(`it waits for ${nameOf(job)} as if it still ran, if it has failed, ${when}`, found)
        }
        const isShown = !isDeepStrictEqual(shownBy(failed), shownBy(complete))
        const isTold = !isDeepStrictEqual(shownBy(active), shownBy(complete))
        if (isTold && !isShown && !isDeepStrictEqual(failed, complete))
          throw new LawBroken(`it shows ${nameOf(job)} as complete, if it has failed, ${when}`, found)
      }
  }
}

/** Returns what the function decides on the input at each status of the Job. */
async function decisionsOn(reconciler: Reconciler, input: RunInput, job: KubeObject) {
  const decision = async (status: object) =>
    inEffect(
      reconciler,
      input,
      await decided(invokeOf(reconciler), withJob(input, { ...job, status: { startTime: input.now, ...status } })),
    )
  const active = await decision(JOB_STATUSES.active)
  const complete = await decision({ ...JOB_STATUSES.complete, completionTime: input.now })
  return { active, complete, failed: await decision(JOB_STATUSES.failed) }
}

/**
 * Whether the function goes on by itself in a world where the Job fails. On the way it may wait for something else, such as
 * a rollout, and decide the same on a Job that runs and one that has failed.
 */
async function goesOn(reconciler: Reconciler, world: Simulation, job: KubeObject): Promise<boolean> {
  const fail = (one: KubeObject | undefined): void => {
    if (one === undefined || nameOf(one) !== nameOf(job) || isFailed(one)) return
    world.memory.patch(one, { status: { active: 0, succeeded: null, completionTime: null, ...JOB_STATUSES.failed } })
  }
  fail(world.memory.find(job))
  world.memory.changed = (_, one) => fail(one)
  // A function that throws because of the failure does not wait.
  await rest(world).catch(() => undefined)
  const input = world.inputs.at(-1)
  const left = newestIn(input?.owned[JOBS] ?? []).find((one) => nameOf(one) === nameOf(job))
  if (input === undefined || left === undefined) return true
  const { active, failed } = await decisionsOn(reconciler, input, left)
  return !isDeepStrictEqual(failed, active)
}

const isFailed = ({ status }: KubeObject): boolean => {
  const { conditions = [] } = (status ?? {}) as { conditions?: { type: string }[] }
  return conditions.some(({ type }) => type === 'Failed')
}

/** Returns the Jobs that no later one of their series has taken the place of. */
const newestIn = (jobs: readonly KubeObject[]): KubeObject[] =>
  jobs.filter((job) => jobs.every((one) => seriesOf(one) !== seriesOf(job) || bornAt(one) <= bornAt(job)))

const JOBS = kindName(Job.kind, apiVersionOf(Job))

function withJob(input: RunInput, job: KubeObject): RunInput {
  const jobs = (input.owned[JOBS] ?? []).map((one) => (nameOf(one) === nameOf(job) ? job : one))
  return { ...input, owned: { ...input.owned, [JOBS]: jobs } }
}

/**
 * Returns what a decision does. An object that is there and is created once stays as it is, whether the function returns
 * a copy of it or declares it afresh.
 */
function inEffect({ owns }: Reconciler, { object, owned }: RunInput, decision: unknown): Record<string, unknown> {
  const { apply: _, ...others } = decision as Record<string, unknown>
  if (object === null) return others
  const createdOnce = owns.filter(({ strategy }) => strategy === 'CreateOnly')
  const there = Object.values(owned)
    .flat()
    .filter((one) => createdOnce.some((kind) => isOfKind(one, kind)))
  const staying = new Set(there.map(nameOf))
  const objects = [...declaredBy(decision, object)].map(([name, one]) => {
    const stays = staying.has(name) && { metadata: undefined, spec: undefined }
    return [name, { ...one, ...stays, status: undefined }]
  })
  return { ...others, apply: Object.fromEntries(objects) }
}

const shownBy = ({ status, conditions, events, throws }: Record<string, unknown>): unknown => ({
  status,
  conditions,
  events,
  throws,
})

async function deletesTheOldest(trial: Trial): Promise<void> {
  for await (const { before, change, when, isTime } of changesOf(trial)) {
    if (!isTime) continue
    const world = before.copy()
    // No Job that it makes is complete in the same run.
    world.isStepwise = true
    const deleted: { newest: KubeObject; older: KubeObject[] }[] = []
    world.before = ({ verb, object }) => {
      const found = world.memory.find(object)
      if (verb !== 'delete' || found === undefined || !hasEnded(found)) return
      const others = world.memory.all().filter((one) => hasEnded(one) && seriesOf(one) === seriesOf(found))
      const older = others.filter((one) => bornAt(one) < bornAt(found))
      trial.hasChecked ||= others.length > 1
      if (others.every((one) => bornAt(one) <= bornAt(found))) deleted.push({ newest: found, older })
    }
    await change(world)
    await rest(world)
    for (const { newest, older } of deleted) {
      const left = older.filter(({ metadata }) => world.memory.all().some((one) => one.metadata.uid === metadata.uid))
      trial.none(left.map(nameOf), `${nameOf(newest)} is deleted, and older ones stay, ${when}`)
    }
  }
}

const bornAt = ({ metadata }: KubeObject): number => Date.parse(metadata.creationTimestamp ?? '')

export async function keepsServing(trial: Trial): Promise<void> {
  if (trial.scenario.cluster === undefined) return
  for await (const { before, change, when } of changesOf(trial)) {
    const served = before.list(Service).flatMap((service) => {
      const pods = podsBehind(before, service)
      return pods.length === 0 ? [] : [{ service, owners: new Set(pods.map(ownerOf)) }]
    })
    const world = before.copy()
    world.isStepwise = true
    const lost = new Map<string, Selector>()
    world.memory.beforeChange = () => {
      for (const { service, owners } of served) {
        const now = world.memory.find(service) as ServiceObject | undefined
        const isReady = (pod: ObservedBy<typeof Pod>) => isPodReady(pod) && owners.has(ownerOf(pod))
        if (now && podsBehind(world, now).length === 0 && world.list(Pod).some(isReady))
          lost.set(nameOf(service), selectorOf(now))
      }
    }
    if (served.length === 0) continue
    trial.hasChecked = true
    await change(world)
    await rest(world)
    for (const { service } of served) {
      const end = world.memory.find(service) as ServiceObject | undefined
      const [name, was] = [nameOf(service), selectorOf(service)]
      if (end === undefined || !lost.has(name) || sameJson(selectorOf(end), was)) continue
      // A Service that is to reach nothing may do so.
      if (podsBehind(world, end).length === 0) continue
      throw new LawBroken(`${name} selects none of the ready pods for a time, ${when}`, {
        lines: changesBetween({ spec: { selector: was } }, { spec: { selector: lost.get(name) } }),
        sides: ['before', 'for a time'],
      })
    }
  }
}

type ServiceObject = ObservedBy<typeof Service>
type Selector = Record<string, string>

const selectorOf = ({ spec }: ServiceObject): Selector => spec?.selector ?? {}

const ownerOf = (object: KubeObject): string | undefined => controllerOf(object)?.uid

function podsBehind(world: Simulation, service: ServiceObject): ObservedBy<typeof Pod>[] {
  const wanted = Object.entries(selectorOf(service))
  const isSelected = ({ metadata: { namespace, labels = {} } }: KubeObject) =>
    namespace === service.metadata.namespace && wanted.every(([label, value]) => labels[label] === value)
  return wanted.length === 0 ? [] : world.list(Pod).filter((pod) => isSelected(pod) && isPodReady(pod))
}

/** The API groups of what lets others in: policies, roles, routes. */
const ACCESS = ['networking.k8s.io', 'rbac.authorization.k8s.io', 'gateway.networking.k8s.io']
/** How long what is left may wait for its end. */
const GRACE_S = 30 * 86_400

export async function isAsNew(trial: Trial): Promise<void> {
  const states: KubeObject[] = []
  for await (const { start, when } of trial.starts()) {
    const world = start()
    await rest(world)
    const { object } = world
    if (object === undefined || object.metadata.deletionTimestamp !== undefined) continue
    states.push(object)
    const anew = await restedAnew(trial, world, object)
    if (anew === undefined) {
      trial.why = `a new object with its spec fails, ${when}`
      continue
    }
    if (await isNeverValid(world)) {
      const message = `the API server never accepts this update, but would accept a new object with its spec, ${when}`
      throw new LawBroken(message, { because: world.failure })
    }
    const unlike = unlikeIn(world, anew)
    if (unlike !== undefined) {
      trial.why = `${unlike}, ${when}`
      continue
    }
    trial.hasChecked = true
    for (const job of anew.list(Job)) await demandItsWork(trial, { world, object, job, when })
    await waitFor(() => leftIn(world, anew).length === 0, world, GRACE_S)
    const left = leftIn(world, anew)
    if (left.length === 0) continue
    throw new LawBroken(`it leaves what a new object with its spec does not have, ${when}`, {
      lines: left.map((one) => `+ ${nameOf(one)}`),
      sides: ['a new object', 'the changed one'],
    })
  }
  const unchanged = unchangedIn(states, trial.reconciler.for)
  if (unchanged.length > 0)
    trial.note = `no step of the scenario changes ${unchanged.join(', ')}: no law finds what such a change breaks`
}

/** Whether the last run has failed with an update that is not valid, not because a step makes the API server refuse it. */
async function isNeverValid(world: Simulation): Promise<boolean> {
  const isInvalid = ({ failure }: Simulation) => failure instanceof RefusedError && failure.reason === 'Invalid'
  if (!isInvalid(world)) return false
  const free = world.copy()
  free.admit()
  await free.runUntilIdle()
  return isInvalid(free)
}

/**
 * Returns a world of this time and the same other objects, where the object is as old, and its function has never run.
 * Undefined: it fails there.
 */
async function restedAnew(
  trial: Trial,
  { memory, now }: Simulation,
  object: KubeObject,
  at = now,
): Promise<Simulation | undefined> {
  const { metadata, status: _, ...content } = object
  const { name, namespace, labels, annotations, creationTimestamp = at.toISOString() } = metadata
  const born = { name, ...(namespace && { namespace }), ...(labels && { labels }), ...(annotations && { annotations }) }
  const others = memory
    .all()
    .filter((one) => nameOf(one) !== nameOf(object) && controllerOf(one) === undefined && retainerOf(one) === undefined)
  const world = trial.world({ objects: [{ ...content, metadata: born }, ...others], now: creationTimestamp })
  world.pass(Math.max(0, at.getTime() - world.now.getTime()) / 1000)
  try {
    await rest(world)
  } catch {
    return undefined
  }
  return world.failure === undefined ? world : undefined
}

const ownedIn = ({ memory, object }: Simulation): KubeObject[] =>
  memory.all().filter((one) => ownerOf(one) === object?.metadata.uid && retainerOf(one) === undefined)

/**
 * Returns why the two cannot be compared; undefined if they can: all workloads are ready, all Jobs complete, and other
 * objects have the same conditions.
 */
function unlikeIn(world: Simulation, anew: Simulation): string | undefined {
  if (world.failure !== undefined) return 'its last run has failed'
  for (const object of [world, anew].flatMap(ownedIn)) {
    if (isOfKind(object, Job)) {
      if (!hasEnded(object)) return `${nameOf(object)} is not complete`
    } else if (isOfKind(object, Deployment) || isOfKind(object, StatefulSet)) {
      if (!isRolledOut(object)) return `${nameOf(object)} is not ready`
    } else {
      const found = [world, anew].map(({ memory }) => memory.find(object)).filter((found) => found !== undefined)
      if (new Set(found.map(standOf)).size > 1) return `${nameOf(object)} has other conditions than with a new object`
    }
  }
  return undefined
}

function isRolledOut(object: KubeObject): boolean {
  const { spec, status } = object as { spec?: { replicas?: number }; status?: { readyReplicas?: number } }
  return status?.readyReplicas !== undefined && status.readyReplicas >= (spec?.replicas ?? 1)
}

function standOf({ status }: KubeObject): string {
  if (!isRecord(status)) return ''
  const { phase, conditions = [] } = status as { phase?: string; conditions?: { type: string; status: string }[] }
  return JSON.stringify([phase, conditions.map(({ type, status }) => `${type}=${status}`).sort()])
}

/** Returns objects that give access, and that a new object does not have. */
function leftIn(world: Simulation, anew: Simulation): KubeObject[] {
  const accessIn = (one: Simulation) =>
    ownedIn(one).filter(
      (object) => ACCESS.some((group) => object.apiVersion.startsWith(`${group}/`)) || isOfKind(object, Service),
    )
  const wanted = accessIn(anew)
  const left = accessIn(world).filter((object) => wanted.every((one) => nameOf(one) !== nameOf(object)))
  // An object of the kind under another name may stand for it.
  const count = (objects: readonly KubeObject[], kind: string) => objects.filter((one) => one.kind === kind).length
  return left.filter(({ kind }) => count(accessIn(world), kind) > count(wanted, kind))
}

/**
 * A complete Job stands only for what it has done: its commands, and its image if that is the one that now runs. What
 * time alone has changed, such as a date in its command, is no change of the object.
 */
async function demandItsWork(
  trial: Trial,
  { world, object, job, when }: { world: Simulation; object: KubeObject; job: JobObject; when: string },
): Promise<void> {
  const before = world.memory.find(job) as JobObject | undefined
  if (before === undefined) return
  const [was, is] = [workOf(before), workOf(job)]
  const running = new Set([...world.list(Deployment), ...world.list(StatefulSet)].flatMap(imagesOf))
  const isOther =
    !sameJson(was.commands, is.commands) || is.images.some((one) => running.has(one) && !was.images.includes(one))
  if (!isOther) return
  const then = await restedAnew(trial, world, object, new Date(bornAt(before)))
  const atThatTime = then?.memory.find(job) as JobObject | undefined
  if (atThatTime !== undefined && sameJson(workOf(atThatTime), was)) return
  const cleaned = world.copy()
  cleaned.memory.delete(before)
  // What is not made again is done for good, as another record says.
  if ((await jobsMadeIn(cleaned, () => {}, seriesOf(before))).length === 0) return
  throw new LawBroken(`${nameOf(job)} is complete for a former state, and stands for this one, ${when}`, {
    lines: changesBetween(was, is),
    sides: ['its work', 'that of a new one'],
  })
}

interface Templated {
  spec?: { template: { spec?: { containers: { image?: string; command?: string[]; args?: string[] }[] } } }
}

const containersOf = ({ spec }: Templated) => spec?.template.spec?.containers ?? []
const imagesOf = (object: Templated): string[] => containersOf(object).flatMap(({ image }) => image ?? [])

const workOf = (job: Templated) => ({
  images: imagesOf(job),
  commands: containersOf(job).map(({ command, args }) => ({ command, args })),
})

/**
 * The same change is made in two worlds that draw other values. What is as before where the same is drawn, and is not
 * where another one is, has been drawn again.
 */
async function keepsItsDraws(trial: Trial): Promise<void> {
  for await (const { before, change, when, isTime } of changesOf(trial)) {
    if (isTime) continue
    const [same, another] = [before.copy(), before.copy()]
    another.draw = 'another run'
    for (const world of [same, another]) await change(world)
    // A value may be replaced as time passes.
    if (same.now > before.now) continue
    for (const world of [same, another]) await rest(world)
    for (const secret of before.list(Secret).filter((one) => before.object && isOwnedBy(one, before.object))) {
      const ends = [same, another].map(({ memory }) => memory.find(secret))
      if (ends.some((one) => one?.metadata.uid !== secret.metadata.uid)) continue
      trial.hasChecked = true
      const [was = {}, is = {}, drawn = {}] = [secret, ...ends].map(valuesOf)
      const again = Object.keys(was).filter((key) => is[key] === was[key] && drawn[key] !== was[key])
      if (again.length === 0) continue
      const advice =
        'if this change is to replace it, draw the next one by another name, such as secret(`password ${spec.rotation}`)'
      throw new LawBroken(`${again.join(', ')} of ${nameOf(secret)} is drawn again, ${when}: ${advice}`)
    }
  }
}

const valuesOf = (secret: KubeObject | undefined): Record<string, string> =>
  (secret as ObservedBy<typeof Secret> | undefined)?.data ?? {}
