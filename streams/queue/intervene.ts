import { CENTURY_MS } from './finish.ts'
import { type Ended, end, generationOf, type Machine, UnexpectedAnswerError } from './machine.ts'
import type { Io, KeyRecord, NewRecord, Publish, Token } from './record.ts'
import { worst } from './record.ts'

/** queued: the key runs as soon as a worker is free. none: the key neither waits nor is parked. */
export type RetryResult = 'queued' | 'running' | 'none'

export interface RetryStep {
  name: 'look' | 'fire'
  ambiguous: boolean
  io: Io
}

/**
 * Runs a waiting or parked key now. The write does what the server does when a timer is due, and fails if another
 * process has moved the key.
 */
export const retry: Machine<object, RetryStep, RetryResult> = {
  start: () => ({ name: 'look', ambiguous: false, io: { do: 'readRecord' } }),

  next(step, answer) {
    if (answer.kind === 'busy') return step
    if (answer.kind === 'unknown') return step.name === 'fire' ? { ...step, ambiguous: true } : step
    if (step.name === 'fire')
      return answer.kind === 'stored' ? end('queued') : { ...step, name: 'look', io: { do: 'readRecord' } }
    if (answer.kind !== 'record') throw new UnexpectedAnswerError(step, answer)
    const { record } = answer
    if (record?.state === 'running') return end('running')
    if (record) return { ...step, name: 'fire', io: { do: 'publish', message: fired(record) } }
    return end(step.ambiguous ? 'queued' : 'none')
  },
}

/** The cause of a key that a user queues. */
export const BY_HAND = 'by hand'

const fired = (record: KeyRecord): Publish => ({
  role: 'token',
  lane: 'high',
  ...worst(record),
  ...(record.error !== undefined && { error: record.error }),
  causes: [BY_HAND],
  expected: { of: 'record', sequence: record.sequence },
  cancels: record.generation,
})

export interface WithdrawInput {
  /** park: the key is kept until a user retries it or it changes. purge: nothing of it is kept. */
  to: 'park' | 'purge'
  /** A text that is unique to this call. */
  nonce: string
  /** The tokens that were seen in the queue. Later tokens stay. */
  tokens: readonly Token[]
}

/** running: nothing was changed. none: there was nothing to withdraw. */
export type WithdrawResult = 'parked' | 'purged' | 'running' | 'none'

export interface WithdrawStep extends WithdrawInput {
  name: 'look' | 'write' | 'remove'
  writes: number
  /** True: a write took effect, or may have. */
  wrote: boolean
  io: Io
}

/**
 * Removes the run that a key is due for, and every change that was enqueued before this ends. The record is removed or
 * parked first. A process that has taken the token by then runs the key.
 */
export const withdraw: Machine<WithdrawInput, WithdrawStep, WithdrawResult> = {
  start: (input) => look({ ...input, writes: 0, wrote: false }),

  next(step, answer, now) {
    if (answer.kind === 'busy') return step
    if (answer.kind === 'unknown') return step.name === 'write' ? { ...step, wrote: true } : step
    switch (step.name) {
      case 'look':
        if (answer.kind !== 'record') throw new UnexpectedAnswerError(step, answer)
        return onRecord(step, answer.record, now)
      case 'write':
        return answer.kind === 'stored' ? removeNext(step) : look(step)
      case 'remove':
        return removeNext({ ...step, tokens: step.tokens.slice(1) })
    }
  },
}

type Position = Omit<WithdrawStep, 'name' | 'io'>
type Next = WithdrawStep | Ended<WithdrawResult>

const look = (at: Position): WithdrawStep => ({ ...at, name: 'look', io: { do: 'readRecord' } })

function onRecord(at: Position, record: KeyRecord | undefined, now: number): Next {
  if (record?.state === 'running') return end('running')
  if (at.to === 'park') {
    if (record?.state === 'parked') return removeNext(at)
    if (record === undefined && at.tokens.length === 0) return end('none')
    return write(at, { role: 'record', record: parked(at, record, now), ...guards(record) })
  }
  if (record) return write(at, { role: 'done', ...guards(record), cancels: record.generation })
  return at.tokens.length === 0 && !at.wrote ? end('none') : removeNext(at)
}

const write = (at: Position, message: Publish): WithdrawStep => ({
  ...at,
  writes: at.writes + 1,
  name: 'write',
  io: { do: 'publish', message },
})

const guards = (record: KeyRecord | undefined) => ({
  expected: { of: 'record' as const, sequence: record?.sequence ?? 0 },
  ...(record && { cancels: record.generation }),
})

function removeNext(at: Position): Next {
  const [token] = at.tokens
  if (token === undefined) return end(at.to === 'park' ? 'parked' : 'purged')
  return { ...at, name: 'remove', io: { do: 'removeToken', sequence: token.sequence } }
}

const parked = ({ nonce, writes, tokens }: Position, before: KeyRecord | undefined, now: number): NewRecord => ({
  state: 'parked',
  generation: generationOf('parked', nonce, writes),
  owner: nonce,
  lane: before?.lane ?? 'high',
  ...worst(...(before ? [before] : []), ...tokens),
  at: now + CENTURY_MS,
  since: now,
  dirty: false,
  otherLaneWaits: false,
  reason: 'Withdrawn',
  ...(before?.error !== undefined && { error: before.error }),
})
