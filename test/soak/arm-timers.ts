import { nuid } from 'nats'
import type { JetStream } from '#nats'
import { bucketFor, keyOf, opensAt, perform, slotOf } from '../../streams/queue/core.ts'
import { drive, generationOf } from '../../streams/queue/machine.ts'
import { transitions } from '../../streams/queue/transitions.ts'
import { Names, TIMERS, toWire } from '../../streams/queue/wire.ts'
import { inFlight } from '../bench/queue-support.ts'

const names = new Names('')
const worker = nuid.next()

export interface Timers {
  reconciler: string
  count: number
  dueAt: number
  /** So many are left to the server; the others sleep. */
  armed: number
}

/** Stores what runs that end with a timer would store, without the runs: those take ten times as long. */
export async function armTimers(js: JetStream, { reconciler, count, dueAt, armed }: Timers): Promise<void> {
  const bucket = bucketFor(dueAt, Date.now())
  if (bucket === undefined) throw new Error('the timers are due too soon to sleep')
  const ask = (io: Parameters<typeof perform>[0]) =>
    perform(io, { js, random: Math.random, onIo: undefined }, { names, reconciler: TIMERS, key: keyOf(bucket), worker })
  await drive(transitions.alarm, { at: opensAt(bucket), nonce: nuid.next() }, ask, Date.now)
  await inFlight(
    count,
    async (index) => {
      const slot = index < armed ? undefined : slotOf(bucket)
      const owner = nuid.next()
      const record = {
        state: 'waiting' as const,
        generation: generationOf('waiting', owner, 0, slot),
        ...(slot !== undefined && { slot }),
        owner,
        lane: 'high' as const,
        attempt: 0,
        at: dueAt,
        since: Date.now(),
        dirty: false,
        otherLaneWaits: false,
        reason: 'Requeue' as const,
      }
      const message = { role: 'record' as const, record, expected: { of: 'record' as const, sequence: 0 } }
      const { subject, payload, headers } = toWire(message, { names, reconciler, key: `n.t${index}`, worker })
      await js.publish(subject, payload, headers)
    },
    256,
  )
}
