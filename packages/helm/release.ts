import { createHash } from 'node:crypto'
import {
  type AppliedObject,
  type ConditionRemoval,
  type ConditionUpdate,
  type Kind,
  type KubeObject,
  type ReconcileOutcome,
  type Run,
  type Stage,
  type Staged,
  stages,
} from '#sdk'
import { CHART_LABEL, eventsOf, HOOKS_DISABLED, isAnnotated, PERIOD, UNINSTALL_WAIT } from './annotations.ts'
import type { Chart } from './chart.ts'
import { secondsOf } from './go.ts'
import { type Hook, type HookEvent, type HookStage, hookStages, isUsable, split } from './hooks.ts'
import { isOfKind, isOfTheCluster, type ReleaseResource } from './kinds.ts'
import { isKept, manifestOf, withoutDrawn, withoutSecrets } from './manifest.ts'
import { asDrawn, isSame, RenderError, type RenderedObject, type Rendering, render, titleOf } from './render.ts'
import type { Watch } from './watches.ts'

/** All that a function of a chart decides with, apart from a run. */
export interface Operator {
  watch: Watch
  chart: Chart
  rendering: Rendering
  owns: readonly Kind<unknown>[]
}

export type ReleaseRun = Run<ReleaseResource, Kind<unknown>, never>
type Outcome = ReconcileOutcome<ReleaseRun['object']['status']>

/** What the chart makes for one run. */
interface Wanted {
  lasting: AppliedObject[]
  hooks: Hook[]
  notes: string
  /** Differs if the release differs, apart from contents of Secrets and from what is drawn. */
  digest: string
  completed: (rendered: RenderedObject) => AppliedObject
}

const without = (type: string): ConditionRemoval => ({ type, status: null })

/** Decides what should exist of the release of an object. */
export async function released(operator: Operator, run: ReleaseRun): Promise<Outcome> {
  const { object } = run
  const { deployedRelease: before } = object.status
  const { [PERIOD]: given } = object.metadata.annotations ?? {}
  const period = given === undefined ? operator.watch.periodSeconds : secondsOf(given)
  if (given !== undefined && period === undefined)
    return {
      conditions: [initialized(), irreconcilable(`the annotation ${PERIOD} is "${given}": write 10m, or 1h30m`)],
    }
  const requeue = period ? { requeueAfter: period } : {}
  const wanted = await wantedOf(operator, run)
  if (wanted instanceof RenderError) {
    const fault = before === undefined ? failed('InstallError', wanted.message) : irreconcilable(wanted.message)
    return { conditions: [initialized(), fault], ...requeue }
  }
  // A release that another operator has deployed has no digest: it counts as this one.
  const isDeployed = before !== undefined && (before.digest ?? wanted.digest) === wanted.digest
  const event = isDeployed ? undefined : before === undefined ? 'install' : 'upgrade'
  const { apply, waits, done } = applyOf(operator, run, wanted, event)
  const events = isDeployed ? [] : eventsOf(operator, object)
  const refusals = refusalsIn(operator, run)
  const fault = refusals || (waits?.isFailed ? waits.message : '')
  const exists = (one: AppliedObject) => findOwned(operator, run, one) !== undefined
  if (fault !== '' || waits !== undefined || !wanted.lasting.every(exists))
    return {
      apply,
      events,
      ...(done.length > 0 && { status: { ...object.status, hooks: { digest: wanted.digest, done } } }),
      conditions: [
        initialized(waits?.message),
        without('Irreconcilable'),
        fault === '' ? without('ReleaseFailed') : failed(before === undefined ? 'InstallError' : 'UpgradeError', fault),
      ],
      ...requeue,
    }
  const { hooks: _, ...status } = object.status
  const reason =
    event === undefined ? reasonIn(object) : event === 'install' ? 'InstallSuccessful' : 'UpgradeSuccessful'
  const deployedRelease = { name: object.metadata.name, manifest: manifestOf(wanted.lasting), digest: wanted.digest }
  return {
    apply,
    status: { ...status, deployedRelease },
    conditions: [
      initialized(),
      { type: 'Deployed', status: 'True', reason, message: wanted.notes.slice(0, LONGEST_MESSAGE) },
      without('ReleaseFailed'),
      without('Irreconcilable'),
    ],
    events,
    ...requeue,
  }
}

interface Applied {
  apply: AppliedObject[]
  /** Undefined: nothing is waited for. */
  waits: { message: string; isFailed: boolean } | undefined
  /** The hooks of this release that have succeeded. */
  done: string[]
}

/** Returns the objects of the release, with the hooks of its event in order. Without hooks nothing waits. */
function applyOf(operator: Operator, run: ReleaseRun, wanted: Wanted, event: HookEvent | undefined): Applied {
  const { lasting, hooks, digest, completed } = wanted
  const { status, metadata } = run.object
  const done = status.hooks?.digest === digest ? status.hooks.done : []
  const stagesFor = (when: 'pre' | 'post', of: HookEvent) =>
    hookStages(hooks, when, { event: of, digest, done }, completed)
  const isOrdered = event !== undefined && !isAnnotated(metadata, HOOKS_DISABLED[event])
  const [pre, post] = isOrdered ? [stagesFor('pre', event), stagesFor('post', event)] : [[], []]
  // Without a hook behind them, Helm waits until objects are there, and not until they are ready.
  const main: Stage = { objects: lasting, isReady: post.length > 0 ? isUsable : () => true }
  const staged = pre.length + post.length > 0 ? stages(run, [...pre, main, ...post]) : undefined
  const apply = staged?.apply ?? lasting
  const past = (['install', 'upgrade'] as const)
    .flatMap((of) => [...stagesFor('pre', of), ...stagesFor('post', of)])
    .flatMap(({ goes, objects }) => (goes && event === undefined ? [] : objects))
  const has = (objects: readonly AppliedObject[], one: KubeObject) => objects.some((other) => isSame(other, one))
  const existing = observed(operator, run)
  const left = past.filter((one) => !has(apply, one) && existing.some((other) => isSame(other, one)))
  // What the chart makes no longer is left as it is.
  const kept = existing.filter((one) => isKept(one) && !has([...apply, ...past], one)) as unknown as AppliedObject[]
  return {
    apply: [...apply, ...left, ...kept],
    waits: waitsOf(staged),
    done:
      staged === undefined ? [] : [...doneIn(pre, staged.reached), ...doneIn(post, staged.reached - pre.length - 1)],
  }
}

const doneIn = (hooks: readonly HookStage[], reached: number): string[] =>
  hooks.slice(0, Math.max(0, reached)).map(({ id }) => id)

const waitsOf = (staged: Staged | undefined): Applied['waits'] =>
  staged?.waitsFor === undefined
    ? undefined
    : { message: staged.waitsFor, isFailed: staged.condition.reason === 'Failed' }

/**
 * Runs the hooks before the deletion. Then it waits until all objects of the release are gone, if the annotation says so;
 * otherwise garbage collection deletes them when the finalizer is removed.
 */
export async function uninstalled(operator: Operator, run: ReleaseRun): Promise<Outcome | undefined> {
  const requeueAfter = operator.watch.periodSeconds ?? DEFAULT_WAIT_S
  const refusals = refusalsIn(operator, run)
  const fault = (message: string) => (message === '' ? without('ReleaseFailed') : failed('UninstallError', message))
  const before = await beforeDeletion(operator, run)
  if (before instanceof RenderError) return { conditions: [fault(before.message)], requeueAfter }
  if (before !== undefined) {
    const { apply, waits, status } = before
    return {
      apply,
      status,
      conditions: [initialized(waits.message), fault(refusals || (waits.isFailed ? waits.message : ''))],
      requeueAfter,
    }
  }
  if (!isAnnotated(run.object.metadata, UNINSTALL_WAIT)) return undefined
  if (observed(operator, run).every(isKept)) return undefined
  const message = 'Waiting until all resources are deleted.'
  const waiting: ConditionUpdate = { type: 'Deployed', status: 'False', reason: 'UninstallSuccessful', message }
  return { apply: [], conditions: [waiting, fault(refusals)], requeueAfter }
}

/** A change of what is waited for runs the function as well. */
const DEFAULT_WAIT_S = 60
/** The time-out of a hook in Helm: after it, a hook that does not exist, as in a namespace that is being deleted, is left out. */
const HOOK_WITHIN_MS = 300_000

/** Returns what waits for a hook before the deletion. Undefined: nothing does. */
async function beforeDeletion(operator: Operator, run: ReleaseRun) {
  const { metadata, status } = run.object
  if (status.deployedRelease === undefined || !operator.chart.hasDeletionHooks) return undefined
  if (isAnnotated(metadata, HOOKS_DISABLED.delete)) return undefined
  const isLate = run.now.getTime() > Date.parse(metadata.deletionTimestamp ?? '') + HOOK_WITHIN_MS
  const wanted = await wantedOf(operator, run)
  if (wanted instanceof RenderError) return isLate ? undefined : wanted
  const digest = `${metadata.uid}`
  const done = status.hooks?.digest === digest ? status.hooks.done : []
  const hooks = hookStages(wanted.hooks, 'pre', { event: 'delete', digest, done }, wanted.completed)
  if (hooks.length === 0) return undefined
  const staged = stages(run, hooks)
  const waits = waitsOf(staged)
  const exists = (one: AppliedObject) => findOwned(operator, run, one) !== undefined
  if (waits === undefined || (isLate && !hooks[staged.reached]?.objects.every(exists))) return undefined
  const isHook = (one: KubeObject) => staged.apply.some((other) => isSame(other, one))
  const others = observed(operator, run).filter((one) => !isHook(one)) as unknown as AppliedObject[]
  const recorded = doneIn(hooks, staged.reached)
  return {
    apply: [...others, ...staged.apply],
    waits,
    status: { ...status, ...(recorded.length > 0 && { hooks: { digest, done: recorded } }) },
  }
}

const LONGEST_MESSAGE = 30_000

const releaseOf = ({ metadata: { name, namespace = 'default' }, spec }: Pick<KubeObject, 'metadata' | 'spec'>) => ({
  name,
  namespace,
  values: spec ?? {},
})

const initialized = (message?: string): ConditionUpdate => ({
  type: 'Initialized',
  status: 'True',
  reason: 'Initialized',
  ...(message !== undefined && { message }),
})
const irreconcilable = (message: string): ConditionUpdate => condition('Irreconcilable', 'ReconcileError', message)
const failed = (reason: string, message: string): ConditionUpdate => condition('ReleaseFailed', reason, message)
const condition = (type: string, reason: string, message: string): ConditionUpdate => ({
  type,
  status: 'True',
  reason,
  message: message.slice(0, LONGEST_MESSAGE),
})

const reasonIn = ({ status }: ReleaseRun['object']): string =>
  status.conditions?.find(({ type }) => type === 'Deployed')?.reason ?? 'InstallSuccessful'

/** Returns what could not be written, as one text; empty: nothing. */
const refusalsIn = ({ owns }: Operator, { refused }: ReleaseRun): string =>
  owns.flatMap((kind) => refused(kind).map(({ name, message }) => `${kind.kind} ${name}: ${message}`)).join('; ')

const observed = ({ owns }: Operator, { owned }: ReleaseRun): KubeObject[] =>
  owns.flatMap((kind) => owned(kind) as KubeObject[])

const findOwned = (operator: Operator, run: ReleaseRun, object: KubeObject): KubeObject | undefined =>
  observed(operator, run).find((one) => isSame(one, object))

/** Renders the chart with the spec of the object. Resolves with a RenderError for what cannot be rendered or written. */
async function wantedOf(operator: Operator, run: ReleaseRun): Promise<Wanted | RenderError> {
  const { chart, rendering } = operator
  try {
    const { objects, notes } = await render(chart, releaseOf(run.object), rendering, run.signal)
    for (const { object } of objects) demandWritable(operator, object)
    const { lasting, hooks } = split(objects)
    const existing = observed(operator, run)
    // Not the values of the environment: others can read this.
    const values = hashOf([chart.digest, run.object.spec, operator.watch.overrides])
    const completed = (rendered: RenderedObject): AppliedObject => {
      const observed = existing.find((one) => isSame(one, rendered.object))
      const drawn = asDrawn(rendered, observed, values)
      const { labels, ...metadata } = drawn.metadata
      const labelled = { ...drawn, metadata: { ...metadata, labels: { ...labels, [CHART_LABEL]: chart.name } } }
      return isKept(drawn) ? { ...labelled, retain: true } : labelled
    }
    const digest = hashOf(objects.map((one) => withoutSecrets(withoutDrawn(one))))
    return { lasting: lasting.map(completed), hooks, notes, digest, completed }
  } catch (error) {
    if (error instanceof RenderError) return error
    throw error
  }
}

const hashOf = (value: unknown): string => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16)

function demandWritable({ chart, owns, watch }: Operator, object: KubeObject): void {
  if (isOfTheCluster(chart, object))
    throw new RenderError(
      `${titleOf(object)} has no namespace, so that ${watch.kind}, which has one, cannot own it: switch it off by a value of the chart, and apply it beside`,
    )
  if (owns.some((kind) => isOfKind(object, kind))) return
  throw new RenderError(
    `${titleOf(object)} is of a kind that is not declared (${object.apiVersion}): add it to kinds.${watch.kind} of helmFunctions(), and install the function again`,
  )
}
