import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import type { Finish, Lease } from '#queue'
import { Names, recordFrom } from '../../streams/queue/wire.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  inMs,
  inOneHour,
  keysNamed,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

const { nats, open } = useTestNats()
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
      const handler = () => {
        // As by a function that fails before it returns a promise.
        throw thrown as Error
      }
      const worker = test.queue.serve({ reconciler: FN, slots: 1, handler })
      await test.queue.enqueue(FN, 'n.a')
      await until(async () =>
        expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', reason: 'Error' }]),
      )
      await worker.drain(1000)
    },
  )
})

describe('a run that takes its process along', () => {
  /** Processes that die in the first runs of the key n.poison, one after the other. */
  async function loseProcesses(prefix: string, { runs = 2, progresses = false } = {}): Promise<void> {
    for (let died = 1; died <= runs; died++) {
      const dying = await open(prefix)
      if (died === 1) await dying.queue.enqueue(FN, 'n.poison')
      const dead = Promise.withResolvers<void>()
      const handler = async (lease: Lease): Promise<Finish> => {
        if (progresses) await progress(dying, prefix, lease)
        await dying.js.close()
        dead.resolve()
        return new Promise(() => {})
      }
      dying.queue.serve({ reconciler: FN, slots: 8, handler })
      await dead.promise
    }
  }

  async function progress({ js, queue }: TestQueue, prefix: string, lease: Lease): Promise<void> {
    const names = new Names(prefix)
    lease.progressed()
    await until(async () => {
      const message = await js.lastOf(queue.stream, names.records(FN, lease.key))
      expect(message && recordFrom(message, names)).toMatchObject({ owner: lease.owner })
      expect(message && recordFrom(message, names)).not.toHaveProperty('cuts')
    })
  }

  it('is tried again at once by another, then later each time: it does not bring down one process after the other', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await loseProcesses(prefix)
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

  it('waits as long as after one, however many there were, if each has changed something', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await loseProcesses(prefix, { runs: 3, progresses: true })
    const backoff = { initialSeconds: 100, maxSeconds: 5000, jitter: 0 }
    const suspected: boolean[] = []
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 4,
      backoff,
      handler: async ({ suspect }) => {
        suspected.push(suspect)
        return DONE
      },
    })
    await until(async () =>
      expect(await entriesOf(test.queue)).toMatchObject([
        { state: 'waiting', reason: 'CutShort', attempt: 0, error: 'its process was lost during the run, once' },
      ]),
    )
    const [entry] = await entriesOf(test.queue)
    if (entry?.state !== 'waiting') throw new TypeError('it waits')
    expect(Math.round((+entry.until - +entry.since) / 10_000) * 10).toBe(100)
    await test.queue.retry({ reconciler: FN, key: 'n.poison' })
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(suspected).toEqual([true])
    await worker.drain(1000)
  })

  it('is a suspect until one succeeds, whatever it does meanwhile and whoever runs it', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    await loseProcesses(prefix)
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
