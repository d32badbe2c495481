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
import {
  type Causes,
  type Io,
  type KeyRecord,
  type Lane,
  type Publish,
  type Token,
  withCauses,
  worst,
} from './record.ts'

/** conflict: another message was first, so this one is not needed. */
export type OnceResult = 'stored' | 'conflict'

/** Publishes one message, and repeats the publish until the server has given a definite answer. */
export const once: Machine<Publish, { io: Io }, OnceResult> = {
  start: (message) => ({ io: { do: 'publish', message } }),
  next: (step, { kind }) => (kind === 'stored' || kind === 'conflict' ? end(kind) : step),
}

/**
 * Queues a key. A conflict means that a token waits already, and it keeps its place. In both cases a run that starts
 * after this moment is certain.
 */
export const tokenOf = (lane: Lane, attempt: number, causes?: Causes): Publish => ({
  role: 'token',
  lane,
  attempt,
  ...withCauses(causes),
  expected: { of: 'token', sequence: 0 },
})

/**
 * Replaces a token that no consumer will deliver. A conflict means that the token was delivered or replaced meanwhile,
 * so it was alive. At worst, this causes one additional run.
 */
export const tokenAgain = (token: Token): Publish => ({
  role: 'token',
  lane: token.lane,
  ...worst(token),
  ...(token.cutShort && { cutShort: true }),
  ...withCauses(token.causes),
  expected: { of: 'token', sequence: token.sequence },
})

/**
 * Writes a schedule once more that the server gave up at its due time, or that a process of an earlier version has put to
 * sleep. The server fires the new schedule. A conflict means that it fired after all, or that the key has another record
 * now.
 */
export function timerAgain(record: KeyRecord, nonce: string): Publish {
  const { sequence, generation: cancels } = record
  const again = { ...withoutSequence(record), generation: generationOf(record.state, nonce, 0) }
  return { role: 'record', record: again, expected: { of: 'record', sequence }, cancels }
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
