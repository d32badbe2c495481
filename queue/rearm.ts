import { generationOf, withoutSequence } from './lease.ts'
import { end, type Machine } from './machine.ts'
import type { Io, KeyRecord } from './record.ts'

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
