import { generationOf, withoutSequence } from './lease.ts'
import { end, type Machine } from './machine.ts'
import type { Io, KeyRecord } from './record.ts'

export interface RearmInput {
  /** Its time has come and the server has given it up, or it sleeps. */
  record: KeyRecord
  /** Unique to this call. */
  nonce: string
  /** It sleeps on, in this slot. */
  slot?: string
}

/** moved: it fired after all, or something else has become of the key. */
export type RearmResult = 'rearmed' | 'moved'

/** Writes a schedule once more, as it is or in another slot: the server carries out a new one that does not sleep. */
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
