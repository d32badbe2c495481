/** A process that does nothing, as often as the queue asks; started by queue-support.ts. */
import { connectJetStream } from '#nats'
import type { Worker } from '#queue'
import { FN, openBenchQueue, type WorkerSettings, warmUp } from './queue-support.ts'

const { url, slots, holds = false } = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings
const js = await connectJetStream({ servers: url, name: 'bench worker' })
if (!holds) await warmUp(js)
let begun = 0
let worker: Worker | undefined

/** Messages alternate: one names a queue, the next one starts it. So opening a queue is not part of the measurement. */
async function obey(): Promise<void> {
  for (;;) {
    const queue = await openBenchQueue(js, await said('ready'))
    await said('ready')
    begun = 0
    worker = queue.serve({ reconciler: FN, slots, handler: run })
  }
}

async function run() {
  begun++
  if (holds) await new Promise(() => {})
  return { kind: 'done' as const }
}

async function said(answer: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  process.once('message', resolve)
  process.send?.(answer)
  const message = await promise
  await worker?.drain(1000)
  worker = undefined
  return message
}

setInterval(() => worker && process.send?.(begun), 5)
await obey()
