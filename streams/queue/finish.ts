import { end, generationOf, type HeldKey, isRunOf, type Machine, UnexpectedAnswerError } from './machine.ts'
import {
  type Failures,
  type Io,
  type KeyRecord,
  type NewRecord,
  otherLane,
  type Publish,
  withCauses,
  worst,
} from './record.ts'

/** How a run ended. Times are the server's, in epoch milliseconds. */
export type Ending =
  | { kind: 'done' }
  | { kind: 'requeue'; at: number }
  | { kind: 'error'; at: number; message: string; isCounted?: boolean; isTimer?: boolean }
  /** The key does not run again until a change or a user enqueues it. */
  | { kind: 'terminal'; message: string }
  /**
   * The run did not begin, because earlier runs of the key were cut short. The key waits the longer, the more there were.
   */
  | { kind: 'postponed'; at: number; message: string }
  /** The run did not finish. Another worker runs the key at once. */
  | { kind: 'handback' }

export interface FinishInput {
  held: HeldKey
  ending: Ending
}

/**
 * fenced: the lease was lost, and nothing was written. unclear: the answer got lost and the record belongs to another
 * owner now, so the run was either finished or fenced.
 */
export type FinishResult =
  | { kind: 'idle' | 'queued' | 'parked' | 'fenced' | 'unclear' }
  | { kind: 'waiting'; record: KeyRecord }

export interface FinishStep extends FinishInput {
  name: 'finish' | 'look'
  message: Publish
  ambiguous: boolean
  io: Io
}

/** The longest time that a key waits: nats-server 2.15 fires a schedule after April 2262 at once. */
export const CENTURY_MS = 100 * 365.25 * 24 * 3600 * 1000

/** Ends a run in one write, which removes the record and stores the message that follows it. */
export const finish: Machine<FinishInput, FinishStep, FinishResult> = {
  start: release,

  next(step, answer, now) {
    if (answer.kind === 'busy') return step
    if (answer.kind === 'unknown') return step.name === 'finish' ? { ...step, ambiguous: true } : step
    if (step.name === 'finish') {
      if (answer.kind === 'stored') return end(resultOf(step.message, answer.sequence))
      return { ...step, name: 'look', io: { do: 'readRecord' } }
    }
    if (answer.kind !== 'record') throw new UnexpectedAnswerError(step, answer)
    const { record } = answer
    if (record && isRunOf(record, step.held.record.owner))
      return release({ ...step, held: { ...step.held, record } }, now)
    if (record && isWhatWasSent(record, step.message)) return end(resultOf(step.message, record.sequence))
    return end({ kind: step.ambiguous ? 'unclear' : 'fenced' })
  },
}

function release({ held, ending }: FinishInput, now: number): FinishStep {
  const message = releaseMessage({ held, ending }, now)
  const next = { held: { ...held, writes: held.writes + 1 }, ending }
  return { name: 'finish', message, ambiguous: false, ...next, io: { do: 'publish', message } }
}

function releaseMessage({ held, ending }: FinishInput, now: number): Publish {
  const { record } = held
  const guards = { expected: { of: 'record' as const, sequence: record.sequence }, cancels: record.generation }
  const failures = failuresAfter(record, ending)
  const error = 'message' in ending ? { error: ending.message } : {}
  if (record.dirty || record.otherLaneWaits || ending.kind === 'handback') {
    const more = { ...(isStillCut(record, ending) && { cutShort: true }), ...withCauses(record.causes) }
    return { role: 'token', lane: rerunLane(record), ...failures, ...error, ...more, ...guards }
  }
  if (ending.kind === 'done') return { role: 'done', ...guards }
  return { role: 'record', record: waitingRecord(held, ending, failures, now), ...guards }
}

/**
 * Returns the lane of the rerun. Dropped tokens of the record's own lane may not be acknowledged yet, so the rerun must
 * replace them. Without such tokens, the rerun replaces the token that waits in the other lane, and is delivered at
 * once.
 */
const rerunLane = ({ lane, dirty, otherLaneWaits }: KeyRecord) => (otherLaneWaits && !dirty ? otherLane(lane) : lane)

/** Only success clears a suspect key: a run that throws now may crash its process the next time. */
function failuresAfter(record: KeyRecord, ending: Ending): Failures {
  const { kind } = ending
  if (kind === 'done' || kind === 'requeue') return { attempt: 0 }
  if (kind === 'postponed' || kind === 'handback') return worst(record)
  const { attempt, suspect } = record
  return { attempt: attemptAfter(attempt, ending), ...(suspect && { suspect }) }
}

/** A lease that has ended before counts with the next one, unless a run has ended in between. */
const isStillCut = ({ reason }: KeyRecord, { kind }: Ending): boolean =>
  reason === 'CutShort' && (kind === 'postponed' || kind === 'handback')

function attemptAfter(attempt: number, ending: Ending): number {
  if (ending.kind === 'terminal') return 0
  return ending.kind === 'error' && ending.isCounted !== false ? attempt + 1 : attempt
}

function waitingRecord(
  { record, writes }: HeldKey,
  ending: Exclude<Ending, { kind: 'done' | 'handback' }>,
  failures: Failures,
  now: number,
): NewRecord {
  const state = ending.kind === 'terminal' ? 'parked' : 'waiting'
  return {
    state,
    generation: generationOf(state, record.owner, writes),
    owner: record.owner,
    // A timer that the function requested is as urgent as a change. Another failed run keeps its lane.
    lane: ending.kind === 'requeue' || ('isTimer' in ending && ending.isTimer === true) ? 'high' : record.lane,
    ...failures,
    at: Math.min(ending.kind === 'terminal' ? Number.POSITIVE_INFINITY : ending.at, now + CENTURY_MS),
    since: now,
    dirty: false,
    otherLaneWaits: false,
    reason: REASONS[ending.kind],
    ...('message' in ending && { error: ending.message }),
  }
}

const REASONS = { requeue: 'Requeue', error: 'Error', postponed: 'CutShort', terminal: 'Terminal' } as const

const isWhatWasSent = (record: KeyRecord, sent: Publish): boolean =>
  sent.role === 'record' && sent.record.generation === record.generation

function resultOf(message: Publish, sequence: number): FinishResult {
  if (message.role === 'token') return { kind: 'queued' }
  if (message.role === 'done') return { kind: 'idle' }
  const { record } = message
  return record.state === 'parked' ? { kind: 'parked' } : { kind: 'waiting', record: { ...record, sequence } }
}
