import { connectJetStream } from '#nats'
import { openQueue } from '#queue'
import { silent as log } from '../support/silent.ts'

export interface TimersSettings {
  url: string
  reconciler: string
  leaseMs: number
}

export interface TimersProgress {
  /** Keys that a timer has run. */
  fired: number
  fenced: number
}

/** Runs timers, and reports its progress to its parent every second. */
const { url, reconciler, leaseMs } = JSON.parse(process.argv[2] ?? '') as TimersSettings
const js = await connectJetStream({ servers: url, name: 'timers' })
const queue = await openQueue(js, { leaseMs, ackWaitMs: leaseMs, log })
const fired = new Set<string>()
let fenced = 0
queue.serve({
  reconciler,
  slots: 128,
  handler: async () => ({ kind: 'done' }),
  onFinished: (lease, result) => {
    if (result === 'fenced') fenced++
    else if (lease.fired) fired.add(lease.key)
  },
})
const tell = setInterval(() => process.send?.({ fired: fired.size, fenced } satisfies TimersProgress), 1000)
process.on('disconnect', () => clearInterval(tell))
