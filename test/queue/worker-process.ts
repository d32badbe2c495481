/**
 * A worker to be killed: `node worker-process.ts '{"url":…}'`. Reads the version of a key from a file when its run
 * starts, and appends what it does to a log that survives it, with times of the machine's monotonic clock.
 */
import { appendFileSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectJetStream } from '#nats'
import { type Lease, openQueue } from '#queue'
import { Names, recordFrom } from '../../streams/queue/wire.ts'
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
  /** Kill -9 itself before that many accesses to the stream in the course of taking and finishing. */
  dieBefore?: number
  /** Kill -9 itself in the middle of the first run, or of the runs of this key. */
  dieInRun?: boolean | string
  /** Report progress before that, and wait until the key's record has it. */
  progresses?: boolean
  slots?: number
  /** The grace period for runs in flight at SIGTERM. */
  graceMs?: number
}

const settings = JSON.parse(process.argv[2] ?? '{}') as WorkerSettings
const random = randomFrom(settings.seed ?? 1)
const die = () => process.kill(process.pid, 'SIGKILL')
const log = (event: object) =>
  appendFileSync(`${settings.dir}/log`, `${JSON.stringify({ ...event, pid: process.pid, at: monotonicMs() })}\n`)
const monotonicMs = () => Number(process.hrtime.bigint() / 1000n) / 1000

let accesses = 0
const js = await connectJetStream({ servers: settings.url, name: 'worker', timeoutMs: 1000 })
const queue = await openQueue(js, {
  prefix: settings.prefix,
  replicas: settings.replicas,
  leaseMs: settings.leaseMs,
  ackWaitMs: settings.leaseMs,
  log: silent,
  onIo: () => (++accesses === settings.dieBefore ? void die() : undefined),
})
const worker = queue.serve({
  reconciler: settings.reconciler,
  slots: settings.slots ?? 8,
  handler: async (lease) => {
    const { key, owner, attempt, signal } = lease
    const version = Number(readFileSync(`${settings.dir}/${key}`, 'utf8'))
    log({ event: 'start', key, owner, version, attempt })
    if (settings.progresses) await progress(lease)
    if (settings.dieInRun === true || settings.dieInRun === key) die()
    await sleep(settings.workMs * random() * 2, undefined, { signal })
    log({ event: 'end', key, owner, version })
    return { kind: 'done' }
  },
})

async function progress(lease: Lease): Promise<void> {
  const names = new Names(settings.prefix)
  lease.progressed()
  for (;;) {
    const message = await js.lastOf(names.stream, names.records(settings.reconciler, lease.key))
    if (message && recordFrom(message, names)?.cuts === undefined) return
    await sleep(5)
  }
}

process.once('SIGTERM', () => void worker.drain(settings.graceMs ?? 1000).then(() => process.exit(0)))
process.stdout.write('serving\n')
