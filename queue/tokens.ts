import { worst } from './failures.ts'
import { generationOf } from './lease.ts'
import { end, type Machine } from './machine.ts'
import type { Io, Lane, NewRecord, Token } from './record.ts'

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
