import type { KubeObject } from './objects.ts'
import type { Outcome, RunInput } from './run.ts'

/** How a run ended: controller-runtime's names, and `terminal` and `fenced` (its lease was lost, another run decides). */
export type RunResult = 'success' | 'requeue_after' | 'error' | 'terminal' | 'fenced'

/**
 * One version of an object, `Deployment.v1.apps shop/web@123`: kindName(), namespace and name, resourceVersion. `?` where
 * the version is not known.
 */
export type ObjectVersion = string

/** What of a run's input is another one than in the run recorded before it. */
export interface Cause {
  is: 'new' | 'changed' | 'gone'
  /** `Deployment.v1.apps shop/web` */
  object: string
}

/** One value that differs; left out: there is none. */
export interface FieldChange {
  /** `.spec.containers[0].image` */
  path: string
  before?: unknown
  after?: unknown
}

/** One request of a run that changed something, or was refused. */
export interface WriteRecord {
  verb: 'create' | 'apply' | 'patch' | 'delete' | 'metadata' | 'status' | 'finalizers' | 'effect'
  kind: string
  namespace?: string
  name: string
  /** After the write. */
  resourceVersion?: string
  /** Why it was refused. */
  error?: string
  /** Of an owned object that was there before. Values of Secrets are withheld. */
  differences?: FieldChange[]
  /** Of the object itself: the merge patch of its status, or its labels, annotations or finalizers. */
  patch?: unknown
}

/** A function's input in which each object is named by its version. */
export interface InputRecord extends Omit<RunInput, 'object' | 'owned' | 'related' | 'seed' | 'ask'> {
  object: ObjectVersion | null
  owned: Record<string, ObjectVersion[]>
  related: Record<string, ObjectVersion[]>
}

/** One decision of the function, and what came of it. */
export interface LapRecord {
  input: InputRecord
  /** What it returned; left out: it failed, or the outcome is that of the decision before. */
  outcome?: Outcome
  /** The outcome is that of the decision before. */
  isSame?: true
  /** Why it failed. */
  error?: string
  writes: WriteRecord[]
}

/** One ended run, as the stream RUNS has it: plain data. Times are RFC 3339, UTC. */
export interface RunRecord {
  /** Unique to the run. */
  id: string
  reconciler: string
  namespace?: string
  name: string
  /** Of the object; left out: the run has not seen it. */
  uid?: string
  /** Of the function, where it is known. */
  revision?: string
  /** That ran it. */
  process: string
  lane: 'high' | 'low'
  /** Failed runs of the key before it, since the last success. */
  attempt: number
  /** A timer came due. */
  fired?: true
  /** The run before it never ended: its process was lost. */
  cutShort?: true
  queuedAt: string
  startedAt: string
  endedAt: string
  result: RunResult
  /** Why it failed, without contents of Secrets. */
  message?: string
  /** When the key runs again, if nothing changes before. */
  requeueAt?: string
  traceId?: string
  /** Requests that wrote. */
  requests: number
  /** CPU of the process while the run lasted; left out: another run lasted meanwhile. */
  cpuMs?: number
  /** Against the run of the object that this process recorded before. Left out: it has recorded none. */
  causes?: Cause[]
  /** `id` of the run that `causes` compares with. */
  since?: string
  laps: LapRecord[]
  /** The objects of all inputs. Left out where they are too large. */
  objects?: Record<ObjectVersion, KubeObject>
  /** What is not here and was part of the run, in words. */
  leftOut: string[]
}
