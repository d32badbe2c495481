import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  CONFIDENTIAL,
  type FieldChange,
  type KubeObject,
  type LapRecord,
  namespacedName,
  type ObjectVersion,
  type Outcome,
  placeOf,
  type RunInput,
  type RunRecord,
} from '#contracts'
import { deepFreeze, differences, WITHHELD, withoutContents } from '#reconcile'
import { type Reconciler, toInvoke } from '#sdk'
import { callContext, setsByName } from './given.ts'

/** The result or the error of a function. `place`: where it has thrown the error, `TypeError at src/website.ts:12:5`. */
type Decision = { outcome: Outcome } | { error: string; place?: string }

/**
 * One decision of a recorded run, compared with the decision of the function today.
 *
 * @example
 * import type { ReplayedCall } from 'fairlead/testing'
 * const isStable = ({ unstable }: ReplayedCall) => unstable.length === 0
 * isStable({ call: 1, was: { outcome: {} }, is: { outcome: {} }, differences: [], unstable: [] }) // => true
 */
export interface ReplayedCall {
  /** The number of the call, from 1. */
  call: number
  was: Decision
  is: Decision
  /** The differences between the recorded and the current decision, without confidential contents. */
  differences: FieldChange[]
  /** Paths that differ between two current calls on the same input: the function is not deterministic. */
  unstable: string[]
  /** The stack of the error that the function throws now. */
  stack?: string
}

/**
 * A recorded run and its decisions today. `isSame`: every decision is equal.
 *
 * @example
 * import { type ReplayedRun, recordsIn, replayRun } from 'fairlead/testing'
 * import { website } from './website.ts'
 * const [record] = recordsIn('{"id":"1","laps":[],"leftOut":[],"objects":{}}', 'run.json')
 * const replayed: ReplayedRun | undefined = record && (await replayRun(website, record))
 * replayed?.isSame // => true
 */
export interface ReplayedRun {
  record: RunRecord
  calls: ReplayedCall[]
  /** Every decision is equal to the recorded one. */
  isSame: boolean
}

/** The pause between the two calls. It reveals a function that reads the clock instead of the recorded time. */
const CLOCK_TICK_MS = 2
/** The seed of all replays, since records do not contain the seed of their run. */
const SEED = 'the same in every replay'

/**
 * Runs the function on each input of the record, twice, and returns the differences. Performs no effects and writes
 * nothing. Throws an Error if the record leaves out objects, such as those of a run that read more than a record may
 * hold.
 *
 * @example
 * import { recordsIn, replayRun } from 'fairlead/testing'
 * import { website } from './website.ts'
 * const [record] = recordsIn('{"id":"1","laps":[],"leftOut":[],"objects":{}}', 'run.json')
 * record && (await replayRun(website, record)).calls // => []
 */
export async function replayRun(reconciler: Reconciler, record: RunRecord): Promise<ReplayedRun> {
  if (record.objects === undefined)
    throw new Error(`run ${record.id} cannot be replayed: its record leaves out ${record.leftOut.join(', ')}`)
  const calls: ReplayedCall[] = []
  let last: Outcome | undefined
  for (const [index, lap] of record.laps.entries()) {
    if (lap.outcome !== undefined) last = lap.outcome
    const was = decisionOf(lap, last)
    if (was !== undefined) calls.push(await replayCall(reconciler, inputOf(lap, record), index + 1, was))
  }
  return { record, calls, isSame: calls.every((call) => call.differences.length === 0 && call.unstable.length === 0) }
}

/** Returns undefined if the record leaves the decision out. */
function decisionOf({ error, place, isSame, outcome }: LapRecord, last: Outcome | undefined): Decision | undefined {
  if (error !== undefined) return { error, ...(place !== undefined && { place }) }
  const returned = isSame ? last : outcome
  return returned && { outcome: returned }
}

async function replayCall(reconciler: Reconciler, input: RunInput, call: number, was: Decision): Promise<ReplayedCall> {
  const { stack, ...decided } = await decide(reconciler, input)
  const first = told(decided, was)
  await sleep(CLOCK_TICK_MS)
  const { stack: _, ...again } = await decide(reconciler, input)
  const unstable = differences(compared(first), compared(told(again, was))).map(({ path }) => path)
  const found = differences(compared(was), compared(first)).filter(
    ({ path, before, after }) => !unstable.includes(path) && !isWithheld(before) && !isWithheld(after),
  )
  return { call, was, is: first, differences: found, unstable, ...(stack !== undefined && { stack }) }
}

async function decide(reconciler: Reconciler, input: RunInput): Promise<Decision & { stack?: string }> {
  try {
    const outcome = await toInvoke(reconciler)(input, callContext())
    return { outcome: JSON.parse(JSON.stringify(outcome)) as Outcome }
  } catch (error) {
    const place = placeOf(error)
    if (!(error instanceof Error)) return { error: String(error) }
    return { error: error.message, ...(place !== undefined && { place }), stack: error.stack ?? error.message }
  }
}

/** An edit of the file moves the place of the same error. The order of a set, such as `apply`, decides nothing. */
const compared = (decision: Decision): object =>
  'error' in decision ? { error: decision.error } : { outcome: setsByName(decision.outcome) }

/** Leaves out the contents that the record does not contain. */
function told(is: Decision, was: Decision): Decision {
  if (!('outcome' in is) || !('outcome' in was)) return is
  const { apply } = is.outcome
  if (apply === undefined) return is
  const withheld = new Set(
    (was.outcome.apply ?? []).filter((object) => JSON.stringify(object).includes(WITHHELD)).map(nameOf),
  )
  const objects = apply.map((object) => (withheld.has(nameOf(object)) ? withoutContents(object) : object))
  return { outcome: { ...is.outcome, apply: objects } }
}

const nameOf = ({ kind, metadata }: KubeObject): string => `${kind} ${metadata.namespace ?? ''}/${metadata.name}`

const isWithheld = (value: unknown): boolean =>
  value === WITHHELD || (typeof value === 'string' && value.includes(CONFIDENTIAL))

/** Returns the input of the function, without contents that are not recorded. */
function inputOf({ input }: LapRecord, { objects = {}, id }: RunRecord): RunInput {
  const objectAt = (version: ObjectVersion): KubeObject => {
    const found = objects[version]
    if (found === undefined) throw new Error(`the record of run ${id} names ${version} and does not have it`)
    return found
  }
  const objectsOf = (kinds: Record<string, ObjectVersion[]>) =>
    Object.fromEntries(Object.entries(kinds).map(([kind, versions]) => [kind, versions.map(objectAt)]))
  const { object, owned, related, ...rest } = input
  return deepFreeze({
    ...rest,
    object: object === null ? null : objectAt(object),
    owned: objectsOf(owned),
    related: objectsOf(related),
    seed: SEED,
  })
}

/**
 * Returns recorded runs as rows of a test runner: each rejects if the function decides differently than in the record.
 * A file contains the output of `fairlead runs get`; `*` in its name matches any characters. Throws an Error if no file
 * matches.
 *
 * @example
 * import { replayOf } from 'fairlead/testing'
 * import { website } from './website.ts'
 * const missing = () => replayOf(website, 'runs/missing.json')
 * let message = ''
 * try {
 *   missing()
 * } catch (error) {
 *   message = (error as Error).message
 * }
 * message // => 'there is no file runs/missing.json: fairlead runs get ID > FILE makes one'
 */
export function replayOf(reconciler: Reconciler, files: string): [run: string, holds: () => Promise<void>][] {
  const found = filesOf(files)
  if (found.length === 0) throw new Error(`there is no file ${files}: fairlead runs get ID > FILE makes one`)
  return found.flatMap((file) =>
    recordsIn(readFileSync(file, 'utf8'), file).map((record): [string, () => Promise<void>] => [
      `${file}: ${titleOf(record)}`,
      async () => demandSame(await replayRun(demandFor(reconciler, record), record)),
    ]),
  )
}

function filesOf(pattern: string): string[] {
  const name = basename(pattern)
  if (!name.includes('*')) return existsSync(pattern) ? [pattern] : []
  const parts = name.split('*').map((part) => part.replaceAll(/[\\^$.|?+()[\]{}]/g, String.raw`\$&`))
  const isNamed = new RegExp(`^${parts.join('.*')}$`)
  const folder = dirname(pattern)
  return readdirSync(folder)
    .filter((file) => isNamed.test(file))
    .sort()
    .map((file) => join(folder, file))
}

/**
 * Reads records of runs: one record, a list of records, or one per line. Throws an Error, which names `file`, for other
 * contents.
 *
 * @example
 * import { recordsIn } from 'fairlead/testing'
 * recordsIn('[{"id":"1","laps":[],"leftOut":[]}]', 'runs.json').length // => 1
 */
export function recordsIn(text: string, file: string): RunRecord[] {
  const records =
    parsed(text) ??
    text
      .split('\n')
      .filter((line) => line.trim() !== '')
      .map(parsed)
  return [records].flat().map((record) => {
    const { id, laps, leftOut } = (record ?? {}) as Partial<RunRecord>
    if (typeof id === 'string' && Array.isArray(laps) && Array.isArray(leftOut)) return record as RunRecord
    throw new Error(`${file} has an entry that is not a record of a run: give the output of fairlead runs get`)
  })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

const titleOf = ({ reconciler, namespace, name, endedAt }: RunRecord): string =>
  `${reconciler} ${namespacedName({ namespace, name })}, ${endedAt}`

function demandFor(reconciler: Reconciler, record: RunRecord): Reconciler {
  if ([reconciler.name, reconciler.identity].includes(record.reconciler)) return reconciler
  throw new Error(`run ${record.id} is of the reconciler ${record.reconciler}, not of ${reconciler.name}`)
}

function demandSame({ calls }: ReplayedRun): void {
  const lines = calls.flatMap(({ call, differences, unstable }) => [
    ...differences.map((one) => `call ${call}: ${changeText(one)}`),
    ...unstable.map((path) => `call ${call}: ${path} differs between two calls on the same input`),
  ])
  if (lines.length > 0) throw new Error(`the function decides otherwise than it did:\n${lines.join('\n')}`)
}

/**
 * Returns a difference as one line: `+` for an added field, `-` for a removed one, `~` for a changed one.
 *
 * @example
 * import { changeText } from 'fairlead/testing'
 * changeText({ path: '.status.size', before: 1, after: 2 }) // => '~ .status.size: 1 → 2'
 */
export function changeText({ path, ...values }: FieldChange): string {
  if (!('before' in values)) return `+ ${path}: ${JSON.stringify(values.after)}`
  if (!('after' in values)) return `- ${path}: ${JSON.stringify(values.before)}`
  return `~ ${path}: ${JSON.stringify(values.before)} → ${JSON.stringify(values.after)}`
}
