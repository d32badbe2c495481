/** `node test/bench/queue.ts`: what the queue alone costs, on a nats-server of its own. Prints one table. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connectJetStream } from '#jetstream'
import { openQueue, type WorkQueue } from '#queue'
import { startTestNats } from '../support/servers.ts'

export interface BenchWorker {
  url: string
  prefix: string
  replicas: 1 | 3
  slots: number
}

const FN = 'bench'
const SLOTS = 64
const SINGLE_RUNS = 500
const BURST_RUNS = 8000
const PROCESSES = [1, 2, 4]
const quiet = { debug() {}, info() {}, warn() {}, error() {} }

const rows: Record<string, string>[] = []
for (const replicas of [1, 3] as const) {
  await using nats = await startTestNats({ replicas })
  rows.push(...(await measure(nats.url, replicas)))
}
process.stdout.write(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}\n`)
console.table(rows)

async function measure(url: string, replicas: 1 | 3): Promise<Record<string, string>[]> {
  const js = await connectJetStream({ servers: url, name: 'bench' })
  const open = async (prefix: string) => {
    const queue = await openQueue(js, { prefix, replicas, log: quiet })
    await queue.declare(FN)
    return queue
  }
  const row = (what: string, value: string) => ({ replicas: String(replicas), what, value })
  const own = await open('own')
  await withEnqueues(own, 2000) // warms up
  const rows = [
    row('enqueue → run start, p50 / p99 ms', await latency(await open('latency'))),
    row('runs/s with enqueues, in this process', perSecond(BURST_RUNS, await withEnqueues(own, BURST_RUNS))),
  ]
  for (const processes of PROCESSES) {
    const queue = await open(`p${processes}`)
    const worker = { url, prefix: `p${processes}`, replicas, slots: SLOTS }
    const ms = await drainBacklog(queue, worker, processes)
    rows.push(row(`runs/s of a backlog, ${processes} worker process(es)`, perSecond(BURST_RUNS, ms)))
  }
  await js.close()
  return rows
}

async function latency(queue: WorkQueue): Promise<string> {
  const enqueued = new Map<string, number>()
  const took: number[] = []
  const worker = queue.serve({
    fn: FN,
    slots: SLOTS,
    handler: async ({ key }) => {
      took.push(performance.now() - (enqueued.get(key) ?? 0))
      return { kind: 'done' }
    },
  })
  await sleep(300)
  for (let i = 0; i < SINGLE_RUNS; i++) {
    enqueued.set(`n.${i}`, performance.now())
    await queue.enqueue(FN, `n.${i}`)
    await sleep(3)
  }
  while (took.length < SINGLE_RUNS) await sleep(5)
  await worker.drain(1000)
  took.sort((a, b) => a - b)
  const quantile = (q: number) => took[Math.floor(q * (took.length - 1))]?.toFixed(2)
  return `${quantile(0.5)} / ${quantile(0.99)}`
}

async function withEnqueues(queue: WorkQueue, runs: number): Promise<number> {
  let left = runs
  const all = Promise.withResolvers<void>()
  const handler = async () => {
    if (--left === 0) all.resolve()
    return { kind: 'done' as const }
  }
  const worker = queue.serve({ fn: FN, slots: SLOTS, handler })
  const began = performance.now()
  await enqueueAll(queue, runs)
  await all.promise
  const ms = performance.now() - began
  await worker.drain(1000)
  return ms
}

async function enqueueAll(queue: WorkQueue, runs: number, inFlight = 64): Promise<void> {
  let next = 0
  const enqueueSome = async () => {
    while (next < runs) await queue.enqueue(FN, `n.b${next++}`)
  }
  await Promise.all(Array.from({ length: inFlight }, enqueueSome))
}

async function drainBacklog(queue: WorkQueue, settings: BenchWorker, processes: number): Promise<number> {
  await enqueueAll(queue, BURST_RUNS)
  const program = fileURLToPath(new URL('./queue-worker.ts', import.meta.url))
  const workers = Array.from({ length: processes }, () => fork(program, [JSON.stringify(settings)]))
  await Promise.all(workers.map((worker) => once(worker, 'message')))
  const began = performance.now()
  for (const worker of workers) worker.send('go')
  await runsOf(workers, BURST_RUNS)
  const ms = performance.now() - began
  for (const worker of workers) worker.kill()
  return ms
}

/** Workers tell how many runs they have behind them. */
function runsOf(workers: ChildProcess[], wanted: number): Promise<void> {
  const counts = new Map<ChildProcess, number>()
  return new Promise((resolve) => {
    for (const worker of workers)
      worker.on('message', (count: number) => {
        counts.set(worker, count)
        if ([...counts.values()].reduce((sum, one) => sum + one, 0) >= wanted) resolve()
      })
  })
}

function perSecond(runs: number, ms: number): string {
  return Math.round((runs / ms) * 1000).toLocaleString('en')
}
