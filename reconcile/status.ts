import type { ConditionUpdate, KubeObject } from '#contracts'
import { isRecord, sameJson } from './covers.ts'
import type { PlainOutcome } from './outcome.ts'

/** Says on the object whether its last run went through; absent as long as none failed. */
export const RECONCILED = 'Reconciled'

/** Says on the object that it is paused; absent as long as it never was. */
export const PAUSED = 'Paused'

/** As parsed: what is optional may also be undefined. */
type Update = Omit<ConditionUpdate, 'message'> & { message?: string | undefined }

/** metav1.Condition */
interface Condition extends Required<ConditionUpdate> {
  lastTransitionTime: string
  observedGeneration?: number
}

/** JSON merge patch (RFC 7386) of the status, that holds for one resourceVersion only. */
export interface StatusPatch {
  metadata: { resourceVersion: string | undefined }
  status: unknown
}

/** What went wrong in a run, as its object shows it. */
export interface Failure {
  reason: string
  message: string
}

/** The write that makes the status what the outcome says, or undefined if it is so already. */
export function statusPatch(
  object: KubeObject,
  { status, conditions = [] }: Pick<PlainOutcome, 'status' | 'conditions'>,
  now: Date,
): StatusPatch | undefined {
  const current = isRecord(object.status) ? object.status : {}
  const updates = [...conditions, ...recovery(current, conditions)]
  if (status === undefined && updates.length === 0) return undefined
  const desired = withOurFields(status ?? current, current, updates, object.metadata.generation, now)
  return patchTo(object, current, desired)
}

/** The write that shows a failure on the object; everything else in the status stays as it is. */
export function failurePatch(object: KubeObject, failure: Failure, now: Date): StatusPatch | undefined {
  return conditionPatch(object, { type: RECONCILED, status: 'False', ...failure }, now)
}

export function conditionPatch(object: KubeObject, update: Update, now: Date): StatusPatch | undefined {
  const current = isRecord(object.status) ? object.status : {}
  const conditions = mergeConditions(listOf(current['conditions']), [update], object.metadata.generation, now)
  return patchTo(object, current, { ...current, conditions })
}

/** Conditions by type: those not named stay, and the time moves only when the status does. */
export function mergeConditions(
  current: readonly unknown[],
  updates: readonly Update[],
  generation: number | undefined,
  now: Date,
): unknown[] {
  const merged = [...current]
  for (const update of updates) {
    const index = merged.findIndex((condition) => isRecord(condition) && condition['type'] === update.type)
    const before = index === -1 ? undefined : (merged[index] as Partial<Condition>)
    const after: Condition = {
      type: update.type,
      status: update.status,
      reason: update.reason,
      message: update.message ?? '',
      lastTransitionTime:
        before?.status === update.status && before.lastTransitionTime ? before.lastTransitionTime : rfc3339(now),
      ...(generation === undefined ? {} : { observedGeneration: generation }),
    }
    if (index === -1) merged.push(after)
    else merged[index] = after
  }
  return merged
}

/** A run that goes through takes back what an earlier one reported. */
function recovery(current: Record<string, unknown>, updates: readonly Update[]): Update[] {
  const statusOf = (type: string): unknown =>
    listOf(current['conditions'])
      .filter(isRecord)
      .find((condition) => condition['type'] === type)?.['status']
  const recovered: Update[] = []
  if (![undefined, 'True'].includes(statusOf(RECONCILED) as undefined))
    recovered.push({ type: RECONCILED, status: 'True', reason: RECONCILED })
  if (statusOf(PAUSED) === 'True') recovered.push({ type: PAUSED, status: 'False', reason: 'Resumed' })
  return recovered.filter(({ type }) => updates.every((update) => update.type !== type))
}

function withOurFields(
  status: Record<string, unknown>,
  current: Record<string, unknown>,
  updates: readonly Update[],
  generation: number | undefined,
  now: Date,
): Record<string, unknown> {
  const { conditions: _, observedGeneration: __, ...authored } = status
  const conditions = mergeConditions(listOf(current['conditions']), updates, generation, now)
  return {
    ...authored,
    ...(conditions.length > 0 ? { conditions } : {}),
    ...(generation === undefined ? {} : { observedGeneration: generation }),
  }
}

function patchTo(object: KubeObject, current: unknown, desired: unknown): StatusPatch | undefined {
  const status = mergePatch(current, desired)
  if (status === undefined) return undefined
  return { metadata: { resourceVersion: object.metadata.resourceVersion }, status }
}

/** RFC 7386: what to merge into `from` to get `to`; undefined when they are the same. */
function mergePatch(from: unknown, to: unknown): unknown {
  if (sameJson(from, to)) return undefined
  if (!isRecord(from) || !isRecord(to)) return to
  const patch: Record<string, unknown> = {}
  for (const field of Object.keys(from)) if (!Object.hasOwn(to, field)) patch[field] = null
  for (const [field, value] of Object.entries(to)) {
    const change = Object.hasOwn(from, field) ? mergePatch(from[field], value) : value
    if (change !== undefined) patch[field] = change
  }
  return patch
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

/** metav1.Time has whole seconds. */
const rfc3339 = (time: Date): string => `${time.toISOString().slice(0, 19)}Z`
