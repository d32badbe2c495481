/**
 * A worker to be mistreated, which also changes keys as a bridge in the same process would: `node worker.ts '{"url":…}'`.
 * Its wall clock is wrong, and steps at SIGUSR2. At SIGHUP it stops before every access of one kind, and dies with all
 * that has come so far, which a kill from outside would hardly ever find just there.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectJetStream } from '#nats'
import { type Finish, type Lease, openQueue, type QueueOptions } from '#queue'
import { randomFrom } from '../support/random.ts'
import { silent } from '../support/silent.ts'
import { changeKeys } from './changes.ts'
import { diaryIn, monotonicMs, noteMemory, type Outcome } from './diary.ts'
import { CALM, FN, LEASE_MS, PREFIX, type ProcessTerms } from './terms.ts'

const SLOTS = 16
const DRAIN_MS = 1000
const CHANGE_PAUSE_MS = 60
const SKEW_MS = 600_000
/** Earlier messages have arrived after this time. */
const BRINK_MS = 250
const BRINKS = ['record', 'token', 'done', 'acknowledge', 'readRecord', 'readToken'] as const

const terms = JSON.parse(process.argv[2] ?? '{}') as ProcessTerms
const note = diaryIn(terms.dir, terms.name)
const random = randomFrom(terms.seed + process.pid)
const { pid } = process

let skewMs = SKEW_MS * (random() - 0.5)
process.on('SIGUSR2', () => (skewMs = SKEW_MS * (random() - 0.5)))
let brink: (typeof BRINKS)[number] | undefined
process.on('SIGHUP', () => {
  brink = BRINKS[Math.floor(BRINKS.length * random())]
  setTimeout(() => process.kill(pid, 'SIGKILL'), BRINK_MS * (0.2 + random()))
})
const stopAtBrink: QueueOptions['onIo'] = (io) => {
  const kind = io.do === 'publish' ? io.message.role : io.do
  return kind === brink ? new Promise(() => {}) : undefined
}
const names = new WeakMap<Lease, string>()
let runs = 0
const calm = new AbortController()
setInterval(() => existsSync(join(terms.dir, CALM)) && calm.abort(), 250)

const js = await connectJetStream({ servers: terms.url, name: terms.name, timeoutMs: 1000 })
const queue = await openQueue(js, {
  prefix: PREFIX,
  replicas: terms.replicas,
  leaseMs: LEASE_MS,
  ackWaitMs: LEASE_MS,
  now: () => Date.now() + skewMs,
  onIo: stopAtBrink,
  log: { ...silent, error: (fields, message) => console.error(message, fields) },
})
const worker = queue.serve({
  reconciler: FN,
  slots: SLOTS,
  handler: run,
  onFinished: (lease, result) => note({ note: 'stored', at: monotonicMs(), run: names.get(lease) ?? '', result }),
})
note({ note: 'up', at: monotonicMs(), pid, name: terms.name })
noteMemory(note, terms.name)
process.once('SIGTERM', () => void worker.drain(DRAIN_MS).then(() => process.exit(0)))
void changeKeys({ queue, note, random, pauseMs: CHANGE_PAUSE_MS }, calm.signal)

async function run(lease: Lease): Promise<Finish> {
  const { key, owner } = lease
  const name = `${pid}-${++runs}`
  names.set(lease, name)
  note({ note: 'start', at: monotonicMs(), pid, run: name, key, owner })
  const steps = 1 + Math.floor(3 * random())
  const stepMs = workMs() / steps
  writeUnder(lease, name)
  for (let step = 0; step < steps; step++) {
    await sleep(stepMs)
    writeUnder(lease, name)
  }
  const outcome = outcomeOf(random())
  const dueInMs = 100 + 2900 * random()
  const end = { note: 'end', run: name, outcome, ...(isTimed(outcome) && { dueInMs }) } as const
  const dueAt = new Date(Date.now() + skewMs + dueInMs)
  note({ ...end, ...asked(lease) })
  switch (outcome) {
    case 'done':
      return { kind: 'done' }
    case 'terminal':
      return { kind: 'terminal', message: 'this one is parked' }
    case 'requeue':
      return { kind: 'requeue', at: dueAt }
    case 'error':
      return { kind: 'error', message: 'this one failed', retryAt: dueAt }
  }
}

/** Notes the time of a write that the lease would allow. */
function writeUnder(lease: Lease, name: string): void {
  const { at, held } = asked(lease)
  if (held) note({ note: 'held', at, run: name })
}

/** The time is taken before the lease is asked: if it stands, it stood then. */
function asked(lease: Lease): { at: number; held: boolean } {
  const at = monotonicMs()
  try {
    lease.hold()
    return { at, held: true }
  } catch {
    return { at, held: false }
  }
}

/** Most runs are short; some outlive several renewals. */
function workMs(): number {
  const kind = random()
  if (calm.signal.aborted || kind < 0.9) return 10 * random()
  return kind < 0.98 ? 200 * random() : 2.5 * LEASE_MS * random()
}

function outcomeOf(kind: number): Outcome {
  if (calm.signal.aborted || kind < 0.7) return 'done'
  if (kind < 0.85) return 'requeue'
  return kind < 0.98 ? 'error' : 'terminal'
}

const isTimed = (outcome: Outcome): boolean => outcome === 'requeue' || outcome === 'error'
