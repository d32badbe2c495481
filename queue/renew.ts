import { generationOf, type HeldKey, isRunOf, leaseEnd, type Terms, withoutSequence } from './lease.ts'
import { end, type Machine, UnexpectedAnswerError } from './machine.ts'
import type { Io, KeyRecord, NewRecord } from './record.ts'

export interface RenewInput {
  held: HeldKey
  terms: Terms
  /** True: the run has changed something, so the runs before it that were cut short no longer count. */
  progressed?: boolean
}

/** lost: another process may own the key by now. Write nothing more. */
export type RenewResult = { kind: 'held'; held: HeldKey } | { kind: 'lost' }

export interface RenewStep extends RenewInput {
  name: 'renew' | 'look'
  sent: NewRecord
  io: Io
}

/** Moves the end of the lease forward, and keeps the notes that other processes have written into the record. */
export const renew: Machine<RenewInput, RenewStep, RenewResult> = {
  start: writeLater,

  next(step, answer, now) {
    if (answer.kind === 'busy' || answer.kind === 'unknown')
      return now > leaseEnd(step.held.record, step.terms) ? end({ kind: 'lost' }) : step
    if (step.name === 'renew') {
      if (answer.kind === 'stored') return renewed(step, { ...step.sent, sequence: answer.sequence })
      return { ...step, name: 'look', io: { do: 'readRecord' } }
    }
    if (answer.kind !== 'record') throw new UnexpectedAnswerError(step, answer)
    const { record } = answer
    if (!record || !isRunOf(record, step.held.record.owner)) return end({ kind: 'lost' })
    if (record.generation === step.sent.generation) return renewed(step, record)
    return writeLater({ ...step, held: { ...step.held, record } }, now)
  },
}

function writeLater({ held, terms, progressed = false }: RenewInput, now: number): RenewStep {
  const sent: NewRecord = {
    ...withoutSequence(held.record),
    generation: generationOf('running', held.record.owner, held.writes),
    at: now + terms.leaseMs,
  }
  if (progressed) delete sent.cuts
  const expected = { of: 'record' as const, sequence: held.record.sequence }
  const message = { role: 'record' as const, record: sent, expected, cancels: held.record.generation }
  return {
    name: 'renew',
    sent,
    terms,
    progressed,
    held: { ...held, writes: held.writes + 1 },
    io: { do: 'publish', message },
  }
}

const renewed = (step: RenewStep, record: KeyRecord) =>
  end<RenewResult>({ kind: 'held', held: { ...step.held, record } })
