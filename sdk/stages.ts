import type { AppliedObject, ConditionUpdate, KubeObject, ObjectMeta } from '#contracts'
import { retainerOf } from '#spec'
import { kind } from './kinds.ts'
import { type Readiness, readinessOf } from './readiness.ts'

/**
 * The objects of one stage, or options with them.
 *
 * @example
 * import { Deployment, type Stage } from 'fairlead'
 * const names = ['a', 'b', 'c']
 * const children = names.map((name) => Deployment.of({ metadata: { name } }))
 * const stage: Stage = { objects: children, oneByOne: true }
 * typeof stage // => 'object'
 */
export type Stage = readonly AppliedObject[] | StageOptions

/**
 * A stage with options.
 *
 * @example
 * import { Job, type StageOptions } from 'fairlead'
 * const migration = (migratedTo: string | undefined, version: string): StageOptions => ({
 *   objects: [Job.of({ metadata: { name: `migrate-${version}` } })],
 *   isDone: migratedTo === version,
 * })
 * migration('2', '2').isDone // => true
 */
export interface StageOptions {
  objects: readonly AppliedObject[]
  /**
   * Whether an object of the stage, as observed, is ready.
   *
   * @default what readinessOf() returns
   */
  isReady?: (object: KubeObject) => boolean
  /**
   * The stage has done its work, as a status records: objects that exist stay, others are not created, the next stage
   * does not wait for it, and what it has used may go. For Jobs, which may be deleted when they are complete.
   *
   * @default false
   */
  isDone?: boolean
  /**
   * False: the objects are removed when each later stage is ready, or removed itself.
   *
   * @default true
   */
  isWanted?: boolean
  /**
   * A change is made to one existing object at a time, while all others of the stage are ready.
   *
   * @default all at once
   */
  oneByOne?: boolean
}

/**
 * What `stages()` returns.
 *
 * @example
 * import { type Staged, stages } from 'fairlead'
 * const order: Staged = stages({ object: { metadata: { name: 'a' } }, owned: () => [] }, [])
 * order.condition // => { type: 'Ready', status: 'True', reason: 'Ready' }
 */
export interface Staged {
  /** The objects of all stages, for `apply`. Objects outside of the order may stand beside them. */
  apply: AppliedObject[]
  /** The number of stages, from the first one on, that are ready. */
  reached: number
  /** What the order waits for, such as `waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 3)`. */
  waitsFor: string | undefined
  /** Ready: True, or False with the reason Waiting, Failed or Removing and what the order waits for. */
  condition: ConditionUpdate
}

/** The part of a run that an order depends on. */
interface Observing {
  object: { metadata: ObjectMeta }
  owned: (kind: never) => readonly unknown[]
}

interface Part {
  object: AppliedObject
  observed: KubeObject | undefined
  readiness: Readiness
  /** For messages: `Deployment db`. */
  called: string
}

interface Step extends Required<Pick<StageOptions, 'isWanted' | 'isDone' | 'oneByOne'>> {
  parts: Part[]
}

/**
 * Orders objects by readiness. Each stage is created and changed while all stages before it are ready, in the state that
 * is returned for them. A stage that exists stays as it is when an earlier one is not ready, with what it uses. Decides
 * on the observation alone.
 *
 * @example
 * import { Deployment, reconciler, stages } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const part = (name: string) => Deployment.of({ metadata: { name }, spec: { selector: {}, template: {} } })
 * const site = reconciler({
 *   name: 'site', for: Website, owns: [Deployment],
 *   reconcile(run) {
 *     const { apply, condition } = stages(run, [[part('db')], [part('web')]])
 *     return { apply, conditions: [condition] }
 *   },
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(site, { objects: [object] })
 * await world.runUntilIdle()
 * world.list(Deployment).map(({ metadata }) => metadata.name) // => ['db']
 * world.object?.status?.conditions?.[0]?.message // => 'waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 2)'
 */
export function stages(run: Observing, given: readonly Stage[]): Staged {
  const find = observedIn(run)
  const steps = given.map((stage) => stepOf(run, stage, find))
  const waiting = steps.findIndex(({ isWanted, isDone, parts }) => isWanted && !isDone && !parts.every(isReady))
  const reached = waiting === -1 ? steps.length : waiting
  /** Whether nothing from this stage on depends on an earlier one. */
  const isClear = (from: number) =>
    steps.slice(from).every(({ isWanted, parts }, index) => (isWanted ? from + index < reached : parts.length === 0))
  const apply = steps.flatMap((step, index) => {
    const number = index + 1
    const isHeld = step.isWanted ? index > reached : !isClear(number)
    const action = step.isDone ? 'Done' : isHeld ? 'Hold' : step.isWanted ? undefined : 'Remove'
    if (step.oneByOne && action === undefined) return inTurn(step.parts, number)
    return step.parts.map(({ object }) => placed(object, number, action))
  })
  const waits = waitIn(steps, waiting)
  const condition: ConditionUpdate =
    waits === undefined
      ? { type: 'Ready', status: 'True', reason: 'Ready' }
      : { type: 'Ready', status: 'False', ...waits }
  return { apply, reached, waitsFor: waits?.message, condition }
}

/** Returns what the first waiting stage waits for. If none waits, what the last unwanted one that exists does. */
function waitIn(steps: readonly Step[], waiting: number): { reason: string; message: string } | undefined {
  const isRemoval = waiting === -1
  const at = isRemoval ? steps.findLastIndex(({ isWanted, parts }) => !isWanted && parts.length > 0) : waiting
  const parts = steps[at]?.parts.filter((part) => isRemoval || !isReady(part)) ?? []
  if (parts.length === 0) return undefined
  const place = `(stage ${at + 1} of ${steps.length})`
  if (isRemoval) {
    const names = listed(parts.map(({ called }) => called))
    return { reason: 'Removing', message: `waits until ${names} ${parts.length === 1 ? 'is' : 'are'} gone ${place}` }
  }
  const failed = parts.filter(({ readiness }) => readiness.isFailed)
  const told = (failed.length > 0 ? failed : parts).map(({ called, readiness }) => `${called}: ${readiness.message}`)
  return { reason: failed.length > 0 ? 'Failed' : 'Waiting', message: `waits for ${listed(told)} ${place}` }
}

/**
 * Removes stages in reverse, for `finalize`: each goes when the one after it is gone, with its pods. Return its `apply`
 * with a requeue at a limit of yours while `waitsFor` is there.
 *
 * @example
 * import { Deployment, removeStages } from 'fairlead'
 * const [db, web] = ['db', 'web'].map((name) => Deployment.of({ metadata: { name } }))
 * const run = { object: { metadata: { name: 'a' } }, owned: () => [db, web] }
 * const { apply, waitsFor } = removeStages(run, [[db!], [web!]])
 * apply.map(({ stage }) => stage?.action) // => ['Hold', 'Remove']
 * waitsFor // => 'waits until Deployment web is gone (stage 2 of 2)'
 */
export const removeStages = (run: Observing, given: readonly Stage[]): Staged =>
  stages(
    run,
    given.map((stage) => ({ ...optionsOf(stage), isWanted: false })),
  )

const optionsOf = (stage: Stage): StageOptions => ('objects' in stage ? stage : { objects: stage })

/** An unwanted stage has the parts that exist, and one that is done. A retained object outlives its owner. */
function stepOf({ object: owner }: Observing, stage: Stage, find: ReturnType<typeof observedIn>): Step {
  const { objects, isReady, isWanted = true, isDone = false, oneByOne = false } = optionsOf(stage)
  const isGoing = owner.metadata.deletionTimestamp !== undefined
  const remains = ({ observed }: Part) => observed !== undefined && !(isGoing && retainerOf(observed) !== undefined)
  const parts = objects.map((object): Part => {
    const observed = find(object)
    const called = `${object.kind} ${object.metadata?.name ?? owner.metadata.name}`
    return { object, observed, readiness: readinessBy(isReady, observed), called }
  })
  return { isWanted, isDone: isWanted && isDone, oneByOne, parts: isWanted && !isDone ? parts : parts.filter(remains) }
}

function readinessBy(isReady: StageOptions['isReady'], observed: KubeObject | undefined): Readiness {
  const usual = readinessOf(observed)
  if (isReady === undefined || observed === undefined || observed.metadata.deletionTimestamp !== undefined) return usual
  if (isReady(observed)) return { isReady: true, isFailed: false, message: '' }
  return { isReady: false, isFailed: usual.isFailed, message: usual.message || '"isReady" of its stage is false' }
}

/** Finds the observed object of one that is returned. Kinds without a schema do not parse it. */
function observedIn({ object: owner, owned }: Observing): (wanted: AppliedObject) => KubeObject | undefined {
  const known = new Map<string, Map<string, KubeObject>>()
  const placeOf = ({ metadata }: { metadata?: Partial<ObjectMeta> }) =>
    `${owner.metadata.namespace ?? metadata?.namespace ?? ''}/${metadata?.name ?? owner.metadata.name}`
  return (wanted) => {
    const type = `${wanted.apiVersion} ${wanted.kind}`
    let objects = known.get(type)
    if (objects === undefined) {
      const [version = '', group = ''] = wanted.apiVersion.split('/').reverse()
      const found = owned(kind({ group, version, kind: wanted.kind, plural: '' }) as never) as KubeObject[]
      objects = new Map(found.map((one) => [placeOf(one), one]))
      known.set(type, objects)
    }
    return objects.get(placeOf(wanted))
  }
}

const isReady = ({ readiness }: Part): boolean => readiness.isReady

type Action = NonNullable<AppliedObject['stage']>['action']

const placed = (object: AppliedObject, number: number, action?: Action): AppliedObject => ({
  ...object,
  stage: { number, ...(action && { action }) },
})

/**
 * Missing objects are created. Of the others, those that are not ready come first: a change may mend them. A ready one
 * is changed while all are ready, each with a number of its own, so that a run changes the first that differs.
 */
function inTurn(parts: readonly Part[], number: number): AppliedObject[] {
  const areReady = parts.every(isReady)
  return parts.map((part, index) => {
    if (part.observed === undefined) return placed(part.object, number)
    const own = number + index / parts.length
    return placed(part.object, own, areReady || !isReady(part) ? undefined : 'Hold')
  })
}

const SHOWN = 3

const listed = (texts: readonly string[]): string =>
  texts.length > SHOWN ? `${texts.slice(0, SHOWN).join('; ')}; and ${texts.length - SHOWN} more` : texts.join('; ')
