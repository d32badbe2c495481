import {
  end,
  generationOf,
  type HeldKey,
  leaseEnd,
  type Machine,
  type Terms,
  UnexpectedAnswerError,
  withoutSequence,
} from './machine.ts'
import { type Io, type KeyRecord, type Lane, type NewRecord, type Token, worst } from './record.ts'

export interface EnqueueInput {
  lane: Lane
  attempt: number
}

/**
 * coalesced: a token waits already and keeps its place. In both cases a run that starts after this moment is certain.
 */
export type EnqueueResult = 'queued' | 'coalesced'

export const enqueue: Machine<EnqueueInput, { io: Io }, EnqueueResult> = {
  start({ lane, attempt }) {
    const expected = { of: 'token' as const, sequence: 0 }
    return { io: { do: 'publish', message: { role: 'token', lane, attempt, expected } } }
  },
  next(step, answer) {
    if (answer.kind === 'stored') return end('queued')
    return answer.kind === 'conflict' ? end('coalesced') : step
  },
}

export interface AlarmInput {
  /** The server's time, in epoch milliseconds. */
  at: number
  /** A text that is unique to this call. */
  nonce: string
}

/** Sets a timer of a key that has no record. */
export const alarm: Machine<AlarmInput, { io: Io }, 'set' | 'standing'> = {
  start({ at, nonce }, now) {
    const record: NewRecord = {
      state: 'waiting',
      generation: generationOf('waiting', nonce, 0),
      owner: nonce,
      lane: 'high',
      attempt: 0,
      at,
      since: now,
      dirty: false,
      otherLaneWaits: false,
      reason: 'Requeue',
    }
    return { io: { do: 'publish', message: { role: 'record', record, expected: { of: 'record', sequence: 0 } } } }
  },
  next(step, answer) {
    if (answer.kind === 'stored') return end('set')
    return answer.kind === 'conflict' ? end('standing') : step
  },
}

/** moved: the token was delivered or replaced meanwhile, so it was alive. */
export type ReviveResult = 'revived' | 'moved'

/** Replaces a token that no consumer will deliver. At worst, this causes one additional run. */
export const revive: Machine<Token, { io: Io }, ReviveResult> = {
  start(token) {
    const { lane, sequence } = token
    const expected = { of: 'token' as const, sequence }
    return { io: { do: 'publish', message: { role: 'token', lane, ...worst(token), expected } } }
  },
  next(step, answer) {
    if (answer.kind === 'stored') return end('revived')
    return answer.kind === 'conflict' ? end('moved') : step
  },
}

/** The sequence of each suspicious token, keyed by its subject. */
export type Suspects = ReadonlyMap<string, number>

/**
 * Returns tokens that two passes in a row found at or below their consumer's acknowledgement floor. They were
 * acknowledged once, and the server was killed before it wrote the removal to disk.
 */
export const deadTokens = <T extends { subject: string; sequence: number }>(before: Suspects, now: readonly T[]): T[] =>
  now.filter(({ subject, sequence }) => before.get(subject) === sequence)

export interface AbsorbInput {
  held: HeldKey
  terms: Terms
}

/** late: the lease is over, and the token may be the one that the expiry of the lease left. It was not acknowledged. */
export type AbsorbResult = 'gone' | 'late'

export interface AbsorbStep {
  name: 'acknowledge' | 'barrier'
  terms: Terms
  io: Io
}

/**
 * Takes a token into the pass that begins. As in TAKE, the token is acknowledged only while the record stands, and
 * state is read only after the token is known to be gone. The machine never gives up: once an acknowledgement is on its
 * way, the run must read again or lose its lease.
 */
export const absorb: Machine<AbsorbInput, AbsorbStep, AbsorbResult> = {
  start: ({ held, terms }, now) => (now > leaseEnd(held.record, terms) ? end('late') : acknowledge(terms)),

  next(step, answer) {
    if (answer.kind === 'busy' || answer.kind === 'unknown') return step
    if (step.name === 'acknowledge') return step.terms.replicated ? barrier(step.terms) : end('gone')
    if (answer.kind !== 'token') throw new UnexpectedAnswerError(step, answer)
    return answer.present ? acknowledge(step.terms) : end('gone')
  },
}

function acknowledge(terms: Terms): AbsorbStep {
  return { name: 'acknowledge', terms, io: { do: 'acknowledge', confirmed: true } }
}

const barrier = (terms: Terms): AbsorbStep => ({ name: 'barrier', terms, io: { do: 'readToken' } })

export interface RearmInput {
  /** A record that the server gave up at its due time, or that sleeps. */
  record: KeyRecord
  /** A text that is unique to this call. */
  nonce: string
  /** The slot in which the timer continues to sleep. Left out: the server carries it. */
  slot?: string
}

/** moved: the schedule fired after all, or the key has another record now. */
export type RearmResult = 'rearmed' | 'moved'

/** Writes a schedule once more, unchanged or in another slot. The server fires the new schedule unless it sleeps. */
export const rearm: Machine<RearmInput, { io: Io }, RearmResult> = {
  start({ record, nonce, slot }) {
    const { sequence, generation: cancels } = record
    const generation = generationOf(record.state, nonce, 0, slot)
    const again = { ...withoutSequence(record), generation, ...(slot !== undefined && { slot }) }
    const expected = { of: 'record' as const, sequence }
    return { io: { do: 'publish', message: { role: 'record', record: again, expected, cancels } } }
  },
  next(step, answer) {
    if (answer.kind === 'stored') return end('rearmed')
    return answer.kind === 'conflict' ? end('moved') : step
  },
}
