import type { ConditionUpdate, KubeObject } from '#contracts'
import { isRecord, sameJson } from './covers.ts'
import type { PlainOutcome } from './outcome.ts'

/** Says on the object whether its last run went through; absent as long as none failed. */
export const RECONCILED = 'Reconciled'

/** Of the function. Those who wait for an object wait for it. */
const READY = 'Ready'

/** Says on the object that it is paused; absent as long as it never was. */
export const PAUSED = 'Paused'

/** As parsed: what is optional may also be undefined. */
type Update = Omit<ConditionUpdate, 'message'> & { message?: string | undefined }

/** metav1.Condition */
interface Condition extends Required<ConditionUpdate> {
  lastTransitionTime: string
  observedGeneration?: number
}

/** Condition of an object over whose fields a fight goes on; absent if there was none. */
export const CONTESTED = 'Contested'

/** JSON merge patch (RFC 7386) of the status, that holds for one resourceVersion only. */
export interface StatusPatch {
  metadata: { resourceVersion: string | undefined }
  status: unknown
}

/** What the object shows of a run that goes on. */
interface Shown {
  refusal?: Failure | undefined
  contested?: string | undefined
}

/** What went wrong in a run, as its object shows it. */
export interface Failure {
  reason: string
  message: string
}

/**
 * The write that makes the status what the outcome says, or undefined if it is so already. `refusal`: of the writes that
 * the outcome asks for. `contested`: who changes again and again what the function sets.
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

/** The write that shows a failure on the object; everything else in the status stays as it is. */
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

/** Conditions by type: those not named stay, the last update of a type counts, and the time moves only when the status does. */
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
 * A run that goes through takes back what an earlier one reported, where the function does not speak of it; one in which
 * writes were refused says so, whatever the function says. An effect and a deletion are still to come, and may fail.
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

/** The API server takes no longer one. */
const LONGEST_MESSAGE = 32_768

/** What follows stands in the message of a condition that was the function's word before. */
const MADE_UNREADY = 'a write was refused: '

/** Ready would be True. */
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

/** RFC 7386: what to merge into `from` to get `to`; undefined when they are the same. */
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

/** metav1.Time has whole seconds. */
const rfc3339 = (time: Date): string => `${time.toISOString().slice(0, 19)}Z`
