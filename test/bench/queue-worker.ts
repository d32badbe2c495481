/** A process that does nothing, as often as the queue asks; started by queue.ts and queue-recovery.ts. */
import { once } from 'node:events'
import { connectJetStream } from '#jetstream'
import { FN, openBenchQueue, type WorkerSettings } from './queue-support.ts'

const { url, prefix, slots, holds = false } = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings
const js = await connectJetStream({ servers: url, name: 'bench worker' })
const queue = await openBenchQueue(js, prefix)
process.send?.('ready')
await once(process, 'message')
let begun = 0
queue.serve({
  fn: FN,
  slots,
  handler: async () => {
    begun++
    if (holds) await new Promise(() => {})
    return { kind: 'done' }
  },
})
setInterval(() => process.send?.(begun), 5)
