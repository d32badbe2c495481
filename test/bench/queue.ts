/**
 * `node test/bench/queue.ts [part …]`: what the queue alone costs, on nats-servers of its own, beside what the server
 * gives to the same number of bare operations in the same run. Parts: runs, replicas, tenants, timers, recovery; all
 * without one.
 */
import type { ChildProcess } from 'node:child_process'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { nuid } from 'nats'
import type { Nats } from '#lab'
import { connectJetStream, type JetStream } from '#nats'
import type { Lease, WorkQueue } from '#queue'
import { startTestNats } from '../support/servers.ts'
import { median, percentiles } from './median.ts'
import { openFloor } from './queue-floor.ts'
import { afterServerKill, afterWorkerKill } from './queue-recovery.ts'
import {
  enqueueAll,
  FN,
  inFlight,
  msOfRuns,
  open,
  openBenchQueue,
  rate,
  SLOTS,
  startWorker,
  thousands,
  warmUp,
} from './queue-support.ts'
import { latenessAmong, latenessAtOnce } from './queue-timers.ts'

type Row = [what: string, value: string]

const SINGLE_RUNS = 500
const BURST_RUNS = 12_000
const PROCESSES = [1, 2, 4]
/** Namespaces that share a backlog. */
const TENANTS = [1, 20, 1000]
/** The number of rounds; the median counts. */
const ROUNDS = 3

const PARTS: Record<string, (js: JetStream, nats: Nats) => Promise<Row[]>> = {
  runs: (js, nats) => runs(js, nats, 1),
  replicas: (js, nats) => runs(js, nats, 3),
  tenants,
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
  const opened = (prefix: string) => openBenchQueue(js, prefix, { replicas })
  const own = await opened('own')
  const enqueue = (queue: WorkQueue) => (key: string) => queue.enqueue(FN, key)
  const announce = (queue: WorkQueue) => (key: string) => queue.announce(FN, key).safe
  await warmUp(js)
  const singly = await opened('latency')
  const rows: Row[] = [
    ['enqueue → run start, p50 / p99 ms', await latency(singly, enqueue(singly))],
    ['announce → run start in the same process, p50 / p99 ms', await latency(singly, announce(singly))],
  ]
  await using floor = await openFloor(js, replicas)
  const versus = (measured: readonly number[], bare: readonly number[]) =>
    `${thousands(median(measured))}, ${(median(measured) / median(bare)).toFixed(2)} of the floor's ${thousands(median(bare))}`
  const bare: number[] = []
  const enqueued: number[] = []
  const announced: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    bare.push(await floor.withEnqueues(BURST_RUNS))
    enqueued.push(await together(own, enqueue(own)))
    announced.push(await together(own, announce(own)))
  }
  rows.push(['runs/s with enqueues', versus(enqueued, bare)])
  rows.push(['runs/s with announcements', thousands(median(announced))])
  const bareBacklogs: number[] = []
  const crew: ChildProcess[] = []
  for (const processes of PROCESSES) {
    while (crew.length < processes) crew.push(await startWorker({ url, slots: SLOTS }))
    const rates: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      if (processes === 1) bareBacklogs.push(await floor.backlog(BURST_RUNS))
      rates.push(await backlog(opened, crew))
    }
    const what = `runs/s of a backlog, ${processes} process${processes > 1 ? 'es' : ''}`
    rows.push([what, processes === 1 ? versus(rates, bareBacklogs) : thousands(median(rates))])
  }
  for (const worker of crew) worker.kill()
  return rows
}

/** The same backlog of one namespace and of several, in which each has its keys one behind the other. */
async function tenants(js: JetStream, { url }: Nats): Promise<Row[]> {
  await warmUp(js)
  const rows: Row[] = []
  const crew: ChildProcess[] = []
  for (const processes of [1, 2]) {
    while (crew.length < processes) crew.push(await startWorker({ url, slots: SLOTS }))
    for (const namespaces of TENANTS) {
      const rates: number[] = []
      for (let round = 0; round < ROUNDS; round++)
        rates.push(await backlog((prefix) => openBenchQueue(js, prefix), crew, namespaces))
      rows.push([`runs/s of a backlog of ${namespaces} namespaces, ${processes} processes`, thousands(median(rates))])
    }
  }
  for (const worker of crew) worker.kill()
  rows.push([`one key behind ${thousands(BURST_RUNS)} of another namespace: runs before it`, await runsBefore(js)])
  return rows
}

async function runsBefore(js: JetStream): Promise<string> {
  const queue = await openBenchQueue(js, 'flood')
  await enqueueAll(queue, BURST_RUNS)
  await queue.enqueue(FN, 'tenant.a')
  let before = 0
  const found = Promise.withResolvers<void>()
  const handler = async ({ key }: Lease) => {
    if (key === 'tenant.a') found.resolve()
    else before++
    return { kind: 'done' as const }
  }
  const worker = queue.serve({ reconciler: FN, slots: SLOTS, handler })
  await found.promise
  const runs = before
  await worker.drain(1000)
  return thousands(runs)
}

async function latency(queue: WorkQueue, call: (key: string) => Promise<unknown>): Promise<string> {
  const called = new Map<string, number>()
  const took: number[] = []
  const worker = queue.serve({
    reconciler: FN,
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
  return percentiles(took, 2)
}

/** Runs per second while as many keys come. */
async function together(
  queue: WorkQueue,
  call: (key: string) => Promise<unknown>,
  count = BURST_RUNS,
): Promise<number> {
  return rate(count, await msOfRuns(queue, count, () => inFlight(count, (index) => call(`n.b${index}`))))
}

async function backlog(
  openQueue: (prefix: string) => Promise<WorkQueue>,
  workers: ChildProcess[],
  namespaces = 1,
): Promise<number> {
  const prefix = `backlog${nuid.next()}`
  const queue = await openQueue(prefix)
  await enqueueAll(queue, BURST_RUNS, namespaces)
  await Promise.all(workers.map((worker) => open(worker, prefix)))
  const began = performance.now()
  for (const worker of workers) worker.send('go')
  await runsOf(workers, BURST_RUNS)
  return rate(BURST_RUNS, performance.now() - began)
}

/** Resolves when the workers together report this number of runs. */
function runsOf(workers: ChildProcess[], wanted: number): Promise<void> {
  const counts = new Map<ChildProcess, number>()
  return new Promise((resolve) => {
    const listeners = workers.map((worker) => {
      const listen = (count: unknown) => {
        if (typeof count !== 'number') return
        counts.set(worker, count)
        if ([...counts.values()].reduce((sum, one) => sum + one, 0) < wanted) return
        for (const [index, other] of workers.entries()) other.off('message', listeners[index] ?? listen)
        resolve()
      }
      worker.on('message', listen)
      return listen
    })
  })
}
