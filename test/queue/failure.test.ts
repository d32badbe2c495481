import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Finish, Lease, WorkQueue } from '#queue'
import { shortTempDir } from '../support/servers.ts'
import { FileWorld, startWorker } from './processes.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  inMs,
  inOneHour,
  keysNamed,
  LEASE_MS,
  statesOf,
  until,
  useTestNats,
  World,
} from './support.ts'

const { nats, open } = useTestNats()
let dir: string
beforeAll(async () => {
  dir = await shortTempDir()
})
afterAll(() => rm(dir, { recursive: true, force: true }))

describe('the count of failures', () => {
  it('survives the workers and the server, and a success resets it', async () => {
    await using test = await open()
    const world = new World()
    const fails = (): Finish => ({ kind: 'error', message: 'no', retryAt: inMs(10) })
    const first = world.serve(test.queue, fails)
    await world.change(test.queue, 'n.a')
    await until(() => expect(world.leases.length).toBeGreaterThanOrEqual(3))
    await first.drain(1000)
    await nats().restart()
    const before = world.leases.at(-1)!.attempt
    const next = world.serve(test.queue)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(world.leases.at(-1)!.attempt).toBe(before + 1)
    await world.change(test.queue, 'n.a')
    await until(async () => expect(world.leases.at(-1)!.attempt).toBe(0))
    await next.drain(1000)
  })

  it('is kept when a change makes a key run before its backoff is over', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, () => ({ kind: 'error', message: 'no', retryAt: inOneHour() }))
    for (const expected of [1, 2, 3]) {
      await world.change(test.queue, 'n.a')
      await until(async () =>
        expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', attempt: expected }]),
      )
    }
    await worker.drain(1000)
  })

  it('is kept when a new process is told of a change before the token is delivered that counts', async () => {
    await using test = await open()
    const world = new World()
    await test.queue.enqueue(FN, 'n.a', { attempt: 2 })
    const worker = world.serve(test.queue)
    expect(await test.queue.announce(FN, 'n.a').safe).toBe('token')
    await until(() => expect(world.leases.map(({ attempt }) => attempt)).toEqual([2]))
    await worker.drain(1000)
  })

  it('spreads retries: keys that failed together come back apart', async () => {
    await using test = await open()
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 32,
      backoff: { initialSeconds: 1000, maxSeconds: 1000, jitter: 0.1 },
      handler: () => Promise.reject(new Error('all at once')),
    })
    await Promise.all(keysNamed('k', 30).map((key) => test.queue.enqueue(FN, key)))
    let waits: number[] = []
    await until(async () => {
      const entries = await entriesOf(test.queue)
      waits = entries.flatMap((entry) => (entry.state === 'waiting' ? [(+entry.until - +entry.since) / 1000] : []))
      expect(waits).toHaveLength(30)
    })
    // A tenth to each side of 1,000 s; what a loaded machine adds is seconds.
    expect(Math.min(...waits)).toBeGreaterThan(890)
    expect(Math.max(...waits)).toBeLessThan(1110)
    expect(Math.max(...waits) - Math.min(...waits)).toBeGreaterThan(50)
    await worker.drain(1000)
  })
})

describe('a poison key', () => {
  it('that fails for ever delays no other, in either lane', async () => {
    await using test = await open()
    const world = new World()
    const work = async ({ key }: Lease): Promise<Finish> => {
      if (key === 'n.poison') throw new Error('poison')
      return DONE
    }
    const worker = world.serve(test.queue, work, 1)
    await world.change(test.queue, 'n.poison')
    for (const key of keysNamed('high', 30)) await world.change(test.queue, key)
    for (const key of keysNamed('low', 30)) await world.change(test.queue, key, 'low')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.poison waiting']))
    expect(world.dealtWith.size).toBe(60)
    await worker.drain(1000)
  })

  it.each([undefined, 'a string', { toString: () => 'an object' }, Object.create(null)])(
    'may throw anything: %j',
    async (thrown) => {
      await using test = await open()
      const worker = test.queue.serve({ reconciler: FN, slots: 1, handler: () => Promise.reject(thrown as Error) })
      await test.queue.enqueue(FN, 'n.a')
      await until(async () =>
        expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', reason: 'Error' }]),
      )
      await worker.drain(1000)
    },
  )

  it('that throws before it returns a promise is an error like any other', async () => {
    await using test = await open()
    const handler = () => {
      throw new Error('at once')
    }
    const worker = test.queue.serve({ reconciler: FN, slots: 1, handler })
    await test.queue.enqueue(FN, 'n.a')
    await until(async () => expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', error: 'at once' }]))
    await worker.drain(1000)
  })
})

describe('a run that takes its process along', () => {
  const killsTwoProcesses = (queue: WorkQueue, prefix: string) => killsProcesses(queue, prefix, { runs: 2 })

  /** The key n.poison does, with its first runs. */
  async function killsProcesses(
    queue: WorkQueue,
    prefix: string,
    { runs, progresses = false }: { runs: number; progresses?: boolean },
  ): Promise<void> {
    const world = new FileWorld(`${dir}/${prefix}`)
    const { url } = nats()
    const settings = { url, prefix, reconciler: FN, replicas: 1, leaseMs: LEASE_MS, dir: world.dir, workMs: 5 } as const
    await world.change(queue, FN, 'n.poison')
    for (let died = 1; died <= runs; died++) {
      const doomed = await startWorker({ ...settings, dieInRun: 'n.poison', progresses })
      if (doomed.exitCode === null && doomed.signalCode === null) await once(doomed, 'exit')
      await until(() => expect(world.runs().filter(({ key }) => key === 'n.poison')).toHaveLength(died))
    }
  }

  it('is tried again at once by another, then later each time: it does not bring down one process after the other', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await killsTwoProcesses(test.queue, prefix)
    await test.queue.enqueue(FN, 'n.good')
    const leases: Lease[] = []
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 4,
      backoff: { initialSeconds: 0.4, maxSeconds: 600, jitter: 0 },
      handler: async (lease) => {
        leases.push(lease)
        return DONE
      },
    })
    await until(async () =>
      expect((await entriesOf(test.queue)).filter(({ key }) => key === 'n.poison')).toMatchObject([
        {
          state: 'waiting',
          reason: 'CutShort',
          attempt: 0,
          error: expect.stringContaining('lost during the run, 2 times'),
        },
      ]),
    )
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(leases.find(({ key }) => key === 'n.poison')).toMatchObject({ cutShort: true, attempt: 0, fired: true })
    expect(leases.some(({ key }) => key === 'n.good')).toBe(true)
    await test.queue.enqueue(FN, 'n.poison')
    await until(() => expect(leases.at(-1)).toMatchObject({ key: 'n.poison', cutShort: false, attempt: 0 }))
    await worker.drain(1000)
  })

  it.each([
    { progresses: true, counted: 'once', waitsS: 100 },
    { progresses: false, counted: '5 times in a row', waitsS: 1600 },
  ])(
    'waits as long as after one, however many there were, if each has changed something: $progresses',
    async ({ progresses, counted, waitsS }) => {
      const prefix = freshPrefix()
      await using test = await open(prefix)
      await killsProcesses(test.queue, prefix, { runs: 5, progresses })
      const backoff = { initialSeconds: 100, maxSeconds: 5000, jitter: 0 }
      const worker = test.queue.serve({ reconciler: FN, slots: 4, backoff, handler: async () => DONE })
      await until(async () =>
        expect(await entriesOf(test.queue)).toMatchObject([
          {
            state: 'waiting',
            reason: 'CutShort',
            attempt: 0,
            error: `its process was lost during the run, ${counted}`,
          },
        ]),
      )
      const [entry] = await entriesOf(test.queue)
      if (entry?.state !== 'waiting') throw new TypeError('it waits')
      expect(Math.round((+entry.until - +entry.since) / 10_000) * 10).toBe(waitsS)
      const suspected: boolean[] = []
      await worker.drain(1000)
      const last = test.queue.serve({
        reconciler: FN,
        slots: 4,
        handler: async ({ suspect }) => {
          suspected.push(suspect)
          return DONE
        },
      })
      await test.queue.retry({ reconciler: FN, key: 'n.poison' })
      await until(async () => expect(await statesOf(test.queue)).toEqual([]))
      expect(suspected).toEqual([true])
      await last.drain(1000)
    },
  )

  it('is run by a change that comes meanwhile, still as a suspect', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await killsTwoProcesses(test.queue, prefix)
    const leases: Lease[] = []
    const serve = () =>
      test.queue.serve({
        reconciler: FN,
        slots: 4,
        backoff: { initialSeconds: 600, maxSeconds: 600, jitter: 0 },
        handler: async (lease) => {
          leases.push(lease)
          return DONE
        },
      })
    const worker = serve()
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.poison waiting']))
    await test.queue.enqueue(FN, 'n.poison')
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(leases).toMatchObject([{ key: 'n.poison', cutShort: true, suspect: true, attempt: 0 }])
    await worker.drain(1000)
  })

  it('is a suspect until one succeeds, whatever it does meanwhile and whoever runs it', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await killsTwoProcesses(test.queue, prefix)
    const suspected: boolean[] = []
    const runsOnce = async (finish: Finish | undefined, left: string[]): Promise<void> => {
      const before = suspected.length
      const worker = test.queue.serve({
        reconciler: FN,
        slots: 4,
        backoff: { initialSeconds: 0.3, maxSeconds: 600, jitter: 0 },
        handler: async ({ suspect, signal }) => {
          suspected.push(suspect)
          if (finish === undefined) await once(signal, 'abort')
          return finish ?? DONE
        },
      })
      await until(() => expect(suspected.length).toBeGreaterThan(before))
      await until(async () => expect(await statesOf(test.queue)).toEqual(left))
      await worker.drain(0)
    }
    const error: Finish = { kind: 'error', message: 'no', retryAt: inOneHour() }
    await runsOnce(error, ['n.poison waiting'])
    await test.queue.enqueue(FN, 'n.poison')
    await runsOnce(error, ['n.poison waiting'])
    await test.queue.retry({ reconciler: FN, key: 'n.poison' })
    await runsOnce(undefined, ['n.poison running'])
    await runsOnce({ kind: 'terminal', message: 'never' }, ['n.poison parked'])
    await nats().restart()
    await test.queue.enqueue(FN, 'n.poison')
    await runsOnce(DONE, [])
    await test.queue.enqueue(FN, 'n.poison')
    await runsOnce(DONE, [])
    expect(suspected).toEqual([true, true, true, true, true, false])
  })
})
