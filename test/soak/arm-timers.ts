import { nuid } from 'nats'
import type { JetStream } from '#nats'
import { bucketFor, keyOf, opensAt, slotOf } from '../../streams/queue/core.ts'
import { generationOf } from '../../streams/queue/machine.ts'
import type { Publish } from '../../streams/queue/record.ts'
import { timerOf } from '../../streams/queue/tokens.ts'
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
  await store(js, TIMERS, keyOf(bucket), timerOf({ at: opensAt(bucket), now: Date.now(), nonce: nuid.next() }))
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
      await store(js, reconciler, `n.t${index}`, message)
    },
    256,
  )
}

async function store(js: JetStream, reconciler: string, key: string, message: Publish): Promise<void> {
  const { subject, payload, headers } = toWire(message, { names, reconciler, key, worker })
  await js.publish(subject, payload, headers)
}
