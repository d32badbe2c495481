import { generationOf, withoutSequence } from './lease.ts'
import { end, type Machine } from './machine.ts'
import type { Io, KeyRecord } from './record.ts'

export interface RearmInput {
  /** Its time has come. */
  record: KeyRecord
  /** Unique to this call. */
  nonce: string
}

/** moved: it fired after all, or something else has become of the key. */
export type RearmResult = 'rearmed' | 'moved'

/** Writes a schedule that the server has given up once more, as it is: the server carries out a new one. */
export const rearm: Machine<RearmInput, { io: Io }, RearmResult> = {
  start({ record, nonce }) {
    const { sequence, generation: cancels } = record
    const again = { ...withoutSequence(record), generation: generationOf(record.state, nonce, 0) }
    const expected = { of: 'record' as const, sequence }
    return { io: { do: 'publish', message: { role: 'record', record: again, expected, cancels } } }
  },
  next(step, answer) {
    if (answer.kind === 'stored') return end('rearmed')
    return answer.kind === 'conflict' ? end('moved') : step
  },
}
