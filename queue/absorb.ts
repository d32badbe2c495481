import { type HeldKey, leaseEnd, type Terms } from './lease.ts'
import { end, type Machine, UnexpectedAnswerError } from './machine.ts'
import type { Io } from './record.ts'

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
