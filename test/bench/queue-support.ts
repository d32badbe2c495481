import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { JetStream } from '#nats'
import { openQueue, type QueueOptions, type WorkQueue } from '#queue'
import { silent } from '../support/silent.ts'

export const FN = 'bench'
export const SLOTS = 64
/** The default of `fairlead up`. */
const LEASE_MS = 5000

/** For queue-worker.ts. */
export interface WorkerSettings {
  url: string
  slots: number
  /** Runs never end: until the process is killed it holds its keys. */
  holds?: boolean
}

export async function openBenchQueue(
  js: JetStream,
  prefix: string,
  options: Partial<QueueOptions> = {},
): Promise<WorkQueue> {
  const queue = await openQueue(js, { prefix, leaseMs: LEASE_MS, ackWaitMs: LEASE_MS, log: silent, ...options })
  await queue.declare(FN)
  return queue
}

/** The number of runs after which a process gets no faster. */
export const WARM_RUNS = 20_000

/** Enqueues and drains a queue of its own, since the first runs of a process take several times as long. */
export async function warmUp(js: JetStream): Promise<void> {
  const queue = await openBenchQueue(js, `warm${process.pid}`)
  await enqueueAll(queue, WARM_RUNS)
  await msOfRuns(queue, WARM_RUNS)
  await js.admin.streams.delete(queue.stream)
}

/** How long it takes, in milliseconds, until so many keys have run; what brings them may begin with it. */
export async function msOfRuns(queue: WorkQueue, count: number, begin?: () => Promise<void>): Promise<number> {
  let left = count
  const all = Promise.withResolvers<void>()
  const handler = async () => {
    if (--left === 0) all.resolve()
    return { kind: 'done' as const }
  }
  const worker = queue.serve({ reconciler: FN, slots: SLOTS, handler })
  const began = performance.now()
  await Promise.all([begin?.(), all.promise])
  const ms = performance.now() - began
  await worker.drain(1000)
  return ms
}

/** Starts a worker process, warms it up, and lets it wait for the name of a queue. */
export async function startWorker(settings: WorkerSettings): Promise<ChildProcess> {
  const worker = fork(fileURLToPath(new URL('./queue-worker.ts', import.meta.url)), [JSON.stringify(settings)])
  await isReady(worker)
  return worker
}

/** Makes the worker open that queue. It serves the queue after `go`. */
export async function open(worker: ChildProcess, prefix: string): Promise<void> {
  const ready = isReady(worker)
  worker.send(prefix)
  await ready
}

async function isReady(worker: ChildProcess): Promise<void> {
  for (;;) if ((await once(worker, 'message'))[0] === 'ready') return
}

/** Runs the task with 0 to `count` - 1, so many at a time. */
export async function inFlight(count: number, task: (index: number) => Promise<unknown>, limit = SLOTS): Promise<void> {
  let next = 0
  const some = async () => {
    while (next < count) await task(next++)
  }
  await Promise.all(Array.from({ length: limit }, some))
}

/** In so many namespaces, the keys of one behind those of another. */
export const enqueueAll = (queue: WorkQueue, count: number, namespaces = 1): Promise<void> =>
  inFlight(count, (index) => queue.enqueue(FN, `n${Math.floor((index * namespaces) / count)}.b${index}`))

export const rate = (count: number, ms: number): number => Math.round((count / ms) * 1000)

export const thousands = (count: number): string => Math.round(count).toLocaleString('en')
