import type { RunLog } from './log.ts'
import type { KubeObject } from './objects.ts'

/**
 * What a function is given: plain data, complete (a run can be recorded and replayed from it), no live handles.
 * `owned` and `related` are keyed by kindName(), e.g. `Pod.v1` or `Deployment.v1.apps`.
 */
export interface RunInput {
  /** null when the object is gone. */
  object: KubeObject | null
  owned: Record<string, KubeObject[]>
  related: Record<string, KubeObject[]>
  /** Failed runs of this key since the last success. */
  attempt: number
  /** RFC 3339, UTC. */
  now: string
  /** Random text, the same for all decisions of a run: what a function draws from it is part of its input. */
  seed?: string
  /** The object is being deleted and carries the reconciler's finalizer. */
  finalizing: boolean
  /** Writes of this run that were refused, keyed like `owned`; left out: none. */
  refused?: Record<string, Refusal[]>
  /** What the function has read of its external system for this decision. Left out: it has none. */
  external?: unknown
  /** The effect that this run has performed last. It explains; `external` shows what came of it. */
  performed?: Performed
  ask?: undefined
}

/** The function is asked to read its external system: the answer is the `external` of the next decisions. */
export interface ReadInput extends Omit<RunInput, 'external' | 'ask'> {
  ask: 'read'
}

/** The function is asked to perform an effect that it has returned. The answer is the `result` of it, or nothing. */
export interface PerformInput extends Omit<RunInput, 'external' | 'ask'> {
  ask: 'perform'
  effect: Effect
}

/** What a function is asked. Without `ask`: what should be so. */
export type FunctionInput = RunInput | ReadInput | PerformInput

/**
 * A change of an external system: plain data, 64 KiB at most as JSON. `perform` of the function executes it.
 *
 * @example
 * import type { Effect } from 'fairlead'
 * const effect: Effect = { kind: 'addMember', url: 'https://10.0.0.1:2380' }
 * JSON.stringify(effect).length <= 65_536 // => true
 */
export interface Effect {
  /** A word of 63 letters and digits at most, a letter first, such as `addMember`. Metrics are labelled with it. */
  kind: string
  [field: string]: unknown
}

/**
 * The last effect of a run, with its result or its error. Use it for messages; base decisions on `external`.
 *
 * @example
 * import type { Performed } from 'fairlead'
 * const messageOf = (performed?: Performed) => performed?.error && `${performed.effect.kind} failed: ${performed.error}`
 * messageOf({ effect: { kind: 'addMember' }, error: 'timed out' }) // => 'addMember failed: timed out'
 */
export interface Performed {
  effect: Effect
  /** What `perform` returned, 64 KiB at most as JSON. */
  result?: unknown
  /** Why it failed. Whether it was done all the same, only `external` tells. */
  error?: string
}

/**
 * An object that could not be written in this run as the function returned it.
 *
 * @example
 * import { Pod, type Refusal } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const refusal: Refusal = { name: 'hello', reason: 'Forbidden', message: 'deployments is forbidden' }
 * const object = Website.of({ metadata: { name: 'hello', namespace: 'default' }, spec: { html: 'hi' } })
 * const { status } = await outcomeOf(website, { object, refused: [{ kind: website.owns[1] ?? Pod, ...refusal }] })
 * status // => { ready: 0 }
 */
export interface Refusal {
  name: string
  namespace?: string
  /** CamelCase, e.g. `Forbidden` or `NameTaken`. `DependencyRefused`: not sent, because an object that it needs was refused. */
  reason: string
  /** 1,000 characters at most, without the contents of Secrets. */
  message: string
}

/**
 * An object that a function wants to exist. The dispatcher fills in the namespace and the owner reference.
 *
 * @example
 * import { type AppliedObject, Secret } from 'fairlead'
 * const kept: AppliedObject = { ...Secret.of({ metadata: { name: 'backup-key' } }), retain: true }
 * kept.kind // => 'Secret'
 */
export interface AppliedObject extends KubeObject {
  /** It outlives its owner: it has no owner reference, and is deleted only if the function ceases to return it before. */
  retain?: boolean
}

/** What should be so. Everything left out stays as it is. */
export interface Outcome {
  /** The complete set of owned objects of the declared kinds; what is owned and not in it is deleted. */
  apply?: AppliedObject[]
  /** The complete status but for `conditions` and `observedGeneration`, which the dispatcher keeps. */
  status?: Record<string, unknown>
  /** Set by type; types not named stay as they are. */
  conditions?: ConditionUpdate[]
  /** All labels and annotations that the function keeps on its object; one that it kept before and leaves out is removed. */
  metadata?: OwnMetadata
  /** Delete the object when everything else is written. */
  deleteObject?: boolean
  events?: EventReport[]
  /** Run again after so many seconds; with requeueAt, the earlier counts. */
  requeueAfterSeconds?: number
  /** RFC 3339. */
  requeueAt?: string
  /** Performed when everything else is written, but before the object is deleted. Then the function decides again. */
  effect?: Effect
}

/** Labels and annotations of the object that a function is for. */
export interface OwnMetadata {
  labels?: Record<string, string>
  annotations?: Record<string, string>
}

/**
 * A condition as the function returns it. The dispatcher adds `lastTransitionTime` and `observedGeneration` of
 * metav1.Condition.
 *
 * @example
 * import type { ConditionUpdate } from 'fairlead'
 * const ready: ConditionUpdate = { type: 'Ready', status: 'False', reason: 'Starting', message: '1 of 3 pods is ready' }
 * ready.status // => 'False'
 */
export interface ConditionUpdate {
  type: string
  status: 'True' | 'False' | 'Unknown'
  /** CamelCase, one word. */
  reason: string
  message?: string
}

/**
 * A Kubernetes Event about the object of the run. Equal Events are counted, not repeated; a run reports 20 at most.
 *
 * @example
 * import type { EventReport } from 'fairlead'
 * const report: EventReport = { type: 'Warning', reason: 'QuotaExceeded', message: 'the team has 50 pods' }
 * report.type // => 'Warning'
 */
export interface EventReport {
  type: 'Normal' | 'Warning'
  /** CamelCase, one word. */
  reason: string
  message: string
}

export interface RunContext {
  /** Aborted at the time-out of the run, when its lease is lost, or at shutdown. */
  signal: AbortSignal
  log: RunLog
  /** Several runs of this key have taken their process along, and none has succeeded since: run it where it can do no harm. */
  suspect?: boolean
  /** W3C Trace Context of the run, for requests that the function causes. */
  traceparent?: string | undefined
  /** Called with the version of the function that has answered, where that is known. */
  answeredBy?: (revision: string) => void
}

/**
 * A function of any kind as a call on JSON: in this process, over HTTP, in another language. Resolves with an Outcome,
 * or with the answer to `ask` of the input. Rejects with a TerminalError, RetryAfterError or ConflictError, whose
 * classes decide when the run is repeated; any other error is retried with backoff.
 *
 * @example
 * import { type Invoke, toInvoke } from 'fairlead'
 * import { website } from './website.ts'
 * const invoke: Invoke = toInvoke(website)
 * typeof invoke // => 'function'
 */
export type Invoke = (input: FunctionInput, context: RunContext) => Promise<unknown>

/** `Pod.v1`, `Deployment.v1.apps`: the key of `owned` and `related`. */
export function kindName(kind: string, apiVersion: string): string {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion]
  return [kind, version, group].filter((part) => part !== '').join('.')
}
