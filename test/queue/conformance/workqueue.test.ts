/**
 * The laws of client-go's util/workqueue, each with the name of the upstream test that states it. A law that a queue
 * outside of the process cannot keep states the law that holds instead; docs/decisions/0011-conformance.md contains the
 * reason.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import type { Finish, Lease, QueueObserver } from '#queue'
import { type BackoffTerms, backoffMs } from '../../../streams/queue/types.ts'
import { seededRandom } from '../../support/random.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  HeldRuns,
  inMs,
  inOneHour,
  keysNamed,
  pausedWork,
  statesOf,
  until,
  useTestNats,
  World,
} from '../support.ts'

const random = seededRandom('jitter of workqueue.test.ts')
const { open } = useTestNats()

describe('queue.go', () => {
  it('every key that 50 producers add is run by 10 consumers, and none after the drain (TestBasic)', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const world = new World()
    const workers = Array.from({ length: 10 }, (_, index) => world.serve((index % 2 ? a : b).queue, undefined, 1))
    const produce = async (key: string) => {
      for (let added = 0; added < 10; added++) await world.change(a.queue, key)
    }
    await Promise.all(keysNamed('k', 50).map(produce))
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(a.queue)).toEqual([]))
    await Promise.all(workers.map((worker) => worker.drain(1000)))
    const started = world.starts.length
    await world.change(a.queue, 'n.late')
    await until(async () => expect(await statesOf(a.queue)).toEqual(['n.late queued']))
    expect([world.starts.length, world.overlaps]).toEqual([started, []])
  })

  it('a key added while it runs runs again; none is lost, none is left (TestAddWhileProcessing)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, async ({ key }) => {
      if (world.runsOf(key) === 1) await world.change(test.queue, key)
      return DONE
    })
    await Promise.all(keysNamed('k', 50).map((key) => world.change(test.queue, key)))
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('the length is the number of distinct queued keys (TestLen)', async () => {
    await using test = await open()
    const length = async () => (await test.queue.depth(FN)).queued
    for (const [key, expected] of [
      ['n.foo', 1],
      ['n.bar', 2],
      ['n.foo', 2],
    ] as const) {
      await test.queue.enqueue(FN, key)
      expect(await length()).toBe(expected)
    }
  })

  it('a key added during its run is handed out once more, then the queue is empty (TestReinsert)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, async ({ key }) => {
      if (world.starts.length === 1) await world.change(test.queue, key)
      return DONE
    })
    await world.change(test.queue, 'n.foo')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(world.starts).toEqual(['n.foo', 'n.foo'])
    await worker.drain(1000)
  })

  it('adds while a key is queued collapse, and its run sees the last of them (TestCollapse)', async () => {
    await using test = await open()
    const world = new World()
    const results = []
    for (let added = 0; added < 3; added++) results.push(await world.change(test.queue, 'n.bar'))
    expect(results).toEqual(['queued', 'coalesced', 'coalesced'])
    const worker = world.serve(test.queue)
    await until(() => expect(world.dealtWith.get('n.bar')).toBe(3))
    await worker.drain(1000)
    expect(world.starts).toEqual(['n.bar'])
  })

  it('two adds during a run are one more run, and nobody gets the key before (TestCollapseWhileProcessing)', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const world = new World()
    const paused = pausedWork()
    const workers = [world.serve(a.queue, paused.work, 1), world.serve(b.queue, paused.work, 1)]
    await world.change(a.queue, 'n.foo')
    await paused.began
    await world.change(a.queue, 'n.foo')
    await world.change(a.queue, 'n.foo')
    await until(async () => expect(await entriesOf(a.queue)).toContainEqual(expect.objectContaining({ dirty: true })))
    expect(world.starts).toEqual(['n.foo'])
    paused.letGo()
    await until(async () => expect(await statesOf(a.queue)).toEqual([]))
    expect([world.starts, world.overlaps]).toEqual([['n.foo', 'n.foo'], []])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })

  it('a drain waits for all that is in flight (TestQueueDrainageUsingShutDownWithDrain)', async () => {
    await using test = await open()
    const held = new HeldRuns()
    const worker = new World().serve(test.queue, held.run)
    for (const key of keysNamed('k', 2)) await test.queue.enqueue(FN, key)
    await until(() => expect(held.running).toHaveLength(2))
    let drained = false
    const drain = worker.drain(30_000).then(() => (drained = true))
    await test.queue.depth(FN)
    expect(drained).toBe(false)
    held.letGo()
    await drain
    expect(await statesOf(test.queue)).toEqual([])
  })

  it('a drain without grace does not wait, and hands back what runs (TestNoQueueDrainageUsingShutDown)', async () => {
    await using test = await open()
    const held = new HeldRuns()
    const worker = new World().serve(test.queue, held.run)
    for (const key of keysNamed('k', 2)) await test.queue.enqueue(FN, key)
    await until(() => expect(held.running).toHaveLength(2))
    const leases = [...held.running]
    await worker.drain(0)
    expect(leases.map(({ signal }) => signal.aborted)).toEqual([true, true])
    expect((await statesOf(test.queue)).sort()).toEqual(['n.k0 queued', 'n.k1 queued'])
  })

  it('a second drain with less grace ends the first (TestForceQueueShutdownUsingShutDown)', async () => {
    await using test = await open()
    const held = new HeldRuns()
    const worker = new World().serve(test.queue, held.run)
    await test.queue.enqueue(FN, 'n.k')
    await until(() => expect(held.running).toHaveLength(1))
    const patient = worker.drain(600_000)
    await worker.drain(0)
    await patient
    expect(await statesOf(test.queue)).toEqual(['n.k queued'])
  })

  it('a key that got dirty while draining is run, by whoever serves next (TestQueueDrainageUsingShutDownWithDrainWithDirtyItem)', async () => {
    await using test = await open()
    const world = new World()
    const paused = pausedWork()
    const worker = world.serve(test.queue, paused.work)
    await world.change(test.queue, 'n.k')
    await paused.began
    await world.change(test.queue, 'n.k')
    const drain = worker.drain(30_000)
    paused.letGo()
    await drain
    expect(await statesOf(test.queue)).toEqual(['n.k queued'])
    const next = world.serve(test.queue)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await next.drain(1000)
  })

  it('a key that was handed out is released from memory (TestGarbageCollection)', async () => {
    await using test = await open()
    const leases: WeakRef<Lease>[] = []
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 16,
      handler: async (lease) => {
        leases.push(new WeakRef(lease))
        return DONE
      },
    })
    for (const key of keysNamed('k', 50)) await test.queue.enqueue(FN, key)
    await until(() => expect(leases).toHaveLength(50))
    setFlagsFromString('--expose-gc')
    const collectGarbage = runInNewContext('gc') as () => void
    await until(() => {
      collectGarbage()
      expect(leases.filter((lease) => lease.deref() !== undefined)).toEqual([])
    })
    await worker.drain(1000)
  })
})

describe('delaying_queue.go', () => {
  it('a key asked for later comes once and not before (TestSimpleQueue)', async () => {
    await using test = await open()
    const at = inMs(300)
    const fired: number[] = []
    const world = new World()
    const worker = world.serve(test.queue, (lease) => {
      if (!lease.fired) return { kind: 'requeue', at }
      fired.push(Date.now())
      return DONE
    })
    await world.change(test.queue, 'n.foo')
    await until(async () => expect([fired.length, await statesOf(test.queue)]).toEqual([1, []]))
    expect(fired[0]).toBeGreaterThanOrEqual(at.getTime() - 20)
    await worker.drain(1000)
  })

  it('one timer per key, the latest result’s: an earlier and a later one both replace it (TestDeduping)', async () => {
    await using test = await open()
    const world = new World()
    const times: Date[] = [inOneHour(), inMs(250), inOneHour()]
    const worker = world.serve(test.queue, () => ({ kind: 'requeue', at: times.shift() ?? inOneHour() }))
    await world.change(test.queue, 'n.foo')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.foo waiting']))
    await world.change(test.queue, 'n.foo')
    await until(() => expect(world.leases.map(({ fired }) => fired)).toEqual([false, false, true]))
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.foo waiting']))
    await worker.drain(1000)
  })

  it('of two keys the one that is due earlier comes first, whichever was asked for first (TestAddTwoFireEarly)', async () => {
    const fired = await firedInTurn({ 'n.foo': 350, 'n.bar': 0 })
    expect(fired).toEqual(['n.bar', 'n.foo'])
  })

  it('timers armed in any order come in the order of their times, if those are 250 ms apart (TestCopyShifting)', async () => {
    const fired = await firedInTurn({ 'n.d': 900, 'n.a': 0, 'n.c': 600, 'n.b': 300 })
    expect(fired).toEqual(['n.a', 'n.b', 'n.c', 'n.d'])
  })

  it('an add does away with the timer: no second, needless run when it would have been due', async () => {
    await using test = await open()
    const world = new World()
    const at = inMs(400)
    const worker = world.serve(test.queue, () => (world.starts.length === 1 ? { kind: 'requeue', at } : DONE))
    await world.change(test.queue, 'n.foo')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.foo waiting']))
    await world.change(test.queue, 'n.foo')
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await until(() => expect(Date.now()).toBeGreaterThan(at.getTime() + 100))
    expect(world.starts).toEqual(['n.foo', 'n.foo'])
    await worker.drain(1000)
  })
})

describe('rate limiters', () => {
  const terms = (more: Partial<BackoffTerms> = {}): BackoffTerms => ({
    initialSeconds: 0.001,
    maxSeconds: 1000,
    jitter: 0,
    ...more,
  })
  const delays = (attempts: number[], more?: Partial<BackoffTerms>) =>
    attempts.map((attempt) => backoffMs(attempt, terms(more), random))

  it('1, 2, 4, 8, 16 ms (TestItemExponentialFailureRateLimiter)', () => {
    expect(delays([0, 1, 2, 3, 4])).toEqual([1, 2, 4, 8, 16])
  })
  it('a thousand failures stop at the longest delay (TestItemExponentialFailureRateLimiterOverFlow)', () => {
    expect(delays([5, 9, 1000, Number.MAX_SAFE_INTEGER])).toEqual([32, 512, 1_000_000, 1_000_000])
  })
  it('no delay is longer than the longest (TestWithMaxWaitRateLimiter)', () => {
    expect(delays([0, 5, 15], { maxSeconds: 0.02 })).toEqual([1, 20, 20])
  })

  it('keys fail independently, each later every time, and a success forgets (TestRateLimitingQueue)', async () => {
    await using test = await open()
    const world = new World()
    const failuresOf: Record<string, number> = { 'n.one': 1, 'n.two': 3 }
    const attempts: Record<string, number[]> = { 'n.one': [], 'n.two': [] }
    const worker = world.serve(test.queue, ({ key, attempt }): Finish => {
      attempts[key]!.push(attempt)
      if (attempts[key]!.length > failuresOf[key]!) return DONE
      const retryAt = inMs(backoffMs(attempt, terms({ initialSeconds: 0.05 }), random))
      return { kind: 'error', message: 'not yet', retryAt }
    })
    for (const key of ['n.one', 'n.two']) await world.change(test.queue, key)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    for (const key of ['n.one', 'n.two']) await world.change(test.queue, key)
    await until(() => expect(attempts).toEqual({ 'n.one': [0, 1, 0], 'n.two': [0, 1, 2, 3, 0] }))
    await worker.drain(1000)
  })

  it('whoever handles a key may limit by other rules: the attempt is all that they need (TestItemFastSlowRateLimiter, TestMaxOfRateLimiter)', async () => {
    await using test = await open()
    const world = new World()
    const fastSlow = (attempt: number) => (attempt < 3 ? 10 : 3_600_000)
    const floor = () => 20
    const worker = world.serve(test.queue, ({ attempt }) => {
      const ms = Math.max(fastSlow(attempt), floor())
      return { kind: 'error', message: 'no', retryAt: inMs(ms) }
    })
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', attempt: 4 }]))
    expect(world.leases.map(({ attempt }) => attempt)).toEqual([0, 1, 2, 3])
    await worker.drain(1000)
  })
})

describe('metrics.go', () => {
  function counting() {
    const seen: string[] = []
    const observer: QueueObserver = {
      onEnqueue: (reconciler, result) => seen.push(`${reconciler} ${result}`),
      onTake: () => seen.push('taken'),
      onFinish: (_, kind) => seen.push(kind),
    }
    return { seen, observer, count: (what: string) => seen.filter((one) => one === what).length }
  }

  it('adds, takes and ends are counted once each; five adds during a run are one run more (TestMetrics)', async () => {
    const { count, observer } = counting()
    await using test = await open(undefined, { observer })
    const paused = pausedWork()
    const worker = new World().serve(test.queue, paused.work, 1)
    await test.queue.enqueue(FN, 'n.foo')
    await paused.began
    for (let added = 0; added < 5; added++) await test.queue.enqueue(FN, 'n.foo')
    expect([count('f queued'), count('f coalesced'), count('taken')]).toEqual([2, 4, 1])
    paused.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await until(() => expect([count('taken'), count('done')]).toEqual([2, 2]))
    await worker.drain(1000)
  })

  it('nothing is counted after the drain (TestMetricShutdown)', async () => {
    const { seen, observer } = counting()
    await using test = await open(undefined, { observer })
    const worker = new World().serve(test.queue)
    await test.queue.enqueue(FN, 'n.foo')
    await until(() => expect(seen).toEqual(['f queued', 'taken', 'done']))
    await worker.drain(1000)
    await test.queue.enqueue(FN, 'n.bar')
    await test.queue.depth(FN)
    expect(seen).toEqual(['f queued', 'taken', 'done', 'f queued'])
  })
})

/**
 * Sets the timers of keys, in milliseconds from a time in the future, and returns the keys in the order in which their
 * timers started runs. A machine that sets the last timer after the first is due gets another try with more time.
 */
async function firedInTurn(afterMs: Record<string, number>): Promise<string[]> {
  for (let leadMs = 500; ; leadMs *= 2) {
    await using test = await open()
    const start = Date.now() + leadMs
    const fired: string[] = []
    const world = new World()
    const setter = world.serve(test.queue, ({ key, fired: isDue }) => {
      if (isDue) fired.push(key)
      return isDue ? DONE : { kind: 'requeue', at: new Date(start + afterMs[key]!) }
    })
    const keys = Object.keys(afterMs)
    await Promise.all(keys.map((key) => world.change(test.queue, key)))
    await until(() => expect(world.starts).toEqual(expect.arrayContaining(keys)))
    const waiting = async () => (await statesOf(test.queue)).filter((state) => state.endsWith('waiting')).length
    const areSet = (await waiting()) === keys.length && Date.now() < start
    await until(() => expect(fired).toHaveLength(keys.length))
    await setter.drain(1000)
    if (areSet) return fired
  }
}
