import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Finish, Lease, RunRate, WorkQueue } from '#queue'
import { VALID_MS } from '../../streams/queue/run-rate.ts'
import { startLossyProxy } from '../support/lossy-proxy.ts'
import { shortTempDir } from '../support/servers.ts'
import { FileWorld, kill, startWorker } from './processes.ts'
import { tooMany } from './rate-law.ts'
import {
  DONE,
  FN,
  freshPrefix,
  gate,
  keysNamed,
  LEASE_MS,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
} from './support.ts'

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

/** So slow that a permit that is lost is missed until the end of the test. */
const SLOW = 0.001

/** The subjects of the stream that match, without the prefix of the queue. */
async function stored({ js, queue }: TestQueue, filter: string): Promise<string[]> {
  const { state } = await js.admin.streams.info(queue.stream, { subjects_filter: `*.${filter}` })
  return Object.keys(state.subjects ?? {}).map((subject) => subject.split('.').slice(1).join('.'))
}

/** Waits until a worker of the Reconciler takes no more keys because of its rate. */
const untilLimited = (test: TestQueue, reconciler = FN) =>
  until(async () => expect(await stored(test, `done.${reconciler}.*.limited`)).toHaveLength(1))

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

  it('gives a run another permit that would begin long after it was permitted', async () => {
    let delays = 1
    let takes = 0
    let lateAt = 0
    await using test = await open(freshPrefix(), {
      observer: { onTake: () => takes++ },
      onIo: async (io) => {
        if (io.do !== 'publish' || io.message.role !== 'record' || delays-- <= 0) return
        await sleep(2 * VALID_MS)
        lateAt = Date.now()
      },
    })
    const { starts, worker } = serve(test.queue, [rateOf(5, 5)])
    await test.queue.enqueue(FN, 'n.a')
    await until(() => expect(starts).toHaveLength(1))
    const [rate] = await stored(test, 'key._rate.>')
    const message = await test.js.lastOf(test.queue.stream, `*.${rate}`)
    expect(message?.storedAt).toBeGreaterThanOrEqual(lateAt)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect([starts.length, takes]).toEqual([1, 1])
    await worker.drain(1000)
  })

  it('lets runs begin however slow NATS is, and is not exceeded then', async () => {
    await using proxy = await startLossyProxy(nats().url, { delayMs: 60 })
    const prefix = freshPrefix()
    await using near = await open(prefix)
    await using far = await open(prefix, {}, proxy.url)
    const rates = [rateOf(20, 3), { name: 'team/shop', limits: [FN], perSecond: 30, burst: 2 } satisfies RunRate]
    const keys = keysNamed('k', 12)
    for (const key of keys) await near.queue.enqueue(FN, key)
    const { starts, worker } = serve(far.queue, rates)
    await until(() => expect(starts).toHaveLength(keys.length))
    await until(async () => expect(await statesOf(near.queue)).toEqual([]))
    expect(starts.map(({ key }) => key).sort()).toEqual(keys.toSorted())
    for (const rate of rates) expect(tooMany(timesOf(starts), rate)).toEqual([])
    await worker.drain(1000)
  })

  it('asks again when NATS does not answer: the key does not wait for its next delivery', async () => {
    await using proxy = await startLossyProxy(nats().url)
    const prefix = freshPrefix()
    await using steady = await open(prefix)
    await using shaky = await open(prefix, {}, proxy.url)
    const { starts, worker } = serve(shaky.queue, [rateOf(5, 5)])
    await until(async () => expect(await steady.queue.isServed(FN)).toBe(true))
    proxy.lose('requests')
    await steady.queue.enqueue(FN, 'n.a')
    await until(() => expect(starts).toHaveLength(1))
    expect(shaky.logged.filter((line) => line.startsWith('key left to the queue'))).toEqual([])
    await worker.drain(1000)
  })

  it('holds as it is now when it was lower before', async () => {
    await using test = await open()
    const slow = serve(test.queue, [rateOf(SLOW, 2)])
    for (const key of keysNamed('k', 3)) await test.queue.enqueue(FN, key)
    await untilLimited(test)
    await slow.worker.drain(1000)
    const raised = serve(test.queue, [rateOf(20, 5)])
    await until(() => expect(slow.starts.length + raised.starts.length).toBe(3))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await raised.worker.drain(1000)
  })

  it('is not charged for a key that another process runs', async () => {
    const prefix = freshPrefix()
    await using one = await open(prefix)
    await using other = await open(prefix)
    const rates = [rateOf(SLOW, 2)]
    const began = gate()
    const goesOn = gate()
    const handler = async (): Promise<Finish> => {
      began.open()
      await goesOn.opened
      return DONE
    }
    const busy = one.queue.serve({ reconciler: FN, slots: 1, rates, handler })
    await one.queue.enqueue(FN, 'n.a')
    await began.opened
    const { starts, worker } = serve(other.queue, rates)
    // The run is told of the change by the other process, which needs a permit to look, and keeps none.
    await one.queue.enqueue(FN, 'n.a')
    await until(async () =>
      expect(await one.queue.find({ reconciler: FN, key: 'n.a' })).toMatchObject([{ dirty: true }]),
    )
    await one.queue.enqueue(FN, 'n.b')
    await until(() => expect(starts.map(({ key }) => key)).toEqual(['n.b']))
    goesOn.open()
    await Promise.all([busy, worker].map((each) => each.drain(1000)))
  })

  it('is not charged for runs that another rate of the Reconciler does not permit', async () => {
    await using test = await open()
    await test.queue.declare('g')
    const shared = { name: 'team/shop', limits: [FN, 'g'], perSecond: SLOW, burst: 1 } satisfies RunRate
    const mate = serve(test.queue, [shared], { reconciler: 'g' })
    await test.queue.enqueue('g', 'n.a')
    await until(() => expect(mate.starts).toHaveLength(1))
    const { starts, worker } = serve(test.queue, [rateOf(SLOW, 3), shared])
    await test.queue.enqueue(FN, 'n.a')
    await untilLimited(test)
    expect(await stored(test, 'key._rate.>')).toEqual(['key._rate.team/shop'])
    expect(starts).toEqual([])
    await Promise.all([mate.worker, worker].map((each) => each.drain(1000)))
  })

  it('shows a Reconciler as served while all its keys wait for a run, and not when its worker has ended', async () => {
    await using test = await open()
    await test.queue.declare('g')
    const shared = { name: 'team/shop', limits: [FN, 'g'], perSecond: SLOW, burst: 2 } satisfies RunRate
    for (const key of keysNamed('k', 8))
      for (const reconciler of [FN, 'g'])
        for (const lane of ['high', 'low'] as const) await test.queue.enqueue(reconciler, key, { lane })
    const one = serve(test.queue, [rateOf(SLOW, 5), shared])
    const mate = serve(test.queue, [shared], { reconciler: 'g' })
    for (const reconciler of [FN, 'g']) {
      await untilLimited(test, reconciler)
      await until(async () => expect(await test.queue.depth(reconciler)).toMatchObject({ running: 0 }))
      expect(await test.queue.isServed(reconciler)).toBe(true)
    }
    await one.worker.drain(1000)
    await until(async () => expect(await test.queue.isServed(FN)).toBe(false))
    expect(await test.queue.isServed('g')).toBe(true)
    await mate.worker.drain(1000)
  })

  it('stores nothing and asks for nothing without a rate, nor with one while nothing waits', async () => {
    await using test = await open()
    const rates = () => stored(test, 'key._rate.*')
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
