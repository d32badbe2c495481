/**
 * `node test/bench/queue.ts [part …]`: what the queue alone costs, on nats-servers of its own, beside what the server
 * gives to the same number of bare operations in the same run. Parts: runs, replicas, timers, recovery; all without one.
 */
import type { ChildProcess } from 'node:child_process'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectJetStream, type JetStream } from '#jetstream'
import type { Nats } from '#local'
import type { WorkQueue } from '#queue'
import { startTestNats } from '../support/servers.ts'
import { measureFloor } from './queue-floor.ts'
import { afterServerKill, afterWorkerKill } from './queue-recovery.ts'
import {
  enqueueAll,
  FN,
  inFlight,
  openBenchQueue,
  percentiles,
  rate,
  SLOTS,
  startWorker,
  thousands,
} from './queue-support.ts'
import { latenessAmong, latenessAtOnce } from './queue-timers.ts'

type Row = [what: string, value: string]

const SINGLE_RUNS = 500
const BURST_RUNS = 12_000
const PROCESSES = [1, 2, 4]

const PARTS: Record<string, (js: JetStream, nats: Nats) => Promise<Row[]>> = {
  runs: (js, nats) => runs(js, nats, 1),
  replicas: (js, nats) => runs(js, nats, 3),
  timers: async (js) => [
    [
      '10,000 timers due over 30 s among 100,000: late p50 / p99 ms',
      await latenessAmong(await openBenchQueue(js, 'many'), 100_000, 10_000, 30),
    ],
    [
      '20,000 timers due in one instant: late p50 / p99 ms',
      await latenessAtOnce(await openBenchQueue(js, 'once'), 20_000),
    ],
  ],
  recovery: async (js, nats) => [
    [
      `kill -9 of a worker with ${SLOTS} keys, lease 5 s: first / last runs again, s`,
      await afterWorkerKill(js, nats.url),
    ],
    ['kill -9 of nats-server: from its return to the next run / all before done, s', await afterServerKill(js, nats)],
  ],
}

console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}`)
const asked = process.argv.slice(2)
for (const [name, measure] of Object.entries(PARTS)) {
  if (asked.length > 0 && !asked.includes(name)) continue
  await using nats = await startTestNats({ replicas: name === 'replicas' ? 3 : 1 })
  const js = await connectJetStream({ servers: nats.url, name: 'bench' })
  for (const [what, value] of await measure(js, nats)) console.log(`${name.padEnd(9)} ${what.padEnd(80)} ${value}`)
  await js.close()
}

async function runs(js: JetStream, { url }: Nats, replicas: 1 | 3): Promise<Row[]> {
  const open = (prefix: string) => openBenchQueue(js, prefix, { replicas })
  const own = await open('own')
  const enqueue = (queue: WorkQueue) => (key: string) => queue.enqueue(FN, key)
  const announce = (queue: WorkQueue) => (key: string) => queue.announce(FN, key).safe
  await together(own, enqueue(own), 2000) // warms up
  const singly = await open('latency')
  const rows: Row[] = [
    ['enqueue → run start, p50 / p99 ms', await latency(singly, enqueue(singly))],
    ['announce → run start in the same process, p50 / p99 ms', await latency(singly, announce(singly))],
  ]
  const floor = await measureFloor(js, BURST_RUNS, replicas)
  const versus = (perSecond: number, bare: number) =>
    `${thousands(perSecond)}, ${(perSecond / bare).toFixed(2)} of the floor's ${thousands(bare)}`
  rows.push(['runs/s with enqueues', versus(await together(own, enqueue(own)), floor.withEnqueues)])
  rows.push(['runs/s with announcements', thousands(await together(own, announce(own)))])
  for (const processes of PROCESSES) {
    const perSecond = await backlog(
      await open(`p${processes}`),
      { url, prefix: `p${processes}`, slots: SLOTS },
      processes,
    )
    const what = `runs/s of a backlog, ${processes} process${processes > 1 ? 'es' : ''}`
    rows.push([what, processes === 1 ? versus(perSecond, floor.backlog) : thousands(perSecond)])
  }
  return rows
}

async function latency(queue: WorkQueue, call: (key: string) => Promise<unknown>): Promise<string> {
  const called = new Map<string, number>()
  const took: number[] = []
  const worker = queue.serve({
    fn: FN,
    slots: SLOTS,
    handler: async ({ key }) => {
      took.push(performance.now() - (called.get(key) ?? 0))
      return { kind: 'done' }
    },
  })
  await sleep(300)
  for (let i = 0; i < SINGLE_RUNS; i++) {
    called.set(`n.${i}`, performance.now())
    await call(`n.${i}`)
    await sleep(3)
  }
  while (took.length < SINGLE_RUNS) await sleep(5)
  await worker.drain(1000)
  return percentiles(took)
}

/** Runs per second while as many keys come. */
async function together(
  queue: WorkQueue,
  call: (key: string) => Promise<unknown>,
  count = BURST_RUNS,
): Promise<number> {
  let left = count
  const all = Promise.withResolvers<void>()
  const handler = async () => {
    if (--left === 0) all.resolve()
    return { kind: 'done' as const }
  }
  const worker = queue.serve({ fn: FN, slots: SLOTS, handler })
  const began = performance.now()
  await inFlight(count, (index) => call(`n.b${index}`))
  await all.promise
  const ms = performance.now() - began
  await worker.drain(1000)
  return rate(count, ms)
}

async function backlog(
  queue: WorkQueue,
  settings: Parameters<typeof startWorker>[0],
  processes: number,
): Promise<number> {
  await enqueueAll(queue, BURST_RUNS)
  const workers = await Promise.all(Array.from({ length: processes }, () => startWorker(settings)))
  const began = performance.now()
  for (const worker of workers) worker.send('go')
  await runsOf(workers, BURST_RUNS)
  const ms = performance.now() - began
  for (const worker of workers) worker.kill()
  return rate(BURST_RUNS, ms)
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
