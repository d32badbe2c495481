import type { ChildProcess } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { shortTempDir } from '../support/servers.ts'
import { FileWorld, kill, startWorker } from './processes.ts'
import { entriesOf, FN, keysNamed, LEASE_MS, PATIENT, until, useTestNats } from './support.ts'
import type { WorkerSettings } from './worker-process.ts'

const { nats, open } = useTestNats()
let dir: string
beforeAll(async () => {
  dir = await shortTempDir()
})
afterAll(() => rm(dir, { recursive: true, force: true }))

/** No run loses its key, and a token comes again soon that a process has not taken in the end. */
const TERMS = { leaseMs: PATIENT.leaseMs, ackWaitMs: LEASE_MS }
const settingsOf = (prefix: string, world: FileWorld): WorkerSettings => ({
  url: nats().url,
  prefix,
  reconciler: FN,
  replicas: 1,
  ...TERMS,
  dir: world.dir,
  workMs: 10,
})

it('from 1 to 8 processes and back under load no key is run twice at a time, and no run is cut off', async () => {
  await using test = await open('scale', TERMS)
  const world = new FileWorld(`${dir}/scale`)
  const settings = { ...settingsOf('scale', world), slots: 4, graceMs: 60_000 }
  const keys = keysNamed('k', 40)
  const enough = new AbortController()
  const load = (async () => {
    for (let turn = 0; !enough.signal.aborted; turn++) {
      await world.change(test.queue, FN, keys[turn % keys.length]!, turn % 4 ? 'high' : 'low')
      await new Promise((resolve) => setTimeout(resolve, 2))
    }
  })()
  const hasRun = ({ pid }: ChildProcess) => until(() => expect(world.runs().some((run) => run.pid === pid)).toBe(true))

  const first = await startWorker(settings)
  await hasRun(first)
  const others = await Promise.all(Array.from({ length: 7 }, () => startWorker(settings)))
  await Promise.all(others.map(hasRun))
  for (const worker of others) await kill(worker, 'SIGTERM')
  enough.abort()
  await load
  await until(() => expect(world.dealtWith()).toEqual(world.versions))
  await until(async () => expect(await entriesOf(test.queue)).toEqual([]))
  await kill(first, 'SIGTERM')

  expect([first, ...others].map(({ exitCode }) => exitCode)).toEqual(Array.from({ length: 8 }, () => 0))
  expect(world.overlaps()).toEqual([])
  expect(world.runs().filter(({ end }) => end === undefined)).toEqual([])
})
