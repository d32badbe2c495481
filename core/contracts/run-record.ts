import type { KubeObject } from './objects.ts'
import type { ActVerb, Outcome, RunInput } from './run.ts'

/**
 * The result of a run, by controller-runtime's names. `terminal` is an error without a retry. `fenced` is a run that
 * lost its lease, so that another run decides.
 */
export type RunResult = 'success' | 'requeue_after' | 'error' | 'terminal' | 'fenced'

/**
 * One version of an object, `Deployment.v1.apps shop/web@123`: kindName(), namespace and name, resourceVersion. The
 * resourceVersion is `?` if it is not known.
 */
export type ObjectVersion = string

/** One value that differs. A side without the value is left out. */
export interface FieldChange {
  /** `.spec.containers[0].image` */
  path: string
  before?: unknown
  after?: unknown
}

/** One request of a run: it changed an object, was refused, or had nothing to change. */
export interface WriteRecord {
  verb:
    | 'create'
    | 'apply'
    | 'patch'
    | 'delete'
    | 'setFields'
    | 'giveBack'
    | 'metadata'
    | 'status'
    | 'finalizers'
    | 'effect'
    | ActVerb
  kind: string
  namespace?: string
  name: string
  /** The version after the write. */
  resourceVersion?: string
  /** The reason of a refusal, or why an act waits. */
  error?: string
  /** The object was already as the request has it: nothing was written. */
  unchanged?: true
  /** The changes to an owned object that existed before. Values of Secrets are withheld. */
  differences?: FieldChange[]
  /** The change to the primary object: the merge patch of its status, or its labels, annotations or finalizers. */
  patch?: unknown
}

/** A function's input. Each object is named by its version. */
export interface InputRecord extends Omit<RunInput, 'object' | 'owned' | 'related' | 'seed' | 'ask'> {
  object: ObjectVersion | null
  owned: Record<string, ObjectVersion[]>
  related: Record<string, ObjectVersion[]>
}

/** One decision of the function, and its writes. */
export interface LapRecord {
  input: InputRecord
  /** The outcome. Left out if the function failed, or if the outcome equals that of the decision before. */
  outcome?: Outcome
  /** The outcome equals that of the decision before. */
  isSame?: true
  /** The error of a function that failed. */
  error?: string
  /** Where the function has thrown it: class, file, line and column, `TypeError at src/website.ts:12:5`. */
  place?: string
  writes: WriteRecord[]
}

/** One line of a run's log. */
export interface LogLine {
  /** RFC 3339, UTC. */
  at: string
  level: 'info' | 'warn' | 'error'
  message: string
  fields?: Record<string, unknown>
  /** The fields are left out, because they are too large or are not JSON. */
  withoutFields?: true
}

/** The lines that the function logged during the run, by `log` of its run. Debug lines are not recorded. */
export interface LogRecord {
  lines: LogLine[]
  /** The number of lines that are left out. */
  omitted?: number
}

/** One ended run, as the stream RUNS stores it: plain data. Times are RFC 3339, UTC. */
export interface RunRecord {
  /** The unique ID of the run. */
  id: string
  reconciler: string
  namespace?: string
  name: string
  /** The uid of the object. Left out if the run has not seen the object. */
  uid?: string
  /** The revision of the function, if it is known. */
  revision?: string
  /** The name of the process that ran it. */
  process: string
  lane: 'high' | 'low'
  /** The number of failed runs of the key before this one, since the last success. */
  attempt: number
  /** A timer of the key was due. */
  fired?: true
  /** The lease of the key before this one ended without the end of its run: the process was lost, or NATS was late. */
  cutShort?: true
  queuedAt: string
  startedAt: string
  endedAt: string
  result: RunResult
  /** The error of a failed run, without contents of Secrets. */
  message?: string
  /** When the key runs again if no change comes earlier. */
  requeueAt?: string
  traceId?: string
  /** The number of write requests: written, refused and unchanged. */
  requests: number
  /** CPU time of the process during the run, in milliseconds. Left out if another run was active at the same time. */
  cpuMs?: number
  /**
   * Why the key was queued, and the changes that reached the run: `modified ConfigMap.v1 shop/settings@123`, `resync`,
   * `by hand`. At most four, then `others`. Changes that found the key queued are not named. Left out: not known.
   */
  causes?: readonly string[]
  laps: LapRecord[]
  /** Left out if the function has logged nothing, or runs over HTTP. */
  log?: LogRecord
  /** The function was called over HTTP. Its server has the lines of its log. */
  overHttp?: true
  /** The objects of all inputs. Left out if they are too large. */
  objects?: Record<ObjectVersion, KubeObject>
  /** The parts of the run that this record leaves out, in words. */
  leftOut: string[]
}
