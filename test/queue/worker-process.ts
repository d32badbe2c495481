/**
 * A worker to be killed: `node worker-process.ts '{"url":…}'`. Reads the version of a key from a file when its run
 * starts, and appends what it does to a log that survives it, with times of the machine's monotonic clock.
 */
import { appendFileSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectJetStream } from '#nats'
import { openQueue, type RunRate } from '#queue'
import { randomFrom } from '../support/random.ts'
import { silent } from '../support/silent.ts'

export interface WorkerSettings {
  url: string
  prefix: string
  reconciler: string
  replicas: 1 | 3
  leaseMs: number
  /** Holds `log`, and a file per key with its version. */
  dir: string
  workMs: number
  /** Seed of the lengths of its runs. */
  seed?: number
  slots?: number
  rates?: readonly RunRate[]
  /** The grace period for runs in flight at SIGTERM. */
  graceMs?: number
}

const settings = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings
const random = randomFrom(settings.seed ?? 1)
const log = (event: object) =>
  appendFileSync(`${settings.dir}/log`, `${JSON.stringify({ ...event, pid: process.pid, at: monotonicMs() })}\n`)
const monotonicMs = () => Number(process.hrtime.bigint() / 1000n) / 1000

const js = await connectJetStream({ servers: settings.url, name: 'worker', timeoutMs: 1000 })
const queue = await openQueue(js, {
  prefix: settings.prefix,
  replicas: settings.replicas,
  leaseMs: settings.leaseMs,
  ackWaitMs: settings.leaseMs,
  log: silent,
})
const worker = queue.serve({
  reconciler: settings.reconciler,
  slots: settings.slots ?? 8,
  ...(settings.rates && { rates: settings.rates }),
  handler: async ({ key, owner, attempt, signal }) => {
    const version = Number(readFileSync(`${settings.dir}/${key}`, 'utf8'))
    log({ event: 'start', key, owner, version, attempt })
    await sleep(settings.workMs * random() * 2, undefined, { signal })
    log({ event: 'end', key, owner, version })
    return { kind: 'done' }
  },
})

process.once('SIGTERM', () => void worker.drain(settings.graceMs ?? 1000).then(() => process.exit(0)))
process.stdout.write('serving\n')
