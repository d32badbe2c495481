import { describe, expect, it } from 'vitest'
import type { Finish, Lease } from '#queue'
import { DONE, entriesOf, FN, freshPrefix, keysNamed, SHORT, statesOf, until, useTestNats, World } from './support.ts'

const { open } = useTestNats()
describe('the count of failures', () => {
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

it('a failed run whose function asked for the time of the next one waits in the high lane, and another one in its own', async () => {
  await using test = await open()
  const failed = { kind: 'error', message: 'no', retryAt: { afterMs: 600_000 } } as const
  const handler = async ({ key }: Lease): Promise<Finish> => (key === 'n.timed' ? { ...failed, isTimer: true } : failed)
  const worker = test.queue.serve({ reconciler: FN, slots: 2, handler })
  for (const key of ['n.failed', 'n.timed']) await test.queue.enqueue(FN, key, { lane: 'low' })
  await until(async () =>
    expect(await entriesOf(test.queue)).toMatchObject([
      { key: 'n.failed', state: 'waiting', lane: 'low' },
      { key: 'n.timed', state: 'waiting', lane: 'high' },
    ]),
  )
  await worker.drain(1000)
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

  it.each([
    [undefined, 'undefined'],
    ['a string', 'a string'],
    [{ toString: () => 'an object' }, expect.any(String)],
    [Object.create(null), expect.any(String)],
    [new Error('böse\nzweite Zeile'), 'böse\nzweite Zeile'],
  ])('may throw anything: %j', async (thrown, error) => {
    await using test = await open()
    const handler = ({ key }: Lease): Promise<Finish> => {
      if (key === 'n.rejected') return Promise.reject(thrown as Error)
      // As by a function that fails before it returns a promise.
      throw thrown as Error
    }
    // Whenever it is looked at, it has been tried once.
    const backoff = { initialSeconds: 600, maxSeconds: 600, jitter: 0 }
    const worker = test.queue.serve({ reconciler: FN, slots: 1, backoff, handler })
    for (const key of ['n.rejected', 'n.thrown']) await test.queue.enqueue(FN, key)
    const failed = { state: 'waiting', reason: 'Error', attempt: 1, error }
    await until(async () => expect(await entriesOf(test.queue)).toMatchObject([failed, failed]))
    await worker.drain(1000)
  })
})

describe('a run that takes its process along', () => {
  /** Two processes that die in runs of the key n.poison, one after the other. */
  async function loseProcesses(prefix: string): Promise<void> {
    for (const died of [1, 2]) {
      const dying = await open(prefix, SHORT)
      if (died === 1) await dying.queue.enqueue(FN, 'n.poison')
      const dead = Promise.withResolvers<void>()
      const handler = async (): Promise<Finish> => {
        await dying.js.close()
        dead.resolve()
        return new Promise(() => {})
      }
      dying.queue.serve({ reconciler: FN, slots: 8, handler })
      await dead.promise
    }
  }

  it('is tried again at once by another, then later each time: it does not bring down one process after the other', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix, SHORT)
    await loseProcesses(prefix)
    await test.queue.enqueue(FN, 'n.good')
    const leases: Lease[] = []
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 4,
      backoff: { initialSeconds: 600, maxSeconds: 6000, jitter: 0 },
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
          error: 'its process was lost again, during the run',
        },
      ]),
    )
    const waits = (await entriesOf(test.queue)).flatMap((entry) =>
      entry.state === 'waiting' ? [(+entry.until - +entry.since) / 1000] : [],
    )
    // The first wait; what a loaded machine adds is seconds.
    expect(waits.map((seconds) => Math.round(seconds / 600))).toEqual([1])
    await until(() => expect(leases.map(({ key }) => key)).toEqual(['n.good']))
    for (const isSuspect of [true, false]) {
      await test.queue.enqueue(FN, 'n.poison')
      await until(async () => expect(await statesOf(test.queue)).toEqual([]))
      expect(leases.at(-1)).toMatchObject({ key: 'n.poison', cutShort: isSuspect, suspect: isSuspect, attempt: 0 })
    }
    await worker.drain(1000)
  })
})
