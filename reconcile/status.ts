import type { ConditionUpdate, KubeObject } from '#contracts'
import { isRecord, sameJson } from './covers.ts'
import type { PlainOutcome } from './outcome.ts'

/** The condition that reports the result of an object's last run. It is absent until a run fails. */
export const RECONCILED = 'Reconciled'

/** The function's own condition. Tools such as `kubectl wait` use it. */
const READY = 'Ready'

/** The condition of a paused object. It is absent until the object is paused for the first time. */
export const PAUSED = 'Paused'

/** A condition after parsing, where an optional field may be undefined. */
type Update = Omit<ConditionUpdate, 'message'> & { message?: string | undefined }

/** metav1.Condition of Kubernetes. */
interface Condition extends Required<ConditionUpdate> {
  lastTransitionTime: string
  observedGeneration?: number
}

/**
 * The condition of an object whose fields other managers change again and again. It is absent until the first such
 * fight.
 */
export const CONTESTED = 'Contested'

/** JSON merge patch (RFC 7386) of the status. It is bound to one resourceVersion. */
export interface StatusPatch {
  metadata: { resourceVersion: string | undefined }
  status: unknown
}

/** The facts that an object shows beside the outcome of a run. */
interface Shown {
  refusal?: Failure | undefined
  contested?: string | undefined
}

/** The failure of a run, as its object shows it. */
export interface Failure {
  reason: string
  message: string
}

/**
 * Returns the write that sets the status of the outcome, or undefined if the object has it already. `refusal`: the
 * refused writes of the outcome. `contested`: the managers that change again and again the fields that the function
 * sets.
 */
export function statusPatch(
  object: KubeObject,
  outcome: Pick<PlainOutcome, 'status' | 'conditions' | 'deleteObject' | 'effect'>,
  now: Date,
  { refusal, contested }: Shown = {},
): StatusPatch | undefined {
  const { status, conditions = [] } = outcome
  const current = isRecord(object.status) ? object.status : {}
  const isAllDone = outcome.deleteObject !== true && outcome.effect === undefined
  const platform = platformConditions(current, conditions, isAllDone, { refusal, contested })
  const updates = [...conditions.filter(({ type }) => platform.every((one) => one.type !== type)), ...platform]
  if (status === undefined && updates.length === 0) return undefined
  const desired = withOurFields(status ?? current, current, updates, object.metadata.generation, now)
  return patchTo(object, current, desired)
}

/** Returns the write that shows a failure on the object. The rest of the status stays as it is. */
export function failurePatch(
  object: KubeObject,
  failure: Failure,
  now: Date,
  refusal?: Failure,
): StatusPatch | undefined {
  const current = isRecord(object.status) ? object.status : {}
  const unready = refusal === undefined ? [] : unreadyBy(current, [], refusal)
  return conditionsPatch(object, [{ type: RECONCILED, status: 'False', ...failure }, ...unready], now)
}

export const conditionPatch = (object: KubeObject, update: Update, now: Date): StatusPatch | undefined =>
  conditionsPatch(object, [update], now)

function conditionsPatch(object: KubeObject, updates: readonly Update[], now: Date): StatusPatch | undefined {
  const current = isRecord(object.status) ? object.status : {}
  const conditions = mergeConditions(listOf(current['conditions']), updates, object.metadata.generation, now)
  return patchTo(object, current, { ...current, conditions })
}

/**
 * Merges conditions by type. Types that are not named stay, the last update of a type counts, and the time changes only
 * with the status.
 */
export function mergeConditions(
  current: readonly unknown[],
  updates: readonly Update[],
  generation: number | undefined,
  now: Date,
): unknown[] {
  const merged = [...current]
  for (const update of new Map(updates.map((one) => [one.type, one])).values()) {
    const index = merged.findIndex((condition) => isRecord(condition) && condition['type'] === update.type)
    const before = index === -1 ? undefined : (merged[index] as Partial<Condition>)
    const after: Condition = {
      type: update.type,
      status: update.status,
      reason: update.reason,
      message: (update.message ?? '').toWellFormed(),
      lastTransitionTime:
        before?.status === update.status && before.lastTransitionTime ? before.lastTransitionTime : rfc3339(now),
      ...(generation === undefined ? {} : { observedGeneration: generation }),
    }
    if (index === -1) merged.push(after)
    else merged[index] = after
  }
  return merged
}

/**
 * Returns the conditions that the dispatcher adds. A successful run resets the conditions of earlier runs, unless the
 * function sets them. A run with refused writes reports the refusal, even if the function sets the same condition. As
 * long as an effect or a deletion is left, which may fail, an earlier failure is not reset.
 */
function platformConditions(
  current: Record<string, unknown>,
  updates: readonly Update[],
  isAllDone: boolean,
  { refusal, contested }: Shown,
): Update[] {
  const recovered: Update[] = []
  if (conditionIn(current, PAUSED)?.status === 'True')
    recovered.push({ type: PAUSED, status: 'False', reason: 'Resumed' })
  if (contested !== undefined)
    recovered.push({
      type: CONTESTED,
      status: 'True',
      reason: 'FieldConflict',
      message: contested.slice(0, LONGEST_MESSAGE),
    })
  else if (conditionIn(current, CONTESTED)?.status === 'True')
    recovered.push({ type: CONTESTED, status: 'False', reason: 'Settled' })
  if (refusal === undefined && isAllDone) recovered.push(...recovery(current))
  const unsaid = recovered.filter(({ type }) => updates.every((update) => update.type !== type))
  if (refusal === undefined) return unsaid
  return [...unsaid, ...unreadyBy(current, updates, refusal), { type: RECONCILED, status: 'False', ...refusal }]
}

function recovery(current: Record<string, unknown>): Update[] {
  const recovered: Update[] = []
  if (![undefined, 'True'].includes(conditionIn(current, RECONCILED)?.status))
    recovered.push({ type: RECONCILED, status: 'True', reason: RECONCILED })
  if (isMadeUnready(current)) recovered.push({ type: READY, status: 'True', reason: RECONCILED })
  return recovered
}

/** The API server refuses a longer message. */
const LONGEST_MESSAGE = 32_768

/**
 * The prefix of the message of a Ready condition that the dispatcher has overwritten. The function had set it before.
 */
const MADE_UNREADY = 'a write was refused: '

/** Sets Ready to False if it would be True otherwise. */
function unreadyBy(
  current: Record<string, unknown>,
  updates: readonly Update[],
  { reason, message }: Failure,
): Update[] {
  const said = updates.findLast(({ type }) => type === READY)?.status
  const isToBeUnready = said === undefined ? isReady(current) || isMadeUnready(current) : said === 'True'
  const why = `${MADE_UNREADY}${message}`.slice(0, LONGEST_MESSAGE)
  return isToBeUnready ? [{ type: READY, status: 'False', reason, message: why }] : []
}

const isReady = (current: Record<string, unknown>): boolean => conditionIn(current, READY)?.status === 'True'

function isMadeUnready(current: Record<string, unknown>): boolean {
  const { status, message = '' } = conditionIn(current, READY) ?? {}
  return status === 'False' && message.startsWith(MADE_UNREADY)
}

const conditionIn = (current: Record<string, unknown>, type: string): Partial<Condition> | undefined =>
  listOf(current['conditions'])
    .filter(isRecord)
    .find((condition) => condition['type'] === type)

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

/** Returns the merge patch (RFC 7386) from `from` to `to`. Undefined if they are equal. */
function mergePatch(from: unknown, to: unknown): unknown {
  if (sameJson(from, to)) return undefined
  if (!isRecord(from) || !isRecord(to)) return to
  const patch: [field: string, value: unknown][] = []
  for (const field of Object.keys(from)) if (!Object.hasOwn(to, field)) patch.push([field, null])
  for (const [field, value] of Object.entries(to)) {
    const change = Object.hasOwn(from, field) ? mergePatch(from[field], value) : value
    if (change !== undefined) patch.push([field, change])
  }
  return Object.fromEntries(patch)
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

/** metav1.Time has a resolution of one second. */
const rfc3339 = (time: Date): string => `${time.toISOString().slice(0, 19)}Z`
