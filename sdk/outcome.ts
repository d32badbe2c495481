import { z } from 'zod'
import {
  type AppliedObject,
  type ConditionUpdate,
  type Effect,
  type EventReport,
  type Outcome,
  type OwnMetadata,
  TerminalError,
} from '#contracts'
import { explain } from './explain.ts'
import { plain } from './plain.ts'

/**
 * The outcome of a run: the desired state. A left-out field stays as it is. `requeueAfter` and `requeueAt` request
 * another run; the earlier one counts.
 *
 * @example
 * import type { ReconcileOutcome } from 'fairlead'
 * const outcome: ReconcileOutcome<{ phase: string }> = { status: { phase: 'PENDING' }, requeueAfter: 60 }
 * outcome.requeueAfter // => 60
 */
export interface ReconcileOutcome<Status = unknown, Change = Effect> {
  /** The complete set of owned objects of the declared kinds; what is owned and not in it is deleted. */
  apply?: readonly AppliedObject[] | undefined
  /** The complete status, but for `conditions` and `observedGeneration`. */
  status?: Status | undefined
  /** Set by type; types not named stay as they are. */
  conditions?: readonly ConditionUpdate[] | undefined
  /** All labels and annotations that the function keeps on its object; one that it kept before and leaves out is removed. */
  metadata?: OwnMetadata | undefined
  /** Delete the object when everything else is written. */
  deleteObject?: boolean | undefined
  events?: readonly EventReport[] | undefined
  /** In seconds; with requeueAt, the earlier counts. */
  requeueAfter?: number | undefined
  requeueAt?: Date | undefined
  /** A change of the external system: performed when all else is written, then the function decides again. */
  effect?: Change | undefined
}

const map = z.record(z.string(), z.string()).optional()

/** Without a status of its own the object has none that a function could return. */
const outcomeOf = (status: z.ZodType | undefined) =>
  z.strictObject({
    apply: z
      .array(z.looseObject({ apiVersion: z.string(), kind: z.string(), retain: z.boolean().optional() }))
      .optional(),
    ...(status && {
      status: status.optional(),
      conditions: z.array(z.looseObject({ type: z.string() })).optional(),
    }),
    metadata: z.strictObject({ labels: map, annotations: map }).optional(),
    deleteObject: z.boolean().optional(),
    events: z.array(z.looseObject({ type: z.string() })).optional(),
    requeueAfter: z.number().min(0).optional(),
    requeueAt: z.date().optional(),
    effect: z.looseObject({ kind: z.string() }).optional(),
  })

/**
 * Makes the plain outcome of what a function returned, checked as far as only its author's schema and types can tell;
 * the rest is checked where outcomes of every origin arrive. The schema is built once, here, not at each run.
 */
export function outcomeReader(reconciler: string, status: z.ZodType | undefined): (returned: unknown) => Outcome {
  const schema = outcomeOf(status)
  return (returned) => {
    const { success, error } = schema.safeParse(returned)
    if (!success) throw invalidOutcome(reconciler, explain(error, returned), error)
    return toPlainOutcome(reconciler, returned as ReconcileOutcome)
  }
}

function toPlainOutcome(reconciler: string, returned: ReconcileOutcome): Outcome {
  const { apply, status, conditions, metadata, deleteObject, events, requeueAfter, requeueAt, effect } = returned
  try {
    return plain(
      {
        apply,
        status,
        conditions,
        metadata,
        deleteObject,
        events,
        requeueAfterSeconds: requeueAfter,
        requeueAt,
        effect,
      },
      'outcome',
    ) as Outcome
  } catch (cause) {
    throw invalidOutcome(reconciler, (cause as Error).message, cause)
  }
}

const invalidOutcome = (reconciler: string, what: string, cause: unknown): TerminalError =>
  new TerminalError(`reconciler ${reconciler} returned an invalid outcome: ${what}`, {
    reason: 'InvalidOutcome',
    cause,
  })
