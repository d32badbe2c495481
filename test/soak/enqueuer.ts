/** Changes keys, as a bridge without a dispatcher would: `node enqueuer.ts '{"url":…}'`. */
import { connectJetStream } from '#nats'
import { openQueue } from '#queue'
import { randomFrom } from '../support/random.ts'
import { silent } from '../support/silent.ts'
import { changeKeys } from './changes.ts'
import { diaryIn, monotonicMs, noteMemory } from './diary.ts'
import { LEASE_MS, PREFIX, type ProcessTerms } from './terms.ts'

const PAUSE_MS = 25

const terms = JSON.parse(process.argv[2] ?? '{}') as ProcessTerms
const note = diaryIn(terms.dir, terms.name)
const random = randomFrom(terms.seed + process.pid)
const js = await connectJetStream({ servers: terms.url, name: terms.name, timeoutMs: 1000 })
const queue = await openQueue(js, {
  prefix: PREFIX,
  replicas: terms.replicas,
  leaseMs: LEASE_MS,
  ackWaitMs: LEASE_MS,
  log: silent,
})

const stop = new AbortController()
process.once('SIGTERM', () => stop.abort())
note({ note: 'up', at: monotonicMs(), pid: process.pid, name: terms.name })
noteMemory(note, terms.name)
await changeKeys({ queue, note, random, pauseMs: PAUSE_MS }, stop.signal)
await js.close()
process.exit(0)
