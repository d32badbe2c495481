import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Finish, Lease, RunRate, WorkQueue } from '#queue'
import { VALID_MS } from '../../streams/queue/run-rate.ts'
import { shortTempDir } from '../support/servers.ts'
import { FileWorld, kill, startWorker } from './processes.ts'
import { tooMany } from './rate-law.ts'
import { DONE, FN, freshPrefix, keysNamed, LEASE_MS, SHORT, statesOf, until, useTestNats } from './support.ts'

const { open, nats } = useTestNats()

let dir: string
beforeAll(async () => {
  dir = await shortTempDir()
})
afterAll(() => rm(dir, { recursive: true, force: true }))

const rateOf = (perSecond: number, burst: number) => ({ name: FN, limits: [FN], perSecond, burst }) satisfies RunRate

interface Start {
  key: string
  lane: Lease['lane']
  at: number
}

/** Serves with a rate, and notes when runs begin. */
function serve(
  queue: WorkQueue,
  rates: RunRate[],
  {
    starts = [],
    reconciler = FN,
    finish = () => DONE,
  }: { starts?: Start[]; reconciler?: string; finish?: (lease: Lease) => Finish } = {},
) {
  const handler = async (lease: Lease) => {
    starts.push({ key: lease.key, lane: lease.lane, at: performance.now() })
    return finish(lease)
  }
  return { starts, worker: queue.serve({ reconciler, slots: 16, rates, handler }) }
}

const timesOf = (starts: Start[]) => starts.map(({ at }) => at)

describe('a rate of runs', () => {
  it('is not exceeded by three processes together, and every key runs once', async () => {
    const prefix = freshPrefix()
    await using one = await open(prefix)
    await using other = await open(prefix)
    await using third = await open(prefix)
    const rate = rateOf(40, 8)
    const keys = keysNamed('k', 60)
    for (const key of keys) await one.queue.enqueue(FN, key)
    const starts: Start[] = []
    const workers = [one, other, third].map(({ queue }) => serve(queue, [rate], { starts }).worker)
    await until(() => expect(starts).toHaveLength(keys.length))
    await until(async () => expect(await statesOf(one.queue)).toEqual([]))
    expect(starts.map(({ key }) => key).sort()).toEqual(keys.toSorted())
    expect(tooMany(timesOf(starts), rate)).toEqual([])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })

  it('is not exceeded when a process is killed and another one starts, and no key is lost', async () => {
    const world = new FileWorld(join(dir, 'killed'))
    const prefix = freshPrefix()
    await using test = await open(prefix, SHORT)
    const rate = rateOf(30, 4)
    const settings = {
      url: nats().url,
      prefix,
      reconciler: FN,
      replicas: 1 as const,
      leaseMs: LEASE_MS,
      dir: world.dir,
      workMs: 5,
      rates: [rate],
    }
    const doomed = await startWorker(settings)
    const others = [await startWorker(settings), await startWorker(settings)]
    const keys = keysNamed('k', 90)
    for (const key of keys) await world.change(test.queue, FN, key)
    await until(() => expect(world.runs().length).toBeGreaterThan(20))
    await kill(doomed)
    others.push(await startWorker(settings))
    await until(() => expect(world.dealtWith()).toEqual(world.versions))
    expect(
      tooMany(
        world.runs().map(({ start }) => start),
        rate,
      ),
    ).toEqual([])
    await Promise.all(others.map((child) => kill(child)))
  })

  it('is shared by Reconcilers that name the same one, and the lower of two rates holds', async () => {
    await using test = await open()
    await test.queue.declare('g')
    const shared = { name: 'team/shop', limits: [FN, 'g'], perSecond: 40, burst: 4 } satisfies RunRate
    const own = rateOf(10, 2)
    const keys = keysNamed('k', 12)
    for (const key of keys) for (const reconciler of [FN, 'g']) await test.queue.enqueue(reconciler, key)
    const limited = serve(test.queue, [own, shared])
    const other = serve(test.queue, [shared], { reconciler: 'g' })
    await until(() => expect([limited.starts.length, other.starts.length]).toEqual([keys.length, keys.length]))
    expect(tooMany(timesOf(limited.starts), own)).toEqual([])
    expect(tooMany(timesOf([...limited.starts, ...other.starts]), shared)).toEqual([])
    await Promise.all([limited, other].map(({ worker }) => worker.drain(1000)))
  })

  it('holds for changes that a process announces and for timers that it has set', async () => {
    await using test = await open()
    const rate = rateOf(20, 6)
    let again = 20
    const finish = (): Finish => (again-- > 0 ? { kind: 'requeue', at: { afterMs: 60 } } : DONE)
    const { starts, worker } = serve(test.queue, [rate], { finish })
    const safe = keysNamed('k', 20).map((key) => test.queue.announce(FN, key).safe)
    await Promise.all(safe)
    await until(() => expect(starts).toHaveLength(40))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(tooMany(timesOf(starts), rate)).toEqual([])
    await worker.drain(1000)
  })

  it('gives changes three of four runs while both lanes wait', async () => {
    await using test = await open()
    for (const key of keysNamed('low', 30)) await test.queue.enqueue(FN, key, { lane: 'low' })
    for (const key of keysNamed('high', 30)) await test.queue.enqueue(FN, key)
    const { starts, worker } = serve(test.queue, [rateOf(50, 12)])
    await until(() => expect(starts).toHaveLength(60))
    const early = starts.slice(0, 32).filter(({ lane }) => lane === 'high').length
    expect(early).toBeGreaterThanOrEqual(20)
    expect(early).toBeLessThanOrEqual(28)
    await worker.drain(1000)
  })

  it('does not let a run begin long after it was permitted: the key is queued again', async () => {
    let delays = 1
    let takes = 0
    await using test = await open(freshPrefix(), {
      observer: { onTake: () => takes++ },
      onIo: async (io) => {
        if (io.do === 'publish' && io.message.role === 'record' && delays-- > 0) await sleep(2 * VALID_MS)
      },
    })
    const { starts, worker } = serve(test.queue, [rateOf(5, 5)])
    await test.queue.enqueue(FN, 'n.a')
    await until(() => expect(starts).toHaveLength(1))
    expect(takes).toBe(2)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(starts).toHaveLength(1)
    await worker.drain(1000)
  })

  it('shows a Reconciler as served while all its keys wait for a run', async () => {
    await using test = await open()
    for (const key of keysNamed('k', 8))
      for (const lane of ['high', 'low'] as const) await test.queue.enqueue(FN, key, { lane })
    const { starts, worker } = serve(test.queue, [rateOf(0.1, 2)])
    await until(() => expect(starts.length).toBeGreaterThan(0))
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ running: 0 }))
    expect(await test.queue.isServed(FN)).toBe(true)
    await worker.drain(1000)
  })

  it('stores nothing and asks for nothing without a rate, nor with one while nothing waits', async () => {
    await using test = await open()
    const rates = async () =>
      Object.keys(
        (await test.js.admin.streams.info(test.queue.stream, { subjects_filter: '*.key._rate.*' })).state.subjects ??
          {},
      )
    const none = serve(test.queue, [])
    await test.queue.enqueue(FN, 'n.a')
    await until(() => expect(none.starts).toHaveLength(1))
    await none.worker.drain(1000)
    const idle = serve(test.queue, [rateOf(10, 10)])
    await until(async () => expect(await test.queue.isServed(FN)).toBe(true))
    expect(await rates()).toEqual([])
    await test.queue.enqueue(FN, 'n.a')
    await until(() => expect(idle.starts).toHaveLength(1))
    expect(await rates()).toHaveLength(1)
    await idle.worker.drain(1000)
  })
})
