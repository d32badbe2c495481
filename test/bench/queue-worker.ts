/** A process that does nothing, as often as the queue asks; started by queue.ts. */
import { once } from 'node:events'
import { connectJetStream } from '#jetstream'
import { openQueue } from '#queue'
import type { BenchWorker } from './queue.ts'

const { url, prefix, replicas, slots } = JSON.parse(process.argv[2] ?? '{}') as BenchWorker
const js = await connectJetStream({ servers: url, name: 'bench worker' })
const queue = await openQueue(js, { prefix, replicas, log: { debug() {}, info() {}, warn() {}, error() {} } })
process.send?.('ready')
await once(process, 'message')
let done = 0
queue.serve({
  fn: 'bench',
  slots,
  handler: async () => {
    done++
    return { kind: 'done' }
  },
})
setInterval(() => process.send?.(done), 5)
