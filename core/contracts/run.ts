import type { RunLog } from './log.ts'
import type { KubeObject } from './objects.ts'

/**
 * The input of a function: plain data without live handles, and complete, so that a run can be recorded and replayed
 * from it. `owned` and `related` are keyed by kindName(), e.g. `Pod.v1` or `Deployment.v1.apps`.
 */
export interface RunInput {
  /** null if the object is gone. */
  object: KubeObject | null
  owned: Record<string, KubeObject[]>
  related: Record<string, KubeObject[]>
  /** The number of failed runs of this key since the last success. */
  attempt: number
  /** The time of the observation, RFC 3339, UTC. */
  now: string
  /**
   * Random text, the same for all decisions of a run. Values that a function derives from it can be replayed from the
   * input.
   */
  seed?: string
  /** The object is being deleted and carries the reconciler's finalizer. */
  finalizing: boolean
  /** The writes of this run that were refused, keyed like `owned`. Left out if there are none. */
  refused?: Record<string, Refusal[]>
  /**
   * The state that the function has read from its external system for this decision. Left out if it has no such system.
   */
  external?: unknown
  /** The effect that this run performed last. It serves for messages; the state after the effect is in `external`. */
  performed?: Performed
  /** The cluster of the objects. Left out if the process serves only one. */
  cluster?: ClusterInfo
  ask?: undefined
}

/**
 * The cluster that a run is for, where one process serves several.
 *
 * @example
 * import { type ClusterInfo, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const sizes: Record<string, number> = { edge: 1, core: 3 }
 * const sizeIn = ({ labels }: ClusterInfo) => sizes[labels['tier'] ?? 'core'] ?? 3
 * const site = reconciler({
 *   name: 'site', for: Website,
 *   reconcile: ({ cluster }) => ({ status: { ready: sizeIn(cluster) } }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const cluster = { name: 'east', id: 'b7f1', labels: { tier: 'edge' } }
 * await outcomeOf(site, { object, cluster }) // => { status: { ready: 1 } }
 */
export interface ClusterInfo {
  /** Its name in the file of clusters. Empty if the process serves only one. */
  name: string
  /** The UID of its namespace kube-system. Empty if the process serves only one. */
  id: string
  /** Its labels in the file of clusters. */
  labels: Readonly<Record<string, string>>
}

/** A request to read the external system. The answer is the `external` of the next decisions. */
export interface ReadInput extends Omit<RunInput, 'external' | 'ask'> {
  ask: 'read'
}

/**
 * A request to perform an effect that the function has returned. The answer, if there is one, is the `result` of the
 * effect.
 */
export interface PerformInput extends Omit<RunInput, 'external' | 'ask'> {
  ask: 'perform'
  effect: Effect
}

/** A request to a function. Without `ask`, it requests the desired state. */
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
  /** The error of an effect that failed. The effect may have been done all the same: only `external` shows it. */
  error?: string
}

/**
 * A request to a subresource of an object that the function observes. The API server performs it on the version that the
 * function has decided on, or not at all.
 *
 * @example
 * import { type Act, Pod } from 'fairlead'
 * const pod = Pod.of({ metadata: { name: 'web-0', namespace: 'shop' } })
 * const evict: Act = { act: 'Evict', on: pod }
 * const bind: Act = { act: 'Bind', on: pod, node: 'node-1' }
 * const verbs = [evict, bind].map(({ act }) => act)
 * verbs // => ['Evict', 'Bind']
 */
export type Act =
  /** Deletes a Pod as far as its PodDisruptionBudgets allow. */
  | { act: 'Evict'; on: ActedObject }
  /** Places a Pod that no scheduler has placed. */
  | { act: 'Bind'; on: ActedObject; node: string }
  /** Sets the number of replicas. It stays when the function ceases to return the act. */
  | { act: 'Scale'; on: ActedObject; replicas: number }
  /** Approves or denies a CertificateSigningRequest, for good. `reason`: CamelCase, one word. */
  | { act: 'Approve' | 'Deny'; on: ActedObject; reason: string; message?: string }

/** The object of an act, as it is observed. Only these fields count. */
interface ActedObject {
  apiVersion: string
  kind: string
  metadata: { name: string; namespace?: string | undefined }
}

/** An act in histories, logs and metrics. */
export type ActVerb = Lowercase<Act['act']>

/**
 * An object that could not be written in this run as the function returned it, or an act that waits.
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
  /**
   * CamelCase, e.g. `Forbidden` or `NameTaken`. `DependencyRefused`: not sent, because an object that it needs was refused.
   * `DisruptionBudget`: an eviction waits.
   */
  reason: string
  /** 1,000 characters at most, without the contents of Secrets. */
  message: string
}

/**
 * An object that a function wants to exist. The dispatcher fills in the namespace and the owner reference.
 *
 * @example
 * import { type AppliedObject, ConfigMap, reconciler } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const kept: AppliedObject = { ...ConfigMap.of({ metadata: { name: 'archive' } }), retain: true }
 * const site = reconciler({ name: 'site', for: Website, owns: [ConfigMap], reconcile: () => ({ apply: [kept] }) })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(site, { objects: [object] })
 * await world.runUntilIdle()
 * world.delete()
 * await world.runUntilIdle()
 * world.list(ConfigMap).map(({ metadata }) => metadata.name) // => ['archive']
 */
export interface AppliedObject extends KubeObject {
  /** It outlives its owner: it has no owner reference, and is deleted only if the function ceases to return it before. */
  retain?: boolean
  /** Its place in an order, which `stages()` sets. Left out: it waits for no other object. */
  stage?: {
    /** A change of the object waits for another decision while one with a lower number has to be written. */
    number: number
    /**
     * Hold: it stays as it is, with what it uses, and is not created. Done: the same, but it uses nothing any more.
     * Remove: it is deleted, what it has created before it.
     *
     * @default the object is applied
     */
    action?: 'Hold' | 'Done' | 'Remove'
  }
}

/** The desired state. A field that is left out stays as it is. */
export interface Outcome {
  /** The complete set of owned objects of the declared kinds. Owned objects that are not in the set are deleted. */
  apply?: AppliedObject[]
  /**
   * The complete set of objects of others of which the function sets fields, each with exactly these fields. Fields that
   * it has set before and that are not in the set are given back.
   */
  patch?: KubeObject[]
  /** Requests to subresources of observed objects, after the writes of other objects. One of each object, 1,000 at most. */
  act?: Act[]
  /** The complete status except for `conditions` and `observedGeneration`, which the dispatcher keeps. */
  status?: Record<string, unknown>
  /** The conditions to set or to remove, by type. Types that are not named stay as they are. */
  conditions?: (ConditionUpdate | ConditionRemoval)[]
  /**
   * All labels and annotations that the function keeps on its object. The dispatcher removes one that the function kept
   * before and leaves out now.
   */
  metadata?: OwnMetadata
  /** Deletes the object after all other writes. */
  deleteObject?: boolean
  events?: EventReport[]
  /** Runs the key again after so many seconds. If `requeueAt` is given too, the earlier time counts. */
  requeueAfterSeconds?: number
  /** The time of the next run, RFC 3339. */
  requeueAt?: string
  /** Declared metrics to change: 20 at most. Equal ones count once in a run. */
  metrics?: MetricReport[]
  /** An effect to perform after all other writes, but before the object is deleted. Then the function decides again. */
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
 * import { type ConditionUpdate, reconciler } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const ready: ConditionUpdate = { type: 'Ready', status: 'False', reason: 'Starting', message: '1 of 3 pods is ready' }
 * const site = reconciler({ name: 'site', for: Website, reconcile: () => ({ conditions: [ready] }) })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(site, { objects: [object] })
 * await world.runUntilIdle()
 * world.object?.status?.conditions?.map(({ type, reason }) => [type, reason]) // => [['Ready', 'Starting']]
 */
export interface ConditionUpdate {
  type: string
  status: 'True' | 'False' | 'Unknown'
  /** CamelCase, one word. */
  reason: string
  message?: string
}

/**
 * Removes the condition of this type from the object, if there is one.
 *
 * @example
 * import { type ConditionRemoval, reconciler } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const gone: ConditionRemoval = { type: 'Migrating', status: null }
 * const site = reconciler({
 *   name: 'site', for: Website,
 *   reconcile: ({ object }) => ({
 *     conditions: [object.spec.html === 'hi' ? { type: 'Migrating', status: 'True', reason: 'Begun' } : gone],
 *   }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(site, { objects: [object] })
 * await world.runUntilIdle()
 * world.edit({ spec: { html: 'bye' } })
 * await world.runUntilIdle()
 * world.object?.status?.conditions // => undefined
 */
export interface ConditionRemoval {
  type: string
  status: null
  reason?: undefined
  message?: undefined
}

/**
 * A Kubernetes Event about the object of the run. Equal Events are counted, not repeated; a run reports 20 at most.
 *
 * @example
 * import { type EventReport, reconciler } from 'fairlead'
 * import { simulate } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const report: EventReport = { type: 'Warning', reason: 'QuotaExceeded', message: 'the team has 50 pods' }
 * const site = reconciler({ name: 'site', for: Website, reconcile: () => ({ events: [report] }) })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(site, { objects: [object] })
 * await world.runUntilIdle()
 * world.events.map(({ reason }) => reason) // => ['QuotaExceeded']
 */
export interface EventReport {
  type: 'Normal' | 'Warning'
  /** CamelCase, one word. */
  reason: string
  message: string
}

/**
 * A change of a metric that the reconciler declares.
 *
 * @example
 * import { type MetricReport, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const failed: MetricReport = { name: 'builds_total', labels: { result: 'failed' } }
 * const site = reconciler({
 *   name: 'site', for: Website,
 *   metrics: [{ name: 'builds_total', type: 'Counter', help: 'Builds', labels: [{ name: 'result', values: ['ok', 'failed'] }] }],
 *   reconcile: () => ({ metrics: [failed] }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * await outcomeOf(site, { object }) // => { metrics: [{ name: 'builds_total', labels: { result: 'failed' } }] }
 */
export interface MetricReport {
  name: string
  /** A counter grows by this; 0 or more. A gauge becomes this. Default 1. */
  value?: number
  /** A value for each declared label. A value that is not declared counts as `other`. */
  labels?: Record<string, string>
}

export interface RunContext {
  /** Aborted at the time-out of the run, when its lease is lost, or at shutdown. */
  signal: AbortSignal
  log: RunLog
  /** Several runs of this key have crashed their process, and none has succeeded since. The run has to be isolated. */
  suspect?: boolean
  /** Stops the time-out of the call while it has to wait, and starts it anew. Settles as the wait does. */
  untimed?: <T>(wait: Promise<T>) => Promise<T>
  /** W3C Trace Context of the run, for requests that the function causes. */
  traceparent?: string | undefined
  /** The values that the function has declared for its external system, by name. For calls of that alone. */
  config?: Readonly<Record<string, string>>
  /** What the Reconciler gives a function that serves Reconcilers of other names: `spec.invoke.pull.with`. */
  with?: Readonly<Record<string, unknown>>
  /** Receives the version of the function that has answered, if it is known. */
  answeredBy?: (revision: string) => void
}

/**
 * A function of any kind as a call on JSON: in this process, over HTTP, in another language. Resolves with an Outcome,
 * or with the answer to `ask` of the input. Rejects with a TerminalError, RetryAfterError or ConflictError, whose
 * classes decide when the run is repeated; any other error is retried with backoff.
 *
 * @example
 * import { type Invoke, toInvoke } from 'fairlead'
 * import { Website, website } from './website.ts'
 * const invoke: Invoke = toInvoke(website)
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const input = { object, owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
 * const log = { debug() {}, info() {}, warn() {}, error() {} }
 * const outcome = await invoke(input, { log, signal: AbortSignal.timeout(1000) })
 * Object.keys(outcome as object) // => ['apply', 'status', 'conditions']
 */
export type Invoke = (input: FunctionInput, context: RunContext) => Promise<unknown>

/** Returns the key of `owned` and `related`: `Pod.v1`, `Deployment.v1.apps`. */
export function kindName(kind: string, apiVersion: string): string {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion]
  return [kind, version, group].filter((part) => part !== '').join('.')
}

/** A part of a process that runs until the process stops. */
export interface Runnable {
  /**
   * Works until the signal. Then lets active work end within the grace, in milliseconds, and gives the remaining work
   * back to another process or to the next start. Resolves 4 s after the grace at the latest if NATS and the API server
   * answer.
   */
  run(signal: AbortSignal, graceMs: number): Promise<void>
}

/**
 * Stops the retries of an object until it, or a related object, changes: the input is wrong. The condition `Reconciled`
 * shows `reason` and message.
 *
 * @example
 * import { TerminalError } from 'fairlead'
 * const error = new TerminalError('spec.to has the namespace of the original', { reason: 'CopyOntoItself' })
 * error.reason // => 'CopyOntoItself'
 */
export class TerminalError extends Error {
  override readonly name = 'TerminalError'
  /** CamelCase word for the condition and the Event that report it. */
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { reason?: string } = {}) {
    super(message, options)
    this.reason = options.reason ?? 'TerminalError'
  }
}

/**
 * Retries the run after `afterSeconds`, without backoff. The condition `Reconciled` shows `reason` and message. Throws
 * a TypeError if `afterSeconds` is negative or not a number.
 *
 * @example
 * import { RetryAfterError } from 'fairlead'
 * const error = new RetryAfterError('the bucket is being created', { afterSeconds: 30 })
 * error.afterSeconds // => 30
 */
export class RetryAfterError extends Error {
  override readonly name = 'RetryAfterError'
  readonly afterSeconds: number
  /** CamelCase word for the condition and the Event that report it. */
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { afterSeconds: number; reason?: string }) {
    super(message, options)
    const { afterSeconds, reason = 'RetryAfter' } = options ?? {}
    if (typeof afterSeconds !== 'number' || !Number.isFinite(afterSeconds) || afterSeconds < 0)
      throw new TypeError(
        `RetryAfterError "${message}": afterSeconds is ${String(afterSeconds)}: give a number of seconds`,
      )
    this.afterSeconds = afterSeconds
    this.reason = reason
  }
}

/**
 * Retries the run at once: the state that it decided on has changed meanwhile.
 *
 * @example
 * import { ConflictError } from 'fairlead'
 * new ConflictError('the lock has a new owner').name // => 'ConflictError'
 */
export class ConflictError extends Error {
  override readonly name = 'ConflictError'
}
