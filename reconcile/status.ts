import { type ConditionRemoval, type ConditionUpdate, isRecord, type KubeObject } from '#contracts'
import { sameJson } from './compare.ts'
import type { PlainOutcome } from './outcome.ts'

/** The condition that reports the result of an object's last run. It is absent until a run fails. */
export const RECONCILED = 'Reconciled'

/** The function's own condition. Tools such as `kubectl wait` use it. */
const READY = 'Ready'

/** The condition of a paused object. It is absent until the object is paused for the first time. */
export const PAUSED = 'Paused'

/** A condition after parsing, where an optional field may be undefined. */
type Setting = Omit<ConditionUpdate, 'message'> & { message?: string }
type Update = Setting | Pick<ConditionRemoval, 'type' | 'status'>

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
  refusal?: Failure
  contested?: string
  /** Whether no other function may write the status of the object. Left out: there is none. */
  isAlone?: () => boolean
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
  { refusal, contested, isAlone = () => true }: Shown = {},
): StatusPatch | undefined {
  const { status, conditions = [] } = outcome
  const current = isRecord(object.status) ? object.status : {}
  const isAllDone = outcome.deleteObject !== true && outcome.effect === undefined
  const platform = platformConditions(current, conditions, isAllDone, { refusal, contested })
  const updates = [...conditions.filter(({ type }) => platform.every((one) => one.type !== type)), ...platform]
  const { generation, deletionTimestamp } = object.metadata
  // A function that returns neither a status nor conditions begins no number. One that is there, it keeps current, if it is
  // its own: another function may not have seen this generation yet.
  const { observedGeneration } = current
  const isSilent = status === undefined && conditions.length === 0
  const isNumbered = observedGeneration !== undefined && generation !== undefined && (!isSilent || isAlone())
  if (isSilent && updates.length === 0 && !(isNumbered && isAllDone && deletionTimestamp === undefined))
    return undefined
  const desired = withOurFields(status ?? current, current, updates, generation, now)
  if (isSilent && !isNumbered) {
    delete desired['observedGeneration']
    if (observedGeneration !== undefined && generation !== undefined) Object.assign(desired, { observedGeneration })
  }
  return patchTo(object, current, desired)
}

/** What an object shows of a failed run beside its failure. */
interface AlsoFailed {
  /** The writes that were refused. */
  refusal?: Failure | undefined
  /** The error of a function that fails again and again. */
  readyUnknown?: Failure | undefined
  isTerminal?: boolean
}

/**
 * Returns the write that shows a failure on the object. The rest of the status stays as it is. `failure` is undefined if
 * it may pass. A terminal failure makes Ready False, whatever caused the run, because the object stays as it is until
 * something changes.
 */
export function failurePatch(
  object: KubeObject,
  failure: Failure | undefined,
  now: Date,
  { refusal, readyUnknown, isTerminal = false }: AlsoFailed = {},
): StatusPatch | undefined {
  const current = isRecord(object.status) ? object.status : {}
  const refused = refusal === undefined ? unknownBy(current, readyUnknown) : unreadyBy(current, [], refusal)
  const unready = isTerminal && failure !== undefined ? [unreadyForGood(current, failure)] : refused
  const reconciled = failure === undefined ? [] : [{ type: RECONCILED, status: 'False' as const, ...failure }]
  const updates = [...reconciled, ...unready]
  return updates.length === 0 ? undefined : conditionsPatch(object, updates, now)
}

export const conditionPatch = (object: KubeObject, update: Setting, now: Date): StatusPatch | undefined =>
  conditionsPatch(object, [update], now)

function conditionsPatch(object: KubeObject, updates: readonly Update[], now: Date): StatusPatch | undefined {
  const current = isRecord(object.status) ? object.status : {}
  const conditions = mergeConditions(listOf(current['conditions']), updates, object.metadata.generation, now)
  return patchTo(object, current, { ...current, conditions })
}

/**
 * Merges conditions by type. Types that are not named stay, the last update of a type counts, a status of null removes
 * the condition, and the time changes only with the status.
 */
export function mergeConditions(
  current: readonly unknown[],
  updates: readonly Update[],
  generation: number | undefined,
  now: Date,
): unknown[] {
  const last = new Map(updates.map((one) => [one.type, one]))
  const isRemoved = (condition: unknown): boolean =>
    isRecord(condition) && last.get(String(condition['type']))?.status === null
  const merged = current.filter((condition) => !isRemoved(condition))
  for (const update of last.values()) {
    if (update.status === null) continue
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
  if (refusal !== undefined) recovered.push(...readyAgain(current))
  const unsaid = recovered.filter(({ type }) => updates.every((update) => update.type !== type))
  if (refusal === undefined) return unsaid
  const unready = unreadyBy(current, updates, refusal)
  const kept = unsaid.filter(({ type }) => unready.every((one) => one.type !== type))
  return [...kept, ...unready, { type: RECONCILED, status: 'False', ...refusal }]
}

function recovery(current: Record<string, unknown>): Update[] {
  const isFailed = ![undefined, 'True'].includes(conditionIn(current, RECONCILED)?.status)
  const reconciled: Update[] = isFailed ? [{ type: RECONCILED, status: 'True', reason: RECONCILED }] : []
  return [...reconciled, ...readyAgain(current)]
}

/** The API server refuses a longer message. */
const LONGEST_MESSAGE = 32_768

/**
 * The beginnings of the message of a Ready condition that the dispatcher has overwritten. They show the status that the
 * condition had before: with a terminal error the named one, or none; otherwise True.
 */
const WRITE_REFUSED = 'a write was refused'
const FUNCTION_FAILS = 'the function fails'
const TERMINAL_ERROR = 'terminal error'
const OVERWRITTEN = new RegExp(
  `^(${WRITE_REFUSED}|${FUNCTION_FAILS}|${TERMINAL_ERROR})(?: \\(Ready was (True|False|Unknown) before\\))?: `,
)

type ReadyStatus = ConditionUpdate['status'] | null

/** Returns the status of Ready before the dispatcher overwrote it; null: none. Undefined: it is not overwritten. */
function statusBefore(current: Record<string, unknown>): ReadyStatus | undefined {
  const { status, message = '' } = conditionIn(current, READY) ?? {}
  const [, cause, before] = (status === 'True' ? null : OVERWRITTEN.exec(message)) ?? []
  if (cause === undefined || (cause === FUNCTION_FAILS) !== (status === 'Unknown')) return undefined
  return cause === TERMINAL_ERROR ? ((before as ConditionUpdate['status'] | undefined) ?? null) : 'True'
}

/** Whether the dispatcher has set this condition Ready, because the function fails. */
export const isFunctionFailing = ({ status, message = '' }: { status?: string; message?: string }): boolean =>
  status === 'Unknown' && message.startsWith(`${FUNCTION_FAILS}: `)

/** Returns the status that the function has given its condition Ready; null: none. */
function readySaid(current: Record<string, unknown>): ReadyStatus {
  const before = statusBefore(current)
  return before === undefined ? (conditionIn(current, READY)?.status ?? null) : before
}

/** Returns the Ready condition as it was before the dispatcher overwrote it. */
function readyAgain(current: Record<string, unknown>): Update[] {
  const status = statusBefore(current)
  return status === undefined ? [] : [{ type: READY, status, reason: RECONCILED }]
}

/** Sets Ready to False if it would be True otherwise. */
function unreadyBy(current: Record<string, unknown>, updates: readonly Update[], failure: Failure): Update[] {
  const update = updates.findLast(({ type }) => type === READY)
  const said = update === undefined ? readySaid(current) : update.status
  return said === 'True' ? [overwritten('False', WRITE_REFUSED, failure)] : []
}

/**
 * Sets Ready to Unknown if it is True. The condition stays while the function fails, whatever the reason, so that failures
 * in a row cost one write.
 */
function unknownBy(current: Record<string, unknown>, failure: Failure | undefined): Update[] {
  if (failure === undefined) return []
  const ready = conditionIn(current, READY)
  const isSaid = ready !== undefined && isFunctionFailing(ready)
  return isSaid || readySaid(current) !== 'True' ? [] : [overwritten('Unknown', FUNCTION_FAILS, failure)]
}

function unreadyForGood(current: Record<string, unknown>, failure: Failure): Update {
  const said = readySaid(current)
  return overwritten('False', said === null ? TERMINAL_ERROR : `${TERMINAL_ERROR} (Ready was ${said} before)`, failure)
}

const overwritten = (status: Setting['status'], why: string, { reason, message }: Failure): Update => ({
  type: READY,
  status,
  reason,
  message: `${why}: ${message}`.slice(0, LONGEST_MESSAGE),
})

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
export const rfc3339 = (time: Date): string => `${time.toISOString().slice(0, 19)}Z`
