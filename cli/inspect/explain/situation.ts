import { type AppliedObject, type KubeObject, namespacedName, type ResourceRef } from '#contracts'
import type { Row } from '../keys.ts'

/** The facts about one object from the API server and NATS: plain data, the only input of the rules. */
export interface Situation {
  /** RFC 3339. */
  now: string
  target: Target
  /** The reason why the API server is unreachable; left out if it answers. */
  apiAway?: string
  /** The reason why NATS is unreachable; left out if it answers. */
  natsAway?: string
  /** Whether the API server serves that kind; undefined if it is unknown. */
  isKindServed?: boolean
  /** The newest known version of the object. */
  object?: KubeObject
  /** The version of the object in EVENTS; undefined if there is none, or if it is unknown. */
  storedVersion?: string
  /** Other objects with its name, as `namespace/name`. */
  elsewhere: string[]
  /** The namespace of the object is being deleted. */
  isNamespaceTerminating?: boolean
  /** The Reconcilers of this kind. */
  reconcilers: ReconcilerSituation[]
  /** The finalizers of all existing Reconcilers; undefined if they are unknown. */
  finalizers?: string[]
  /** Kubernetes Events about the object, the latest first. */
  events: ReportedEvent[]
  /** The letters in DEAD about the object or its keys. */
  letters: Letter[]
  /** What clients cannot do because of a webhook; left out if that is nothing, or unknown. */
  webhook?: WebhookSituation
}

/** What the API server needs a webhook for. It calls it for clients alone: no run waits for it. */
export interface WebhookSituation {
  /** Versions in which clients cannot read the object, or see it in part, and why. */
  versions: { version: string; isPart: boolean; why: string }[]
  /** Why the API server cannot ask about writes; left out if it can, or does not ask. */
  unasked?: string
}

export interface Target {
  kind: string
  ref: ResourceRef
  namespace?: string
  name: string
}

/** One Reconciler and its work on the object. */
export interface ReconcilerSituation {
  object: KubeObject
  /** Another shard has its queue; left out if it is that of the streams that were read. */
  isElsewhere?: boolean
  /** The rows of the key in WORK; undefined if they are unknown. */
  rows?: Row[]
  /** Whether a process waits for keys of the Reconciler or runs one; undefined if it is unknown. */
  isServed?: boolean
  /** For how long no bridge has moved its position in the watch of the kind; undefined if it is unknown. */
  quietMs?: number
  /**
   * Permissions that its service account lacks here: `create pods`, `patch deployments.apps`; undefined if they are
   * unknown.
   */
  missingRights?: string[]
  /** The last recorded run; undefined if there is none, or if it is unknown. */
  lastRun?: LastRun
  /** The last recorded runs in a row whose function has blocked or ended its process; undefined if there are none. */
  blocked?: BlockedRuns
  /** The run of another object that has blocked a process last, if a run of this one was cut short about that time. */
  endedBy?: EndedBy
  /** Objects that the reconciler has created for the object, or that are retained for it. */
  owned: Relative[]
  /** Related objects that a field of the object names. */
  named: Relative[]
}

export interface BlockedRuns {
  runs: number
  /** That of the last one, or of the last one with a place: `Blocked at src/website.ts:12:5: …`. */
  message: string
}

export interface EndedBy extends Target {
  endedAt: string
  /** `Blocked at src/website.ts:12:5: …` */
  message: string
}

export interface LastRun {
  /** The number of the run in RUNS. */
  run: number
  endedAt: string
  tookMs: number
  waitedMs: number
  result: string
  message?: string
  because: string
  /** Its outcome asks for another run at a time. */
  asksAgain?: true
  /** Where the function has thrown the error of the run: `TypeError at src/website.ts:12:5`. */
  place?: string
  /** What it wrote: `apply Deployment web`. */
  writes: string[]
  /** The writes that were refused, and why. */
  refused: { write: string; error: string }[]
  /** The writes that had nothing to change. */
  unchanged: string[]
  /** The objects of its last outcome: kind, namespace and name. */
  declared: Declared[]
}

interface Declared extends Pick<Relative, 'kind' | 'namespace' | 'name'> {
  /** Its place in the order of the function, if there is one. */
  stage?: AppliedObject['stage']
}

export interface Relative extends Target {
  /** Undefined if the object does not exist. */
  object?: KubeObject
  /** A pod of this workload that cannot run; undefined if there is none, or if the user may not list pods. */
  stuckPod?: KubeObject
}

export interface ReportedEvent {
  type: string
  reason: string
  message: string
  count: number
  /** RFC 3339. */
  last: string
  /** The controller that has reported the Event. */
  by?: string
}

export interface Letter {
  id: number
  reconciler?: string
  reason: string
  detail: string
}

export interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
  lastTransitionTime?: string
  observedGeneration?: number
}

export function conditionsOf(object: KubeObject | undefined): Condition[] {
  const { conditions } = (object?.status ?? {}) as { conditions?: unknown }
  return Array.isArray(conditions) ? (conditions as Condition[]) : []
}

export const conditionOf = (object: KubeObject | undefined, type: string): Condition | undefined =>
  conditionsOf(object).find((condition) => condition.type === type)

/**
 * problem: needs an action. pending: a change is in progress. unknown: a server did not answer. note: additional
 * information.
 */
export type Level = 'problem' | 'pending' | 'unknown' | 'note'

export interface Finding {
  /** The reason in CamelCase, for scripts. */
  reason: string
  level: Level
  reconciler?: string
  message: string
  next?: NextStep
}

/** A step that the user can take. */
export interface NextStep {
  say: string
  /** A command for a shell. */
  command?: string
}

/** Returns its findings for the situation; an empty list if the rule does not apply. */
export type Rule = (situation: Situation) => Finding[]

export const step = (say: string, command?: string): NextStep => ({ say, ...(command !== undefined && { command }) })

/** The kind for kubectl: `websites.example.com`. */
const kubectlKind = ({ resource, group }: Pick<ResourceRef, 'resource' | 'group'>): string =>
  group === '' ? resource : `${resource}.${group}`

/** `websites.example.com hello -n default` */
export function kubectlName({ ref, namespace, name }: Pick<Target, 'ref' | 'namespace' | 'name'>): string {
  return `${kubectlKind(ref)} ${name}${namespace === undefined ? '' : ` -n ${namespace}`}`
}

/** `Website default/hello` */
export const shown = ({ kind, namespace, name }: Pick<Target, 'kind' | 'namespace' | 'name'>): string =>
  `${kind} ${namespacedName({ namespace, name })}`

/** The key for `fairlead queue`: `website default/hello`. */
export const keyName = (reconciler: string, { namespace, name }: Target): string =>
  `${reconciler} ${namespacedName({ namespace, name })}`

export const nameOf = ({ metadata }: KubeObject): string => metadata.name

export const patchOf = (reconciler: string, spec: object): string =>
  `kubectl patch reconciler ${reconciler} --type merge -p '${JSON.stringify({ spec })}'`
