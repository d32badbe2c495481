import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import {
  type Act,
  type AppliedObject,
  type ConditionRemoval,
  type ConditionUpdate,
  type Effect,
  type EventReport,
  isRecord,
  type KubeObject,
  keptStatus,
  type MetricReport,
  type Outcome,
  type OwnMetadata,
  TerminalError,
} from '#contracts'
import { explain, plain } from './options.ts'

/**
 * The outcome of a run: the desired state. A left-out field stays as it is. `requeueAfter` and `requeueAt` request
 * another run; the earlier one counts.
 *
 * @example
 * import { type ReconcileOutcome, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const waits: ReconcileOutcome<{ ready: number }> = { status: { ready: 0 }, requeueAfter: 60 }
 * const site = reconciler({ name: 'site', for: Website, reconcile: () => waits })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * await outcomeOf(site, { object }) // => { status: { ready: 0 }, requeueAfterSeconds: 60 }
 */
export interface ReconcileOutcome<Status = unknown, Change = Effect> {
  /** The complete set of owned objects of the declared kinds. Owned objects that are not in the set are deleted. */
  apply?: readonly AppliedObject[] | undefined
  /**
   * The complete set of objects of others of which the function sets fields, each with exactly these fields: see
   * `fieldsOf`. Fields that are not in the set any more are given back.
   */
  patch?: readonly KubeObject[] | undefined
  /**
   * Requests to subresources of objects that the function observes, one of each, 1,000 at most: `{ act: 'Evict', on: pod }`.
   * Each is performed once on the state that the function has decided on. Return none whose result is there.
   */
  act?: readonly Act[] | undefined
  /**
   * The complete status without `conditions` and `observedGeneration`: if they are those of the object, as in
   * `{ ...object.status, phase }`, they are left out.
   */
  status?: Status | undefined
  /** Conditions by type; a status of null removes one. Conditions of other types keep their values. */
  conditions?: readonly (ConditionUpdate | ConditionRemoval)[] | undefined
  /**
   * All labels and annotations that the function manages on its object. Those of an earlier outcome that are left out
   * are removed.
   */
  metadata?: OwnMetadata | undefined
  /** Deletes the object after all other writes. */
  deleteObject?: boolean | undefined
  /** Events about the object, 20 at most. */
  events?: readonly EventReport[] | undefined
  /**
   * The function runs again after this many seconds. A run without a requeue removes the timer of the object. With
   * `requeueAt`, the earlier time counts.
   */
  requeueAfter?: number | undefined
  /** The function runs again at this time. */
  requeueAt?: Date | undefined
  /** Changes of declared metrics, 20 at most. Equal ones count once in a run. */
  metrics?: readonly MetricReport[] | undefined
  /** A change of the external system. It is performed after all other writes; then the function is called again. */
  effect?: Change | undefined
}

const acted = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string() }),
})
const map = z.record(z.string(), z.string()).optional()

/** Without a status schema, the function cannot return a status. */
const outcomeOf = (status: z.ZodType | undefined) =>
  z.strictObject({
    apply: z
      .array(
        z.looseObject({
          apiVersion: z.string(),
          kind: z.string(),
          retain: z.boolean().optional(),
          stage: z.looseObject({ number: z.number() }).optional(),
        }),
      )
      .optional(),
    patch: z.array(z.looseObject({ apiVersion: z.string(), kind: z.string() })).optional(),
    act: z.array(z.looseObject({ act: z.string(), on: acted })).optional(),
    ...(status && {
      status: status.optional(),
      conditions: z.array(z.looseObject({ type: z.string() })).optional(),
    }),
    metadata: z.strictObject({ labels: map, annotations: map }).optional(),
    deleteObject: z.boolean().optional(),
    events: z.array(z.looseObject({ type: z.string() })).optional(),
    requeueAfter: z.number().min(0).optional(),
    requeueAt: z.date({ error: 'expected a Date with a time, such as new Date(Date.now() + 60_000)' }).optional(),
    metrics: z.array(z.looseObject({ name: z.string() })).optional(),
    effect: z.looseObject({ kind: z.string() }).optional(),
  })

/**
 * Returns a reader that makes the plain outcome from the value that a function returned. It checks only what depends on
 * the author's schema and types; the other checks are made where outcomes of every origin arrive. The schema is built
 * once, not at each run.
 */
export function outcomeReader(
  reconciler: string,
  status: z.ZodType | undefined,
): (returned: unknown, observed: unknown) => Outcome {
  const schema = outcomeOf(status)
  return (returned, observed) => {
    const own = status === undefined ? returned : withoutKept(returned, observed, reconciler)
    const { success, error } = schema.safeParse(own)
    if (!success) throw invalidOutcome(reconciler, explain(error, own), error)
    return toPlainOutcome(reconciler, own as ReconcileOutcome)
  }
}

/** Leaves out the fields of the status that the platform writes, if they are as observed: the status was spread. */
function withoutKept(returned: unknown, observed: unknown, reconciler: string): unknown {
  const { status } = (returned ?? {}) as { status?: unknown }
  if (!isRecord(status)) return returned
  const kept = Object.keys(keptStatus.shape).filter((name) => name in status)
  if (kept.length === 0) return returned
  const other = kept.find((name) => !isDeepStrictEqual(status[name], isRecord(observed) ? observed[name] : undefined))
  if (other !== undefined)
    throw invalidOutcome(
      reconciler,
      `status.${other} is not that of the object: leave it out. "conditions" belong beside "status"`,
    )
  return {
    ...(returned as object),
    status: Object.fromEntries(Object.entries(status).filter(([name]) => !kept.includes(name))),
  }
}

function toPlainOutcome(reconciler: string, returned: ReconcileOutcome): Outcome {
  const { apply, status, conditions, metadata, deleteObject, events, requeueAfter, requeueAt, effect } = returned
  const { act, metrics, patch } = returned
  try {
    return plain(
      {
        apply,
        patch,
        act: act?.map(({ on, ...one }) => ({ ...one, on: nameOf(on) })),
        status,
        conditions,
        metadata,
        deleteObject,
        events,
        requeueAfterSeconds: requeueAfter,
        requeueAt,
        metrics,
        effect,
      },
      'outcome',
    ) as Outcome
  } catch (cause) {
    throw invalidOutcome(reconciler, (cause as Error).message, cause)
  }
}

const nameOf = ({ apiVersion, kind, metadata: { name, namespace } }: Act['on']): Act['on'] => ({
  apiVersion,
  kind,
  metadata: { name, namespace },
})

const invalidOutcome = (reconciler: string, what: string, cause?: unknown): TerminalError =>
  new TerminalError(`reconciler ${reconciler} returned an invalid outcome: ${what}`, {
    reason: 'InvalidOutcome',
    cause,
  })
