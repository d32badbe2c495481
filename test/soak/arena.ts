import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Nats, type ProcessGroup, startNats } from '#lab'
import { connectJetStream, type JetStream } from '#nats'
import { openQueue, type WorkQueue } from '#queue'
import { silent } from '../support/silent.ts'
import { Observer } from './observer.ts'
import { CALM, FN, LEASE_MS, PREFIX, type ProcessTerms, SEEN, STREAM } from './terms.ts'

export interface ArenaOptions {
  dir: string
  replicas: 1 | 3
  seed: number
}

const WORKERS = 3
const ENQUEUERS = 2
const programs = {
  worker: fileURLToPath(new URL('./worker.ts', import.meta.url)),
  enqueuer: fileURLToPath(new URL('./enqueuer.ts', import.meta.url)),
}

/** Servers, workers, enqueuers and the observer: all of them processes that may be killed, except for the observer. */
export interface Arena extends AsyncDisposable {
  dir: string
  nats: Nats
  processes: ProcessGroup
  js: JetStream
  queue: WorkQueue
  observer: Observer
  replicas: 1 | 3
  workers: string[]
  enqueuers: string[]
  /** Under a fault, or being started again: not to be touched by anybody else. */
  inHands: Set<string>
  /** Makes all later runs end as done. */
  calm(): void
}

export async function openArena({ dir, replicas, seed }: ArenaOptions): Promise<Arena> {
  const nats = await startNats({ dir, replicas, dieWithParent: true })
  const js = await connectJetStream({ servers: nats.url, name: 'soak' })
  const queue = await openQueue(js, { prefix: PREFIX, replicas, leaseMs: LEASE_MS, ackWaitMs: LEASE_MS, log: silent })
  await queue.declare(FN)
  const { config } = await js.admin.streams.info(STREAM)
  await js.admin.streams.update(STREAM, { ...config, republish: { src: '>', dest: `${SEEN}.>` } })
  const observer = await Observer.open(nats.urls, join(dir, 'history.ndjson'))
  const start = async (role: keyof typeof programs, count: number) => {
    const names = Array.from({ length: count }, (_, index) => `${role}-${index + 1}`)
    for (const name of names) {
      const terms: ProcessTerms = { url: nats.url, replicas, dir, name, seed }
      const args = ['--expose-gc', programs[role], JSON.stringify(terms)]
      await nats.processes.start({ name, command: process.execPath, args })
    }
    return names
  }
  return {
    dir,
    nats,
    processes: nats.processes,
    js,
    queue,
    observer,
    replicas,
    workers: await start('worker', WORKERS),
    enqueuers: await start('enqueuer', ENQUEUERS),
    inHands: new Set(),
    calm: () => writeFileSync(join(dir, CALM), ''),
    async [Symbol.asyncDispose]() {
      await observer[Symbol.asyncDispose]()
      await js.close()
      await nats.stop()
    },
  }
}
