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
  /** Left out: as long as the lease. */
  ackWaitMs?: number
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
const log = (event: object, at = monotonicMs()) =>
  appendFileSync(`${settings.dir}/log`, `${JSON.stringify({ ...event, pid: process.pid, at })}\n`)
const monotonicMs = () => Number(process.hrtime.bigint() / 1000n) / 1000

const js = await connectJetStream({ servers: settings.url, name: 'worker', timeoutMs: 1000 })
const queue = await openQueue(js, {
  prefix: settings.prefix,
  replicas: settings.replicas,
  leaseMs: settings.leaseMs,
  ackWaitMs: settings.ackWaitMs ?? settings.leaseMs,
  log: silent,
})
const worker = queue.serve({
  reconciler: settings.reconciler,
  slots: settings.slots ?? 8,
  ...(settings.rates && { rates: settings.rates }),
  handler: async (lease) => {
    const { key, owner, attempt, signal } = lease
    const version = Number(readFileSync(`${settings.dir}/${key}`, 'utf8'))
    log({ event: 'start', key, owner, version, attempt })
    try {
      await sleep(settings.workMs * random() * 2, undefined, { signal })
      lease.hold()
    } catch (error) {
      // A process that was stopped for a while has had the key until the end of its lease only.
      log({ event: 'lost', owner }, monotonicMs() - Math.max(0, Date.now() - lease.until.getTime()))
      throw error
    }
    log({ event: 'end', key, owner, version })
    return { kind: 'done' }
  },
})

process.once('SIGTERM', () => void worker.drain(settings.graceMs ?? 1000).then(() => process.exit(0)))
process.stdout.write('serving\n')
