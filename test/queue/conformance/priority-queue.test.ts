/**
 * The laws of controller-runtime's priority queue, with the names of its tests. Two lanes stand for the priorities: high
 * for changes and timers, low for initial lists and resync. See docs/decisions/0011-conformance.md for what differs.
 */
import { describe, expect, it } from 'vitest'
import type { Finish, Lane } from '#queue'
import { randomFrom } from '../../support/random.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  gate,
  HeldRuns,
  inMs,
  inOneHour,
  keysNamed,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from '../support.ts'

const { open } = useTestNats()
const idle = ({ queue }: TestQueue) => until(async () => expect(await statesOf(queue)).toEqual([]))

/** Enqueues in this order, has one worker with one slot run them all, and gives the order of the runs. */
async function orderOfRuns(test: TestQueue, enqueues: [string, Lane][]): Promise<string[]> {
  const world = new World()
  for (const [key, lane] of enqueues) await world.change(test.queue, key, lane)
  const worker = world.serve(test.queue, undefined, 1)
  await idle(test)
  await worker.drain(1000)
  expect(world.dealtWith).toEqual(world.versions)
  return world.starts
}

describe('order', () => {
  it('a key that is added is run (returns an item)', async () => {
    await using test = await open()
    expect(await orderOfRuns(test, [['n.foo', 'high']])).toEqual(['n.foo'])
  })

  it('one worker with one slot runs the keys of a lane in their order (returns items in order)', async () => {
    await using test = await open()
    const keys = keysNamed('k', 10)
    expect(
      await orderOfRuns(
        test,
        keys.map((key) => [key, 'high']),
      ),
    ).toEqual(keys)
  })

  it('each key once, however often it was added (de-duplicates items)', async () => {
    await using test = await open()
    const twice = ['n.foo', 'n.bar', 'n.foo', 'n.bar']
    expect(
      await orderOfRuns(
        test,
        twice.map((key) => [key, 'high']),
      ),
    ).toEqual(['n.foo', 'n.bar'])
  })

  it('many keys, each once (returns many items)', async () => {
    await using test = await open()
    const world = new World()
    await Promise.all(keysNamed('k', 300).map((key) => world.change(test.queue, key)))
    const workers = [0, 1].map(() => world.serve(test.queue))
    await idle(test)
    expect(world.starts.toSorted()).toEqual(keysNamed('k', 300).sort())
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })

  it('a key in both lanes runs with the higher one, and once more at most (retains the highest priority)', async () => {
    await using test = await open()
    const order = await orderOfRuns(test, [
      ...keysNamed('low', 8).map((key): [string, Lane] => [key, 'low']),
      ['n.both', 'low'],
      ['n.both', 'high'],
    ])
    expect(order.indexOf('n.both')).toBeLessThanOrEqual(1)
    expect(order.filter((key) => key === 'n.both').length).toBeLessThanOrEqual(2)
  })

  it('an add to the low lane takes nothing from a key in the high one (will not decrease the priority of an item)', async () => {
    await using test = await open()
    const order = await orderOfRuns(test, [
      ['n.both', 'high'],
      ...keysNamed('low', 8).map((key): [string, Lane] => [key, 'low']),
      ['n.both', 'low'],
    ])
    expect(order.indexOf('n.both')).toBeLessThanOrEqual(1)
    expect(order.filter((key) => key === 'n.both').length).toBeLessThanOrEqual(2)
  })

  it('a change of a key that waits behind an initial list goes before it (gets pushed to the front if the priority increases, follows FIFO order when item priority changes)', async () => {
    await using test = await open()
    const list = keysNamed('low', 12)
    const order = await orderOfRuns(test, [
      ...list.map((key): [string, Lane] => [key, 'low']),
      [list[9]!, 'high'],
      [list[7]!, 'high'],
    ])
    const raised = order.filter((key) => key === list[9] || key === list[7]).slice(0, 2)
    expect(raised).toEqual([list[9], list[7]])
    expect(order.indexOf(list[7]!)).toBeLessThanOrEqual(4)
  })

  it('changes go first again and again, three runs of four (TestHighPriorityItemsAreReturnedBeforeLowPriorityItemMultipleTimes)', async () => {
    await using test = await open()
    const world = new World()
    const lanes: Lane[] = []
    const high = keysNamed('high', 40)
    for (const key of keysNamed('low', 40)) await world.change(test.queue, key, 'low')
    for (const key of high) await world.change(test.queue, key, 'high')
    const worker = world.serve(
      test.queue,
      async ({ lane }) => {
        lanes.push(lane)
        await new Promise((resolve) => setTimeout(resolve, 3))
        return DONE
      },
      4,
    )
    await idle(test)
    const early = lanes.slice(8, 40).filter((lane) => lane === 'high')
    expect(early.length).toBeGreaterThanOrEqual(20)
    await worker.drain(1000)
  })
})

describe('a key that runs', () => {
  it('is not handed out, and is as soon as its run has ended (doesn’t return an item that is currently locked, returns an item as soon as its unlocked, enqueues a locked item)', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const world = new World()
    const held = new HeldRuns()
    const workers = [world.serve(a.queue, held.run, 2), world.serve(b.queue, held.run, 2)]
    await world.change(a.queue, 'n.foo')
    await until(() => expect(held.running).toHaveLength(1))
    await world.change(a.queue, 'n.foo')
    await until(async () => expect(await entriesOf(a.queue)).toMatchObject([{ state: 'running', dirty: true }]))
    expect(world.starts).toEqual(['n.foo'])
    held.letGo()
    await idle(a)
    expect([world.starts, world.overlaps]).toEqual([['n.foo', 'n.foo'], []])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })
})

describe('a key that waits', () => {
  /** Serves the key once, so that it waits as its run requested. Afterwards no worker serves it. */
  async function letWait(test: TestQueue, finish: () => Finish, key = 'n.foo'): Promise<void> {
    const worker = test.queue.serve({ reconciler: FN, slots: 1, handler: async () => finish() })
    await test.queue.enqueue(FN, key)
    await until(async () => expect(await statesOf(test.queue)).toContain(`${key} waiting`))
    await worker.drain(1000)
  }

  it('runs at once when it is added (retains the lowest after duration, TestWaitingItemIsReturnedRightAfterReadWithoutAfter, TestItemIsReturnedAsSoonAsPossible)', async () => {
    await using test = await open()
    await letWait(test, () => ({ kind: 'requeue', at: inOneHour() }))
    expect(await orderOfRuns(test, [['n.foo', 'high']])).toEqual(['n.foo'])
  })

  it('is not in the length before its time, and is then (doesn’t include non-ready items in Len(), TestItemsAreInludedInLenAndMetricsOnceTheyAreReady)', async () => {
    await using test = await open()
    await letWait(test, () => ({ kind: 'requeue', at: inMs(400) }))
    expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, waiting: 1 })
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 1, waiting: 0 }))
  })

  it('and has come due is one key in the queue, also if it is added again (TestMetricsAreUpdatedForItemWhoseRequeueAfterExpiredThatGetsAddedAgainWithoutRequeueAfter)', async () => {
    await using test = await open()
    await letWait(test, () => ({ kind: 'requeue', at: inMs(300) }))
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 1, waiting: 0 }))
    expect(await test.queue.enqueue(FN, 'n.foo')).toBe('coalesced')
    expect(await test.queue.depth(FN)).toMatchObject({ queued: 1, waiting: 0 })
  })

  it('is not run before its time, and several are in the order of their times (TestItemIsOnlyReturnedAfterAfterHasPassed, TestMultipleItemsWithAfterAreReturnedInCorrectOrder)', async () => {
    await using test = await open()
    const start = Date.now()
    const due = new Map(keysNamed('k', 3).map((key, index) => [key, start + 1300 - 400 * index]))
    const early: string[] = []
    const world = new World()
    const worker = world.serve(test.queue, ({ key, fired }) => {
      if (!fired) return { kind: 'requeue', at: new Date(due.get(key)!) }
      if (Date.now() < due.get(key)! - 20) early.push(key)
      return DONE
    })
    for (const key of due.keys()) await world.change(test.queue, key)
    await idle(test)
    expect(world.starts.slice(3)).toEqual(['n.k2', 'n.k1', 'n.k0'])
    expect(early).toEqual([])
    await worker.drain(1000)
  })

  it('comes due in the high lane: before initial lists (TestHighPriorityItemThatBecameReadyIsReturnedBeforeLowPriorityItem)', async () => {
    await using test = await open()
    await letWait(test, () => ({ kind: 'requeue', at: inMs(300) }), 'n.timer')
    for (const key of keysNamed('low', 8)) await test.queue.enqueue(FN, key, { lane: 'low' })
    await until(async () => expect(await statesOf(test.queue)).toContain('n.timer queued'))
    const world = new World()
    const worker = world.serve(test.queue, undefined, 1)
    await idle(test)
    expect(world.starts.indexOf('n.timer')).toBeLessThanOrEqual(1)
    await worker.drain(1000)
  })

  it('for its backoff delays no other (TestWhenAddingMultipleItemsWithRatelimitTrueTheyDontAffectEachOther)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, ({ key }) =>
      key === 'n.bad' ? { kind: 'error', message: 'no', retryAt: inOneHour() } : DONE,
    )
    await world.change(test.queue, 'n.bad')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.bad waiting']))
    for (const key of keysNamed('good', 20)) await world.change(test.queue, key)
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.bad waiting']))
    expect(world.dealtWith).toEqual(world.versions)
    await worker.drain(1000)
  })
})

describe('the end', () => {
  it('an idle worker stops at once (TestGetFromPriorityQueueIsUnblockedOnShutdown, does not get stuck when the queue is shut down)', async () => {
    await using test = await open()
    const worker = new World().serve(test.queue)
    await test.queue.depth(FN)
    await worker.drain(600_000)
  })

  it('in the middle of handing out: every key has been run or is queued (TestPriorityQueueDoesNotDeadlockOnShutdownWhileHandingOutItems, and what upstream drops: drain on shutdown)', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, undefined, 4)
    const keys = keysNamed('k', 200)
    const adding = Promise.all(keys.map((key, index) => world.change(test.queue, key, index % 3 ? 'high' : 'low')))
    await until(() => expect(world.starts.length).toBeGreaterThan(5))
    await worker.drain(5000)
    await adding
    const left = (await entriesOf(test.queue)).map(({ key, state }) => `${key} ${state}`).sort()
    const notRun = keys.filter((key) => !world.dealtWith.has(key)).map((key) => `${key} queued`)
    expect(left).toEqual(notRun.sort())
  })
})

it('whatever is done in whatever order: one holder, nothing lost, nothing left (TestFuzzPriorityQueue)', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31)
  const random = randomFrom(seed)
  const prefix = freshPrefix()
  await using a = await open(prefix)
  await using b = await open(prefix)
  const world = new World()
  const stop = gate()
  let stopped = false
  void stop.opened.then(() => (stopped = true))
  const work = async (): Promise<Finish> => {
    await new Promise((resolve) => setTimeout(resolve, random() * 4))
    const die = random()
    if (stopped || die < 0.6) return DONE
    if (die < 0.75) return { kind: 'requeue', at: inMs(random() * 50) }
    if (die < 0.9) return { kind: 'error', message: 'dice', retryAt: inMs(random() * 50) }
    if (die < 0.95) return { kind: 'terminal', message: 'dice' }
    throw new Error('dice')
  }
  const workers = [1, 3, 8].map((slots, index) => world.serve((index % 2 ? a : b).queue, work, slots))
  const keys = keysNamed('k', 12)
  const add = async ({ queue }: TestQueue) => {
    for (let i = 0; i < 250; i++)
      await world.change(queue, keys[Math.floor(random() * keys.length)]!, random() < 0.7 ? 'high' : 'low')
  }
  await Promise.all([add(a), add(b)])
  stop.open()
  for (const key of keys) await world.change(a.queue, key)
  try {
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await idle(a)
    expect(world.overlaps).toEqual([])
  } catch (cause) {
    throw new Error(`seed ${seed}`, { cause })
  }
  await Promise.all(workers.map((worker) => worker.drain(1000)))
})
