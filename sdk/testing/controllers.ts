import type { KubeObject } from '#contracts'
import { Deployment, Job, type Kind, type ObservedBy, Pod, StatefulSet } from '#sdk'
import type { Controller, Simulation } from './simulation.ts'

/** What a part of the cluster may use, whatever the simulation is of. */
type World = Pick<Simulation, 'now' | 'memory' | 'list' | 'isFull' | 'isRunning' | 'oneByOne'>
type DeploymentObject = ObservedBy<typeof Deployment>
type Workload = DeploymentObject | ObservedBy<typeof StatefulSet>
type PodObject = ObservedBy<typeof Pod>
type JobObject = ObservedBy<typeof Job>

/**
 * How the pods of a simulation become ready.
 *
 * @example
 * import { deploymentsRun, type RunOptions, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const options: RunOptions = { crashes: ({ spec }) => spec?.template.spec?.containers[0]?.image === 'broken' }
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object], cluster: deploymentsRun(options) })
 * await world.runUntilIdle()
 * world.object?.status?.ready // => 1
 */
export interface RunOptions {
  /**
   * One change between two runs, so that the function sees each of them: a pod, or a count in the status.
   *
   * @default all pods are ready at once
   */
  oneByOne?: boolean
  /**
   * Whether the pods of this Deployment or StatefulSet crash: they exist, wait in CrashLoopBackOff, and are not ready.
   *
   * @default no pod crashes
   */
  crashes?: (workload: Workload) => boolean
}

/** A part of the cluster, as it is, or made by its options. */
interface Part<Options> {
  (world: World): unknown
  (options: Options): Controller
}

const isWorld = (given: object): given is World => 'memory' in given

function part<Options extends { oneByOne?: boolean }>(
  play: (world: World, options: Options) => unknown,
): Part<Options> {
  const played = (given: object): unknown => {
    if (isWorld(given)) return play(given, {} as Options)
    const options = given as Options
    return (world: World) => (options.oneByOne ? world.oneByOne(() => play(world, options)) : play(world, options))
  }
  return played as Part<Options>
}

/**
 * Plays the Deployment controller and the kubelet as the `cluster` of a simulation: all pods of each Deployment exist
 * and are ready at once. With options: one by one, or they crash.
 *
 * @example
 * import { deploymentsRun, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi', replicas: 2 } })
 * const world = simulate(website, { objects: [object], cluster: deploymentsRun({ oneByOne: true }) })
 * await world.runUntilIdle()
 * world.object?.status?.ready // => 2
 */
export const deploymentsRun: Part<RunOptions> = part((world, { crashes }) => {
  for (const deployment of world.list(Deployment)) runPods(world, deployment, crashes?.(deployment) === true, false)
})

/**
 * Plays the StatefulSet controller and the kubelet as the `cluster` of a simulation: each pod is made when the one
 * before it is ready. With options: one by one between runs, or they crash.
 *
 * @example
 * import { kind, reconciler, StatefulSet } from 'fairlead'
 * import { simulate, statefulSetsRun } from 'fairlead/testing'
 * const store = kind({ group: 'example.com', version: 'v1', kind: 'Store', plural: 'stores' })
 * const set = { metadata: { name: 'a' }, spec: { replicas: 3, selector: {}, template: {} } }
 * const stores = reconciler({ name: 'stores', for: store, owns: [StatefulSet], reconcile: () => ({ apply: [StatefulSet.of(set)] }) })
 * const object = store.of({ metadata: { name: 'a', namespace: 'default' } })
 * const world = simulate(stores, { objects: [object], cluster: statefulSetsRun })
 * await world.runUntilIdle()
 * world.list(StatefulSet)[0]?.status?.readyReplicas // => 3
 */
export const statefulSetsRun: Part<RunOptions> = part((world, { crashes }) => {
  for (const set of world.list(StatefulSet)) runPods(world, set, crashes?.(set) === true, true)
})

function runPods(world: World, workload: Workload, isCrashing: boolean, isOrdered: boolean): void {
  const { generation = 1, name: owner } = workload.metadata
  const current = (): Workload['status'] => (world.memory.find(workload) as Workload | undefined)?.status
  if (current()?.observedGeneration !== generation)
    report(world, workload, { observedGeneration: generation, updatedReplicas: 0 })
  const replicas = workload.spec?.replicas ?? 1
  const names = Array.from({ length: replicas }, (_, index) => `${owner}-${index}`)
  for (const pod of podsOf(world, workload)
    .filter(({ metadata }) => !names.includes(metadata.name))
    .reverse())
    world.memory.delete(pod)
  count(world, workload)
  for (const name of names) {
    const pod = podsOf(world, workload).find(({ metadata }) => metadata.name === name)
    if (pod === undefined && world.isFull(Pod)) break
    const ran = pod ?? create(world, workload, name)
    const { version } = world.memory
    if (isCrashing && isReady(ran)) world.memory.patch(ran, CRASHED)
    if (!isCrashing && isCrashed(ran)) world.memory.patch(ran, HEALED)
    const labels = relabelled(ran.metadata.labels, workload.spec?.template.metadata?.labels)
    if (labels !== undefined) world.memory.patch(ran, { metadata: { labels } })
    if (pod === undefined || world.memory.version !== version) count(world, workload)
    if (isOrdered && !isReady(world.memory.find(ran) as PodObject)) break
  }
  for (let updated = current()?.updatedReplicas ?? 0; updated < podsOf(world, workload).length; )
    report(world, workload, { updatedReplicas: ++updated })
}

const report = (world: World, workload: Workload, status: object): void => void world.memory.patch(workload, { status })

function count(world: World, workload: Workload): void {
  const pods = podsOf(world, workload)
  const ready = pods.filter(isReady).length
  const { updatedReplicas = 0 } = (world.memory.find(workload) as Workload | undefined)?.status ?? {}
  report(world, workload, {
    replicas: pods.length,
    readyReplicas: ready,
    availableReplicas: ready,
    updatedReplicas: Math.min(updatedReplicas, pods.length),
  })
}

/** What a pod of a changed template has instead of the labels of before, as a patch. Undefined: it has its labels. */
function relabelled(before: Labels = {}, wanted: Labels = {}): Record<string, string | null> | undefined {
  if (Object.entries(wanted).every(([label, value]) => before[label] === value)) return undefined
  return { ...Object.fromEntries(Object.keys(before).map((name) => [name, null])), ...wanted }
}

type Labels = Record<string, string>

const podsOf = (world: World, { metadata: { uid } }: Workload): PodObject[] =>
  world.list(Pod).filter((pod) => pod.metadata.ownerReferences?.some((one) => one.uid === uid) === true)

export const isReady = ({ status }: PodObject): boolean =>
  status?.phase === 'Running' &&
  status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'False') !== true

const waiting = { reason: 'CrashLoopBackOff', message: 'back-off restarting failed container' }
const containers = (state: object) => [{ name: 'main', ready: false, restartCount: 1, image: '', imageID: '', state }]
const CRASHED = {
  status: { conditions: [{ type: 'Ready', status: 'False' }], containerStatuses: containers({ waiting }) },
}
const HEALED = { status: { conditions: null, containerStatuses: null } }
const isCrashed = ({ status }: PodObject): boolean =>
  status?.containerStatuses?.some(({ state }) => state?.waiting?.reason === waiting.reason) === true

function create(world: World, { apiVersion, kind, metadata, spec }: Workload, name: string): PodObject {
  const { name: owner, namespace, uid = '' } = metadata
  const labels = spec?.template.metadata?.labels
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      ...(namespace !== undefined && { namespace }),
      ...(labels && { labels }),
      ownerReferences: [{ apiVersion, kind, name: owner, uid, controller: true }],
    },
    status: { phase: 'Running' },
  }
  return (world.memory.find(pod) ?? world.memory.create(pod)) as PodObject
}

/**
 * How the Jobs of a simulation end.
 *
 * @example
 * import { type JobOptions, jobsRun } from 'fairlead/testing'
 * const options: JobOptions = { seconds: 30, fails: ({ metadata }) => metadata.name.startsWith('broken') }
 * typeof jobsRun(options) // => 'function'
 */
export interface JobOptions {
  /**
   * How long a Job runs. Infinity: until its `activeDeadlineSeconds`.
   *
   * @default 0
   */
  seconds?: number
  /**
   * Whether this Job fails, after its attempts.
   *
   * @default every Job is complete
   */
  fails?: (job: JobObject) => boolean
  /**
   * One change between two runs, so that the function sees each of them.
   *
   * @default false
   */
  oneByOne?: boolean
}

/**
 * Plays the Job controller as the `cluster` of a simulation: each Job starts, and is complete at once. With options: it
 * takes time, or fails. A Job fails at its `activeDeadlineSeconds`, and a suspended one does not start.
 *
 * @example
 * import { Job, kind, reconciler } from 'fairlead'
 * import { jobsRun, simulate } from 'fairlead/testing'
 * const task = kind({ group: 'example.com', version: 'v1', kind: 'Task', plural: 'tasks' })
 * const job = Job.of({ metadata: { name: 'a' }, spec: { template: {} } })
 * const tasks = reconciler({ name: 'tasks', for: task, owns: [Job], reconcile: () => ({ apply: [job] }) })
 * const object = task.of({ metadata: { name: 'a', namespace: 'default' } })
 * const world = simulate(tasks, { objects: [object], cluster: jobsRun({ seconds: 30 }) })
 * await world.runUntilIdle()
 * world.list(Job)[0]?.status?.active // => 1
 * await world.advance(30)
 * world.list(Job)[0]?.status?.succeeded // => 1
 */
export const jobsRun: Part<JobOptions> = part((world, { seconds = 0, fails }) => {
  const ends = world.list(Job).flatMap((job) => runJob(world, job, seconds, fails?.(job) === true) ?? [])
  return ends.sort((one, other) => one.getTime() - other.getTime())[0]
})

/** Returns when a Job that runs will end. */
function runJob(world: World, job: JobObject, seconds: number, isFailing: boolean): Date | undefined {
  const { spec, status } = job
  if (spec?.suspend === true || status?.conditions?.some(({ type }) => type === 'Complete' || type === 'Failed')) return
  const startTime = status?.startTime ?? world.now.toISOString()
  if (status?.startTime === undefined) world.memory.patch(job, { status: { startTime, active: 1 } })
  const limit = spec?.activeDeadlineSeconds ?? Number.POSITIVE_INFINITY
  const lasts = Math.min(seconds, limit)
  if (lasts === Number.POSITIVE_INFINITY) return
  const end = new Date(Date.parse(startTime) + lasts * 1000)
  if (world.now < end) return end
  const lastTransitionTime = end.toISOString()
  const endedBy = (type: string, reason: string) => [{ type, status: 'True', reason, lastTransitionTime }]
  const failed = limit < seconds ? 'DeadlineExceeded' : isFailing ? 'BackoffLimitExceeded' : undefined
  const ended =
    failed === undefined
      ? { succeeded: 1, completionTime: lastTransitionTime, conditions: endedBy('Complete', 'CompletionsReached') }
      : { failed: 1, conditions: endedBy('Failed', failed) }
  world.memory.patch(job, { status: { active: 0, ...ended } })
  return undefined
}

/**
 * Another controller, as part of the `cluster` of a simulation: sets these fields in all objects of the kind, after
 * each run that has set them otherwise.
 *
 * @example
 * import { Deployment } from 'fairlead'
 * import { othersSet, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object], cluster: othersSet(Deployment, { spec: { replicas: 7 } }) })
 * await world.runUntilIdle()
 * world.list(Deployment)[0]?.spec?.replicas // => 7
 */
export const othersSet =
  (kind: Kind<unknown>, fields: object): Controller =>
  (world) => {
    if (!world.isRunning)
      for (const object of world.list<Kind<KubeObject>>(kind as Kind<KubeObject>)) world.memory.patch(object, fields)
  }
