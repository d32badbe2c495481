/**
 * `node test/bench/queue-disk.ts [replicas …]`: what it costs that nats-server syncs to the disk, by interval, on one server
 * and on three of one machine, which share its disk: three machines have one each.
 */
import { cpus } from 'node:os'
import { connectJetStream } from '#nats'
import { startTestNats } from '../support/servers.ts'
import { percentiles } from './median.ts'
import { FN, inFlight, msOfRuns, openBenchQueue, rate, thousands, warmUp } from './queue-support.ts'

const INTERVALS = ['2m', '1s', 'always']
const SINGLE = 300
const BURST = 6000

console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}`)
const asked = process.argv.slice(2).map(Number)
for (const replicas of [1, 3] as const)
  for (const syncInterval of INTERVALS)
    if (asked.length === 0 || asked.includes(replicas)) await measure(replicas, syncInterval)

async function measure(replicas: 1 | 3, syncInterval: string): Promise<void> {
  await using nats = await startTestNats({ replicas, syncInterval })
  await using js = await connectJetStream({ servers: nats.url, name: 'bench', timeoutMs: 30_000 })
  if (replicas === 1 && syncInterval === '2m') await warmUp(js)
  const queue = await openBenchQueue(js, 'disk', { replicas })
  const took: number[] = []
  for (let index = 0; index < SINGLE; index++) {
    const began = performance.now()
    await queue.enqueue(FN, `n.s${index}`)
    took.push(performance.now() - began)
  }
  await msOfRuns(queue, SINGLE)
  const began = performance.now()
  await inFlight(BURST, (index) => queue.enqueue(FN, `n.b${index}`))
  const enqueued = rate(BURST, performance.now() - began)
  const run = rate(BURST, await msOfRuns(queue, BURST))
  const fields = [
    `one enqueue p50 / p99 ${percentiles(took, 2)} ms`,
    `enqueues/s ${thousands(enqueued)}`,
    `runs/s of a backlog ${thousands(run)}`,
  ]
  console.log(`replicas ${replicas}, sync_interval ${syncInterval.padEnd(6)}: ${fields.join('; ')}`)
}
