import type { Invoke, RunInput } from '#contracts'
import type { DeadMessage, EventStore } from '#events'
import type { TokenBucket } from '#primitives'
import type { RunRate } from '#queue'
import type { NoOpWrites, Reconciled } from '#reconcile'
import type { ReconcilerSpec } from '#spec'
import type { EventRecorder } from '../apply/event-recorder.ts'
import type { WritersDeps } from '../apply/writers.ts'
import type { ReconcilerVersion } from '../observe/reconciler-version.ts'
import type { Adoptions } from '../observe/references.ts'
import type { StateBudget } from '../observe/state-budget.ts'
import { ConfigValues, type ConfigValuesDeps } from './config-values.ts'
import type { FunctionCalls } from './function-calls.ts'
import type { EndedRun, RunObserver } from './trail.ts'

export interface ReconciliationDeps extends WritersDeps {
  /** Without `cursor`: every resource is listed, as by the API server itself. */
  events: WritersDeps['events'] & Partial<Pick<EventStore, 'cursor'>>
  noOps: NoOpWrites
  state: StateBudget
  adoptions: Adoptions
  recorder: Pick<EventRecorder, 'record'>
  calls: FunctionCalls
  /** What functions read about the cluster. Left out: the process serves only one. */
  clusterInfo?: RunInput['cluster'] | undefined
  now: () => Date
  random: () => number
  /** Returns text that cannot be guessed. */
  seed: () => string
  observe: RunObserver
  /** Receives each run that has ended, after its end is stored. No run waits for it. Left out: no history is kept. */
  ended?: (run: EndedRun) => void
  /** Whether traces are collected. */
  sampled: boolean
  /** Receives each effect and each act, which is then not performed. Left out: they are performed. */
  skipEffect?: (effect: string) => void
  deadLetter: ((dead: DeadMessage) => Promise<void>) | undefined
}

/** A reconciler and its function. */
export interface ServedReconciler extends Reconciled {
  invoke: Invoke
  /** Undefined: the Reconciler does not change. */
  reconcilerVersion: ReconcilerVersion | undefined
  /** The limit of calls that read or change the function's external system. Left out: no limit. */
  rateLimit?: TokenBucket
  /** The values for the calls of its external system. Left out: it declares none, or is called over HTTP. */
  config?: ConfigValues | undefined
  /** The rates that limit its runs in all processes together. Left out: none. */
  rates?: readonly RunRate[]
  /**
   * Notes the revision that has decided on an object. Returns the time at which the object has to run again for that.
   */
  ranBy?: (revision: string | undefined) => Date | undefined
}

/** Returns the values that the calls of the function receive. A server of a function has its own. */
export const configOf = (
  reconciler: string,
  { external, invoke, serviceAccount }: ReconcilerSpec,
  deps: Omit<ConfigValuesDeps, 'reconciler'>,
): ConfigValues | undefined =>
  external?.config === undefined || invoke.http !== undefined || serviceAccount === undefined
    ? undefined
    : new ConfigValues({ reconciler, ...deps }, external.config, serviceAccount)

const SEED_BYTES = 24
/** The number of seeds per request to the system, which costs 0.05 to 0.1 ms on an idle machine. */
const POOLED_SEEDS = 128

/**
 * Returns a function that gives a new text at each call, which cannot be guessed. `randomBytes` must be
 * cryptographically secure.
 */
export function seedsFrom(randomBytes: (size: number) => Buffer): () => string {
  let pool: Buffer = Buffer.alloc(0)
  return () => {
    if (pool.length === 0) pool = randomBytes(SEED_BYTES * POOLED_SEEDS)
    const seed = pool.toString('base64url', 0, SEED_BYTES)
    pool = pool.subarray(SEED_BYTES)
    return seed
  }
}
