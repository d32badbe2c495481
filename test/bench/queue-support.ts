import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { JetStream } from '#jetstream'
import { openQueue, type QueueOptions, type WorkQueue } from '#queue'

export const FN = 'bench'
export const SLOTS = 64
/** As `fairlead up` has it. */
const LEASE_MS = 5000
const silent = { debug() {}, info() {}, warn() {}, error() {} }

/** For queue-worker.ts. */
export interface WorkerSettings {
  url: string
  prefix: string
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

/** A worker process that waits for `go`. */
export async function startWorker(settings: WorkerSettings): Promise<ChildProcess> {
  const worker = fork(fileURLToPath(new URL('./queue-worker.ts', import.meta.url)), [JSON.stringify(settings)])
  await once(worker, 'message')
  return worker
}

/** Runs the task with 0 to `count` - 1, so many at a time. */
export async function inFlight(count: number, task: (index: number) => Promise<unknown>, limit = SLOTS): Promise<void> {
  let next = 0
  const some = async () => {
    while (next < count) await task(next++)
  }
  await Promise.all(Array.from({ length: limit }, some))
}

export const enqueueAll = (queue: WorkQueue, count: number): Promise<void> =>
  inFlight(count, (index) => queue.enqueue(FN, `n.b${index}`))

export const rate = (count: number, ms: number): number => Math.round((count / ms) * 1000)

export const thousands = (count: number): string => Math.round(count).toLocaleString('en')

/** p50 / p99. */
export function percentiles(times: readonly number[], digits = 2): string {
  const sorted = times.toSorted((a, b) => a - b)
  const at = (share: number) => (sorted[Math.floor(share * (sorted.length - 1))] ?? 0).toFixed(digits)
  return `${at(0.5)} / ${at(0.99)}`
}
