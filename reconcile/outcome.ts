import { z } from 'zod'
import { RetryAfterError, TerminalError } from '#contracts'

/**
 * The longest wait. nats-server 2.15 counts in 64-bit nanoseconds: a timer after April 2262 overflows and fires at once,
 * again and again.
 */
export const HUNDRED_YEARS_S = 100 * 365.25 * 86_400

/** The pattern of reasons in metav1.Condition (apimachinery pkg/apis/meta/v1/types.go). */
export const REASON = /^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/

const MAX_EFFECT_BYTES = 64 * 1024

const reason = z.string().max(1024).regex(REASON, 'must be one CamelCase word')

const map = z.record(z.string(), z.string()).optional()

const type = z.string().min(1).max(316)

const condition = z.discriminatedUnion(
  'status',
  [
    z.object({
      type,
      status: z.enum(['True', 'False', 'Unknown']),
      reason,
      message: z.string().max(32_768).optional(),
    }),
    z.object({ type, status: z.null() }),
  ],
  { error: 'must be "True", "False" or "Unknown", or null to remove the condition' },
)

const desired = z.looseObject({
  apiVersion: z.string().min(1),
  kind: z.string().min(1),
  metadata: z
    .looseObject({
      name: z.string().min(1).optional(),
      namespace: z.string().min(1).optional(),
      labels: map,
      annotations: map,
      ownerReferences: z.array(z.looseObject({ uid: z.string().min(1) })).optional(),
    })
    .default({}),
  retain: z.boolean().optional(),
  stage: z.strictObject({ number: z.number(), action: z.enum(['Hold', 'Done', 'Remove']).optional() }).optional(),
})

const on = z.object({
  apiVersion: z.string().min(1),
  kind: z.string().min(1),
  metadata: z.object({ name: z.string().min(1), namespace: z.string().min(1).optional() }),
})

const act = z.discriminatedUnion('act', [
  z.strictObject({ act: z.literal('Evict'), on }),
  z.strictObject({ act: z.literal('Bind'), on, node: z.string().min(1).max(253) }),
  z.strictObject({ act: z.literal('Scale'), on, replicas: z.int32().min(0) }),
  z.strictObject({ act: z.enum(['Approve', 'Deny']), on, reason, message: z.string().max(32_768).optional() }),
])

/** Each act is a request of its own, in one round of a run. */
const MOST_ACTS = 1000

const outcomeSchema = z.strictObject({
  apply: z.array(desired).optional(),
  patch: z.array(desired).optional(),
  act: z.array(act).max(MOST_ACTS).optional(),
  status: z.record(z.string(), z.unknown()).optional(),
  conditions: z.array(condition).optional(),
  metadata: z.strictObject({ labels: map, annotations: map }).optional(),
  deleteObject: z.boolean().optional(),
  events: z
    .array(z.object({ type: z.enum(['Normal', 'Warning']), reason, message: z.string() }))
    .max(20)
    .optional(),
  metrics: z
    .array(
      z.strictObject({
        name: z.string(),
        value: z.number().default(1),
        labels: z.record(z.string(), z.string()).default({}),
      }),
    )
    .max(20)
    .optional(),
  requeueAfterSeconds: z.number().min(0).max(HUNDRED_YEARS_S).optional(),
  requeueAt: z.iso.datetime({ offset: true }).optional(),
  effect: z
    .looseObject({ kind: z.string().regex(/^[A-Za-z][A-Za-z0-9]{0,62}$/, 'must be one word, 63 characters at most') })
    .refine((effect) => Buffer.byteLength(JSON.stringify(effect)) <= MAX_EFFECT_BYTES, 'must be 64 KiB at most as JSON')
    .optional(),
})

const timer = z.object({
  requeueAfterSeconds: outcomeSchema.shape.requeueAfterSeconds.catch(undefined),
  requeueAt: outcomeSchema.shape.requeueAt.catch(undefined),
})

/** When an outcome asks to run again. */
export type Timer = z.output<typeof timer>

/** Returns when an outcome asks to run again that is not valid in something else. */
export const timerIn = (returned: unknown): Timer => timer.safeParse(returned).data ?? {}

/** The names of all fields of an outcome. */
export const OUTCOME_FIELDS: ReadonlySet<string> = new Set(Object.keys(outcomeSchema.shape))

/** An outcome whose objects may lack the fields that the dispatcher fills in: name, namespace, owner reference. */
export type PlainOutcome = z.output<typeof outcomeSchema>
export type DesiredInput = NonNullable<PlainOutcome['apply']>[number]

/**
 * Returns the outcome of a function as plain JSON. It equals an answer over HTTP, and shares no values with the
 * function. A function that returns nothing has the empty outcome. Throws TerminalError with the path that is wrong, and
 * RetryAfterError for an outcome of more than `maxBytes`.
 */
export function parseOutcome(returned: unknown, maxBytes = Number.POSITIVE_INFINITY): PlainOutcome {
  const text = asJson(returned ?? {})
  const outcome = JSON.parse(text) as { apply?: unknown; patch?: unknown } | null
  demandReadable(countIn(outcome?.apply) + countIn(outcome?.patch), Buffer.byteLength(text), maxBytes)
  const result = outcomeSchema.safeParse(outcome)
  if (result.success) return result.data
  const issues = result.error.issues.map(({ path, message }) => `${path.join('.') || 'outcome'}: ${message}`)
  throw new TerminalError(`the function returned no valid outcome: ${issues.join('; ')}`, { reason: 'InvalidOutcome' })
}

const countIn = (objects: unknown): number => (Array.isArray(objects) ? objects.length : 0)

function asJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null'
  } catch (cause) {
    throw new TerminalError(`the function returned an outcome that is not plain JSON: ${(cause as Error).message}`, {
      reason: 'InvalidOutcome',
      cause,
    })
  }
}

/** The limit of what one run reads, and of what its function returns, in bytes of JSON. */
export const MAX_STATE_BYTES = 16 * 2 ** 20
/** Counted for each object in addition, as for each object that is read. */
const OBJECT_BYTES = 1024
/** The limit is a setting of the process, so the object is tried again after a restart with a higher one. */
const ANSWER_RETRY_S = 300

export const inMib = (bytes: number): string => `${Number((bytes / 2 ** 20).toFixed(1))} MiB`

/**
 * Throws if a run could not read what its function wants to write: the next run of the object would not call the
 * function. So nothing of such an outcome is written.
 */
function demandReadable(objects: number, jsonBytes: number, maxBytes: number): void {
  const bytes = jsonBytes + objects * OBJECT_BYTES
  if (bytes <= maxBytes) return
  const message =
    `nothing is written, because the function returned ${inMib(bytes)} in ${objects} objects (1 KiB is added for each), ` +
    `and a run reads ${inMib(maxBytes)} at most. Return fewer or smaller objects, or raise FAIRLEAD_MAX_STATE_MIB`
  throw new RetryAfterError(message, { afterSeconds: ANSWER_RETRY_S, reason: 'AnswerTooLarge' })
}
