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
}

/** An object that could not be written as the function wants it. */
export interface Refusal {
  name: string
  namespace?: string
  /** CamelCase, e.g. `Forbidden` or `NameTaken`. `DependencyRefused`: not sent, because an object that it needs was refused. */
  reason: string
  /** 1,000 characters at most, without the contents of Secrets. */
  message: string
}

/** An object that a function wants to be there. */
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
}

/** Labels and annotations of the object that a function is for. */
export interface OwnMetadata {
  labels?: Record<string, string>
  annotations?: Record<string, string>
}

/** The author's half of a metav1.Condition; the dispatcher adds lastTransitionTime and observedGeneration. */
export interface ConditionUpdate {
  type: string
  status: 'True' | 'False' | 'Unknown'
  /** CamelCase, one word. */
  reason: string
  message?: string
}

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

/** The seam for every kind of function: a call in this process, HTTP, another language. */
export type Invoke = (input: RunInput, context: RunContext) => Promise<Outcome>

/** `Pod.v1`, `Deployment.v1.apps`: the key of `owned` and `related`. */
export function kindName(kind: string, apiVersion: string): string {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion]
  return [kind, version, group].filter((part) => part !== '').join('.')
}
