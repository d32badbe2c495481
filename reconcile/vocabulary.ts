import type { EventReport, KubeObject, PerformInput, ReadInput, RunInput } from '#contracts'
import type { Finish } from '#queue/terms'
import type { Acted, PlannedAct } from './acts.ts'
import type { FieldsWrite } from './fields.ts'
import type { MetadataWrite } from './metadata.ts'
import type { MetricChange } from './metrics.ts'
import type { NoOps } from './no-ops.ts'
import type { Write } from './plan.ts'
import type { StatusPatch } from './status.ts'
import type { World } from './world.ts'

/** A request of a run to its driver. */
export type Ask =
  /** Read the object, its owned objects and its related objects. `begins`: the observation begins a new pass. */
  | { do: 'observe'; begins: boolean }
  /** Call the function. The input is frozen. */
  | { do: 'call'; input: RunInput }
  /** Call the function to read its external system. The input is frozen. */
  | { do: 'read'; input: ReadInput }
  /**
   * Call the function to perform an effect, while the lease of the key is held. The input is frozen. `shown`: the
   * effect as a log may show it.
   */
  | { do: 'perform'; input: PerformInput; shown: string }
  /** Send these writes, in any order or in parallel. */
  | { do: 'write'; writes: readonly Write[] }
  /**
   * Write the status. `mayBeDropped`: the driver may drop the write if the object changes before the request is sent.
   */
  | { do: 'writeStatus'; object: KubeObject; patch: StatusPatch; mayBeDropped: boolean }
  /** Write labels and annotations. */
  | { do: 'writeMetadata'; object: KubeObject; write: MetadataWrite }
  | { do: 'writeFinalizers'; object: KubeObject; finalizers: string[] }
  /** Write the annotation that lists the objects of others whose fields are set. Undefined: remove it. */
  | { do: 'writeRecord'; object: KubeObject; annotation: string; value: string | undefined }
  /** Send these writes of fields of others, in any order or in parallel. */
  | { do: 'writeFields'; writes: readonly FieldsWrite[] }
  /**
   * Send these requests to subresources, in any order or in parallel, and none after a known edit of the object, by
   * editOf(): that one fails with a ConflictError.
   */
  | { do: 'act'; acts: readonly PlannedAct[]; object: KubeObject }
  /** Delete the primary object. */
  | { do: 'delete'; object: KubeObject }
  /** Keep the lease of the key for this time. */
  | { do: 'wait'; ms: number }
  /**
   * Prepare the end of the run. The delay of a requeue counts from `now` of the pass, and the delay of an error from
   * this request. The run ends if nothing has changed since the pass began.
   */
  | { do: 'finish'; finish: Finish }

/** The answer of a driver to an Ask. */
export type Answer =
  | { did: 'observe'; seen: Observed | undefined }
  | { did: 'call'; returned: unknown }
  | { did: 'read'; external: unknown }
  /** The rate limit allows no read for this time. */
  | { did: 'read'; limitedMs: number }
  | { did: 'perform'; result: unknown }
  /** The driver performs no effects. The run ends here. */
  | { did: 'perform'; isSkipped: true }
  /** The results, in the order of the writes. */
  | { did: 'write'; results: readonly (Written | Failed)[] }
  | { did: 'writeStatus'; result: Written | 'dropped' }
  | { did: 'writeMetadata'; result: Written }
  | { did: 'writeFinalizers'; result: Written }
  | { did: 'writeRecord'; result: Written }
  /** The results, in the order of the writes. */
  | { did: 'writeFields'; results: readonly (Written | Failed)[] }
  /** The results, in the order of the acts. */
  | { did: 'act'; results: readonly (Acted | Failed)[] }
  | { did: 'delete'; result: Written }
  | { did: 'wait' }
  /** `changed`: the driver knows of a change since the pass began. The run then begins another pass, if it may. */
  | { did: 'finish'; changed: boolean }
  | Failed

/** The answers to an Ask that has not failed. */
export type AnswerTo<Request extends Ask> = Extract<Answer, { did: Request['do'] }>

/** The result of one observation. The driver leaves it undefined if the object is gone. */
export interface Observed {
  world: World
  /** The time in the function's input. */
  now: Date
  /** New random text that cannot be guessed. */
  seed: string
  /** The known writes without effect for the objects of `world`. */
  noOps: NoOps
  /**
   * Why the related and owned objects are not read: they exceed the driver's limit, or are not known. `world` has only the
   * primary object, and the function is not called.
   */
  unread?: Error
}

/** An object after its write. Undefined if it is gone. `isOld`: the driver knows of a newer version. */
export interface Written {
  object: KubeObject | undefined
  isOld: boolean
  /** Nothing was written, because the object existed already. */
  isFound?: true
  /** The message of an Event: the reconciler has taken over an existing object by this write. */
  adopted?: string
}

/** A request failed. The class of `failed` decides the consequence. */
export interface Failed {
  failed: unknown
  /**
   * Present if the API server failed, rather than refused the request. It may ask for a delay before the next request.
   * `isAway`: it answers no request at all, or none without its store.
   */
  server?: { retryAfterSeconds: number | undefined; isAway?: boolean }
}

/** A report of the run to its driver. The run does not wait for it. */
export type Note =
  | { note: 'event'; object: KubeObject; event: EventReport }
  | { note: 'counter'; change: MetricChange }
  /** All gauges of the object: those of its last outcome. */
  | { note: 'gauges'; changes: readonly MetricChange[] }
  /** An effect has ended. `effect` and `error` are as a log may show them. */
  | { note: 'performed'; kind: string; effect: string; error: string | undefined }
  /** The run has failed. `shown` is the error as a log may show it. */
  | { note: 'failed'; error: unknown; shown: unknown; finish: Finish }
  /** The failure could not be written on the object. */
  | { note: 'unreported'; error: unknown; shown: unknown }
  /** A status write was dropped. The function decides again. */
  | { note: 'dropped' }
  /** A write without effect, for later observations. */
  | { note: 'noOp'; target: string; value: string }
