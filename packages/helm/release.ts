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
import {
  CHART_LABEL,
  eventsOf,
  HOOKS_DISABLED,
  isAnnotated,
  MANAGED_BY,
  PERIOD,
  PRIMARY,
  PRIMARY_TYPE,
  RELEASE_NAME,
  RELEASE_NAMESPACE,
  UNINSTALL_WAIT,
} from './annotations.ts'
import type { Chart } from './chart.ts'
import { asDrawn, type RenderedObject, withoutDrawn } from './drawn.ts'
import { secondsOf } from './go.ts'
import { type Hook, type HookEvent, type HookStage, hookStages, isUsable, split } from './hooks.ts'
import { isOfKind, isOfTheCluster, type ReleaseResource } from './kinds.ts'
import { isKept, manifestOf, withoutSecrets } from './manifest.ts'
import { isSame, RenderError, type Rendering, render, titleOf } from './render.ts'
import type { Watch } from './watches.ts'

/** All that a function of a chart decides with, apart from a run. */
export interface Operator {
  watch: Watch
  for: ReleaseResource
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
  /** Differs for other values, or another chart. */
  values: string
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
  const { lasting, digest, values } = wanted
  const deployedRelease = { name: object.metadata.name, manifest: manifestOf(lasting), digest, values }
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
  const way = wayOut(operator, run.object)
  if (before instanceof RenderError) return { conditions: [fault(`${before.message}${way}`)], requeueAfter }
  if (before !== undefined) {
    const { apply, waits, status } = before
    const message = refusals || (waits.isFailed ? waits.message : '')
    return {
      apply,
      status,
      conditions: [initialized(`${waits.message}${way}`), fault(message && `${message}${way}`)],
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
/** The time-out of a hook in Helm. */
const HOOK_WITHIN_MS = 300_000

/**
 * Returns what waits for a hook before the deletion. Undefined: nothing does. A hook is left out only in a namespace that is
 * being deleted: there it can neither be made nor be refused in a way that the run is told. So the status records since when it
 * is to be made, before it is made the first time.
 */
async function beforeDeletion(operator: Operator, run: ReleaseRun) {
  const { metadata, status } = run.object
  if (status.deployedRelease === undefined || !operator.chart.hasDeletionHooks) return undefined
  if (isAnnotated(metadata, HOOKS_DISABLED.delete)) return undefined
  const wanted = await wantedOf(operator, run)
  if (wanted instanceof RenderError) return wanted
  const digest = `${metadata.uid}`
  const { done = [], missingSince } = status.hooks?.digest === digest ? status.hooks : {}
  const hooks = hookStages(wanted.hooks, 'pre', { event: 'delete', digest, done }, wanted.completed)
  const staged = stages(run, hooks)
  const waits = waitsOf(staged)
  if (waits === undefined) return undefined
  const existing = observed(operator, run)
  const [hook] = hooks[staged.reached]?.objects.flatMap((one) => findOwned(operator, run, one) ?? []) ?? []
  const isLate = (since = run.now.toISOString()) => run.now.getTime() > Date.parse(since) + HOOK_WITHIN_MS
  const isRefused = status.conditions?.some(({ type, status }) => type === 'ReleaseFailed' && status === 'True')
  if (hook === undefined && isLate(missingSince) && !isRefused) return undefined
  const isHook = (one: KubeObject) => staged.apply.some((other) => isSame(other, one))
  const others = existing.filter((one) => !isHook(one)) as unknown as AppliedObject[]
  const isNoted = hook !== undefined || missingSince !== undefined
  const recorded = {
    digest,
    done: doneIn(hooks, staged.reached),
    ...(hook === undefined && { missingSince: missingSince ?? run.now.toISOString() }),
  }
  return {
    apply: isNoted ? [...others, ...staged.apply] : (existing as unknown as AppliedObject[]),
    waits: { ...waits, isFailed: waits.isFailed || (hook !== undefined && isLate(hook.metadata.creationTimestamp)) },
    status: { ...status, hooks: recorded },
  }
}

/** How the user of an object deletes it without its hooks. */
const wayOut = ({ for: { resource, group } }: Operator, { metadata: { name, namespace } }: KubeObject): string =>
  `; to delete without hooks: kubectl annotate ${resource}.${group} ${name} -n ${namespace} ${HOOKS_DISABLED.delete}=true`

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
    const { name, namespace = 'default' } = run.object.metadata
    const { deployedRelease: before } = run.object.status
    // Not the values of the environment: others can read this.
    const values = hashOf([chart.digest, run.object.spec, operator.watch.overrides])
    const drawn = asDrawn(lasting, {
      find: (object) => findOwned(operator, run, object),
      values,
      before: before?.values,
      isTakenOver: before !== undefined && before.digest === undefined,
    })
    const completed = (rendered: RenderedObject): AppliedObject => {
      const made = labelled(drawn(rendered), { [CHART_LABEL]: chart.name })
      return isKept(made) ? { ...made, retain: true } : made
    }
    const { kind, group } = operator.watch
    const released = { [RELEASE_NAME]: name, [RELEASE_NAMESPACE]: namespace }
    const kept = { ...released, [PRIMARY]: `${namespace}/${name}`, [PRIMARY_TYPE]: `${kind}.${group}` }
    const digest = hashOf(objects.map((one) => withoutSecrets(withoutDrawn(one))))
    return {
      lasting: lasting.map((one) => labelled(completed(one), MANAGED_BY, isKept(one.object) ? kept : released)),
      hooks,
      notes,
      digest,
      values,
      completed,
    }
  } catch (error) {
    if (error instanceof RenderError) return error
    throw error
  }
}

function labelled<One extends KubeObject>(object: One, labels: object, annotations: object = {}): One {
  const { metadata } = object
  const all = { ...metadata.annotations, ...annotations }
  return {
    ...object,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...labels },
      ...(Object.keys(all).length > 0 && { annotations: all }),
    },
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
