/**
 * Changes keys, as several bridges would: `node enqueuer.ts '{"url":…}'`. Some keys are hot for ever; most belong to a
 * few seconds and are never touched again, so that no later change hides a lost one.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { connectJetStream } from '#jetstream'
import { openQueue } from '#queue'
import { randomFrom } from '../support/random.ts'
import { diaryIn, monotonicMs, noteMemory } from './diary.ts'
import { FN, LEASE_MS, PREFIX, type ProcessTerms, quiet } from './terms.ts'

const HOT_KEYS = 5
const KEYS_AT_A_TIME = 60
const AGE_MS = 3000
/** Mean pause between two changes of this process. */
const PAUSE_MS = 25
const BURST = 100

const terms = JSON.parse(process.argv[2] ?? '{}') as ProcessTerms
const note = diaryIn(terms.dir, terms.name)
const random = randomFrom(terms.seed + process.pid)
const js = await connectJetStream({ servers: terms.url, name: terms.name, timeoutMs: 1000 })
const queue = await openQueue(js, {
  prefix: PREFIX,
  replicas: terms.replicas,
  leaseMs: LEASE_MS,
  ackWaitMs: LEASE_MS,
  log: quiet,
})

const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())
const underWay = new Set<Promise<void>>()
note({ note: 'up', at: monotonicMs(), pid: process.pid, name: terms.name })
noteMemory(note, terms.name)
while (!stop.signal.aborted) {
  await sleep(2 * PAUSE_MS * random())
  const changes = random() < 0.002 ? BURST : 1
  for (let i = 0; i < changes; i++) change()
}
await Promise.all(underWay)
await js.close()
process.exit(0)

function change(): void {
  const key =
    random() < 0.2 ? `hot.${pick(HOT_KEYS)}` : `of${Math.floor(monotonicMs() / AGE_MS)}.${pick(KEYS_AT_A_TIME)}`
  const lane = random() < 0.7 ? 'high' : 'low'
  const work = enqueue(key, lane).finally(() => underWay.delete(work))
  underWay.add(work)
}

async function enqueue(key: string, lane: 'high' | 'low'): Promise<void> {
  const from = monotonicMs()
  await queue.enqueue(FN, key, { lane })
  note({ note: 'enqueued', from, at: monotonicMs(), key, lane })
}

function pick(count: number): number {
  return Math.floor(count * random())
}
