import { createHash } from 'node:crypto'
import { type AppliedObject, type KubeObject, readinessOf, type StageOptions, shortName } from '#sdk'
import type { RenderedObject } from './drawn.ts'
import { groupVersionOf } from './kinds.ts'
import { RenderError, titleOf } from './render.ts'

/** When hooks run, of those that are offered. */
export type HookEvent = 'install' | 'upgrade' | 'delete'

/** An object that runs before or after the others, such as a Job. */
export interface Hook {
  rendered: RenderedObject
  /** `pre-install` */
  events: readonly string[]
  weight: number
  /** It is deleted when it has succeeded. */
  goes: boolean
}

const HOOK = 'helm.sh/hook'
const WEIGHT = 'helm.sh/hook-weight'
const POLICY = 'helm.sh/hook-delete-policy'
const OFFERED = ['pre-install', 'post-install', 'pre-upgrade', 'post-upgrade', 'pre-delete']
/** Nothing is rolled back, and `helm template` leaves tests out. */
const WITHOUT_EFFECT = ['pre-rollback', 'post-rollback', 'test', 'test-success']

const listIn = (text = ''): string[] => text.split(',').map((one) => one.trim().toLowerCase())

/** Returns what is there as long as the release, and the hooks in the order in which they run. */
export function split(objects: readonly RenderedObject[]): { lasting: RenderedObject[]; hooks: Hook[] } {
  const isHook = ({ object }: RenderedObject) => object.metadata.annotations?.[HOOK] !== undefined
  const hooks = objects.filter(isHook).map(hookOf)
  return {
    lasting: objects.filter((one) => !isHook(one)),
    hooks: hooks.toSorted(
      (one, other) =>
        one.weight - other.weight ||
        order(one.rendered.object.kind, other.rendered.object.kind) ||
        order(one.rendered.object.metadata.name, other.rendered.object.metadata.name),
    ),
  }
}

const order = (one: string, other: string): number => (one < other ? -1 : Number(one > other))

function hookOf(rendered: RenderedObject): Hook {
  const { object } = rendered
  const { [HOOK]: events, [WEIGHT]: weight = '0', [POLICY]: policy } = object.metadata.annotations ?? {}
  const named = listIn(events).filter((event) => !WITHOUT_EFFECT.includes(event))
  const unknown = named.find((event) => !OFFERED.includes(event))
  if (unknown !== undefined)
    throw new RenderError(`${titleOf(object)} is a hook ${unknown}, which is not offered: ${OFFERED.join(', ')} are`)
  if (!/^[+-]?\d+$/.test(weight))
    throw new RenderError(`${titleOf(object)} has the ${WEIGHT} "${weight}", which is no whole number`)
  return { rendered, events: named, weight: Number(weight), goes: listIn(policy).includes('hook-succeeded') }
}

/** Jobs and Pods, which run once, have the release in their name: so each release has its own. */
const runsOnce = ({ apiVersion, kind }: KubeObject): boolean =>
  (kind === 'Job' && groupVersionOf(apiVersion).group === 'batch') || (kind === 'Pod' && apiVersion === 'v1')

/** Without a time to live, so that its success is seen: with one of 0 the Job would be gone before, and run again. */
function lasting(object: KubeObject): KubeObject {
  if (!runsOnce(object) || object.kind !== 'Job') return object
  const { ttlSecondsAfterFinished: _, ...spec } = (object.spec ?? {}) as Record<string, unknown>
  return { ...object, spec }
}

/** A stage of one hook. `id` names it in the status. */
export interface HookStage extends StageOptions {
  id: string
  goes: boolean
  objects: readonly [AppliedObject]
}

/**
 * Returns the stages of the hooks before or after an event, each of one hook. `done`: those that have succeeded.
 * `completed` makes the object that is written.
 */
export function hookStages(
  hooks: readonly Hook[],
  when: 'pre' | 'post',
  { event, digest, done }: { event: HookEvent; digest: string; done: readonly string[] },
  completed: (rendered: RenderedObject) => AppliedObject,
): HookStage[] {
  const suffix = createHash('sha256').update(`${event} ${digest}`).digest('hex').slice(0, 8)
  return hooks
    .filter(({ events }) => events.includes(`${when}-${event}`))
    .map(({ rendered, goes }) => {
      const { object } = rendered
      const name = runsOnce(object) ? shortName(`${object.metadata.name}-${suffix}`, 63) : object.metadata.name
      const named = { ...rendered, object: lasting({ ...object, metadata: { ...object.metadata, name } }) }
      const id = `${when}-${event} ${titleOf(object)}`
      return { id, goes, objects: [completed(named)], isDone: done.includes(id), isReady: isUsable }
    })
}

/** An object of a kind that reports no readiness is ready when it exists: Helm does not wait for it either. */
export function isUsable(object: KubeObject): boolean {
  const { conditions = [] } = (object.status ?? {}) as { conditions?: { type: string }[] }
  const { isReady, isFailed } = readinessOf(object)
  const isSilent = !conditions.some(({ type }) => ['Ready', 'Available', 'Established'].includes(type))
  return isReady || (!isFailed && isSilent && !REPORTS.includes(object.kind))
}

const REPORTS = ['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet', 'Job', 'Pod']
