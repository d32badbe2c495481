import type { EventReport, KubeObject, PerformInput, ReadInput, RunInput } from '#contracts'
import type { Finish } from '#queue/terms'
import type { MetadataWrite } from './metadata.ts'
import type { Write } from './plan.ts'
import type { Settled } from './settled.ts'
import type { StatusPatch } from './status.ts'
import type { World } from './world.ts'

/** What a reconciliation asks its driver to do next. */
export type Ask =
  /** Read the object, what it owns and what is related to it. `begins`: a new pass begins with what is read. */
  | { do: 'observe'; begins: boolean }
  /** Call the function. The input is frozen. */
  | { do: 'call'; input: RunInput }
  /** Call the function to read its external system. The input is frozen. */
  | { do: 'read'; input: ReadInput }
  /** Call the function to perform an effect, while the key is held. The input is frozen. `shown`: the effect as a log may show it. */
  | { do: 'perform'; input: PerformInput; shown: string }
  /** Send these writes, in any order or side by side. */
  | { do: 'write'; writes: readonly Write[] }
  /** `mayBeDropped`: need not be sent if the object changes before the request's turn comes. */
  | { do: 'writeStatus'; object: KubeObject; patch: StatusPatch; mayBeDropped: boolean }
  /** Labels and annotations. */
  | { do: 'writeMetadata'; object: KubeObject; write: MetadataWrite }
  | { do: 'writeFinalizers'; object: KubeObject; finalizers: string[] }
  /** Delete the object. */
  | { do: 'delete'; object: KubeObject }
  /** Keep the key for that time. */
  | { do: 'hold'; ms: number }
  /**
   * The run is over. The delay of a requeue counts from `now` of the pass, that of an error from here. With
   * `mayLookAgain` a driver that knows of a change since the pass began answers that instead.
   */
  | { do: 'finish'; finish: Finish; mayLookAgain: boolean }

/** The answer of a driver to each Ask. */
export type Answer =
  | { did: 'observe'; seen: Observed | undefined }
  | { did: 'call'; returned: unknown }
  | { did: 'read'; external: unknown }
  /** The rate limit leaves no read for so long. */
  | { did: 'limit'; afterMs: number }
  | { did: 'perform'; result: unknown }
  /** The driver performs no effects: the run ends here. */
  | { did: 'skip' }
  /** In the order of the writes. */
  | { did: 'write'; results: readonly (Written | Failed)[] }
  | { did: 'writeStatus'; result: Written | 'dropped' }
  | { did: 'writeMetadata' | 'writeFinalizers' | 'delete'; result: Written }
  | { did: 'hold' }
  | { did: 'finish'; changed: true }
  | Failed

/** What one observation shows. Left undefined where the object is gone. */
export interface Observed {
  world: World
  /** The time that the function is given. */
  now: Date
  /** Fresh text that cannot be guessed. */
  seed: string
  /** Of the objects of `world`. */
  settled: Settled
  /** The driver may not hold so many objects: `world` has the object alone, and the function cannot decide. */
  excess?: Error | undefined
}

/** An object after its write; undefined: it is gone. `isOld`: the driver knows of a newer version. */
export interface Written {
  object: KubeObject | undefined
  isOld: boolean
  /** Nothing was written: the object has been there already. */
  isFound?: true
  /** It was there, and has become the reconciler's by this write: what the Event says. */
  adopted?: string
}

/** What was asked for could not be done. The class of `failed` decides the consequence. */
export interface Failed {
  failed: unknown
  /** The API server, rather than its answer, is the trouble. It may say after how many seconds to ask again. */
  server?: { retryAfterSeconds: number | undefined }
}

/** What a driver tells others. The run does not wait for it. */
export type Note =
  | { note: 'event'; object: KubeObject; event: EventReport }
  /** An effect has ended. `effect` and `error` are as a log may show them. */
  | { note: 'performed'; kind: string; effect: string; error: string | undefined }
  /** The run has failed. `shown` is the error as a log may show it. */
  | { note: 'failed'; error: unknown; shown: unknown; finish: Finish }
  /** The failure could not be written on the object. */
  | { note: 'unreported'; error: unknown; shown: unknown }
  /** A status write was dropped: the object is decided again. */
  | { note: 'dropped' }
  /** For later observations. */
  | { note: 'settled'; target: string; value: string }
