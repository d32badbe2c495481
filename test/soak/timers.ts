import { fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { connectJetStream, type JetStream } from '#nats'
import { type Finish, openQueue, type WorkQueue } from '#queue'
import { startTestNats } from '../support/servers.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'
import { armTimers } from './arm-timers.ts'
import type { TimersProgress, TimersSettings } from './timers-worker.ts'

/**
 * `npm run soak timers -- [--timers 500000] [--armed 50000]`: that many timers for one instant, while NATS is away.
 * `--armed` of them are left to the server, the others sleep. When NATS is back, all timers have to fire, and no lease may
 * be lost meanwhile. Exit code 0: so it was.
 */
const LEASE_MS = 5000
const HELD = 32
/** The least that this machine stores in a second. */
const ARMED_PER_SECOND = 4000
const FN = 'timers'
const HOLDING = 'holding'

const { timers, armed } = parseArgs({
  options: { timers: { type: 'string', default: '500000' }, armed: { type: 'string', default: '50000' } },
}).values
const count = Number(timers)

/** The longest that a message for WORK had to wait. */
class Probe {
  longestMs = 0
  #isOn = true
  readonly #ended: Promise<void>

  constructor(js: JetStream) {
    this.#ended = this.#run(js)
  }

  async stop(): Promise<number> {
    this.#isOn = false
    await this.#ended
    return Math.round(this.longestMs)
  }

  async #run(js: JetStream): Promise<void> {
    while (this.#isOn) {
      const began = performance.now()
      await js.publish('done.probe.p', '', {}).catch(() => undefined)
      this.longestMs = Math.max(this.longestMs, performance.now() - began)
      await sleep(20)
    }
  }
}

/** Half a million timers may take minutes. */
const PATIENCE = { leastMs: 500, timeoutMs: 3_600_000 }

const say = (text: string) => process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`)

/** Runs that go on until the signal: their leases are renewed meanwhile. */
async function hold(queue: WorkQueue, over: AbortSignal): Promise<{ lost: () => number }> {
  let begun = 0
  let lost = 0
  const handler = async ({ signal }: { signal: AbortSignal }): Promise<Finish> => {
    begun++
    while (!over.aborted && !signal.aborted) await sleep(100)
    return { kind: 'done' }
  }
  const onFinished = (_: unknown, result: 'finished' | 'fenced') => {
    if (result === 'fenced') lost++
  }
  queue.serve({ reconciler: HOLDING, slots: HELD, handler, onFinished })
  for (let key = 0; key < HELD; key++) await queue.enqueue(HOLDING, `n.h${key}`)
  await until(() => begun >= HELD, PATIENCE)
  return { lost: () => lost }
}

await using nats = await startTestNats()
const js = await connectJetStream({ servers: nats.url, name: 'soak', timeoutMs: 60_000 })
const queue = await openQueue(js, { leaseMs: LEASE_MS, ackWaitMs: LEASE_MS, log })
await queue.declare(FN)
await queue.declare(HOLDING)
const dueAt = Date.now() + 30_000 + (count / ARMED_PER_SECOND) * 1000
await armTimers(js, { reconciler: FN, count, dueAt, armed: Number(armed) })
if (Date.now() > dueAt) throw new Error('arming the timers took so long that they were due: the machine is too busy')
say(`${count} timers armed for one instant; NATS is killed, and back after it`)
nats.signal('SIGKILL')
await sleep(Math.max(0, dueAt - Date.now()) + 2 * LEASE_MS)
await nats.restart()
const began = performance.now()
const probe = new Probe(js)
const over = new AbortController()
const held = await hold(queue, over.signal)
let progress: TimersProgress = { fired: 0, fenced: 0 }
const settings: TimersSettings = { url: nats.url, reconciler: FN, leaseMs: LEASE_MS }
const worker = fork(fileURLToPath(new URL('./timers-worker.ts', import.meta.url)), [JSON.stringify(settings)])
worker.on('message', (message) => {
  progress = message as TimersProgress
})
let queuedAfterMs = 0
await until(async () => {
  const { waiting } = await queue.depth(FN)
  if (waiting === 0 && queuedAfterMs === 0) queuedAfterMs = performance.now() - began
  return progress.fired >= count
}, PATIENCE)
over.abort()
await until(async () => (await queue.depth(HOLDING)).running === 0, PATIENCE)
const longestMs = await probe.stop()
const lost = held.lost() + progress.fenced
say(
  `all fired; the last was queued after ${Math.round(queuedAfterMs / 1000)} s, all had run after ${Math.round((performance.now() - began) / 1000)} s`,
)
say(`a message for WORK waited ${longestMs} ms at most; leases lost: ${lost}`)
worker.kill('SIGKILL')
process.exitCode = lost === 0 ? 0 : 1
process.exit()
