import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Entry, Finish, QueueOptions } from '#queue'
import { bucketFor, bucketIn, bucketOf, isIn, keyOf, opensAt, slotOf } from '../../streams/queue/core.ts'
import { TIMERS } from '../../streams/queue/wire.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  inMs,
  keysNamed,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

describe('the bucket of a timer', () => {
  const time = fc.integer({ min: 1.7e12, max: 5e12 })
  const ahead = fc.integer({ min: -1e6, max: 3.2e12 })

  it('opens after the moment asked for and a second before the timer, and the nearest have none', () => {
    fc.assert(
      fc.property(time, ahead, (from, ms) => {
        const at = from + ms
        const bucket = bucketFor(at, from)
        if (bucket === undefined) return ms <= 9000
        const isOpenInTime = opensAt(bucket) > from && opensAt(bucket) + 1000 <= at
        const isFound = isIn(at, bucket) && keyOf(bucketIn(slotOf(bucket), at)) === keyOf(bucket)
        return isOpenInTime && isFound && keyOf(bucketOf(keyOf(bucket))) === keyOf(bucket)
      }),
    )
  })

  it('leads to narrower ones, until the server has the timer: after eight moves at most within half a year', () => {
    fc.assert(
      fc.property(time, fc.integer({ min: 0, max: 1.5e10 }), (from, ms) => {
        const at = from + ms
        let moves = 0
        for (let bucket = bucketFor(at, from); bucket; bucket = bucketFor(at, opensAt(bucket))) moves++
        expect(moves).toBeLessThanOrEqual(8)
      }),
    )
  })

  it('has one of at most 56 slots', () => {
    const slots = new Set<string>()
    const from = 1.8e12
    for (let ms = 1; ms < 1e13; ms *= 1.003) {
      const bucket = bucketFor(from + ms, from)
      if (bucket) slots.add(slotOf(bucket))
    }
    expect(slots.size).toBeLessThanOrEqual(56)
  })
})

const { nats, open } = useTestNats()
/** Later than the lease, and than timers that are too near to sleep. */
const AHEAD_MS = 12_000
const ALL_SLEEP: Partial<QueueOptions> = { armedLimit: 0 }
const keys = keysNamed('k', 40)

/** How many of these timers the server itself would fire. */
const armedIn = async ({ js, queue }: TestQueue, prefix: string) =>
  (await js.count(queue.stream, `${prefix}.key.${FN}.w.>`)).count

/** A first run of each key asks for that time; what fires ends it. */
const timersDue =
  (at: Date) =>
  ({ fired }: { fired: boolean }): Finish =>
    fired ? DONE : { kind: 'requeue', at }

async function asleep(test: TestQueue, prefix: string, names: readonly string[], at: Date): Promise<void> {
  const worker = new World().serve(test.queue, timersDue(at))
  for (const key of names) await test.queue.enqueue(FN, key)
  await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, waiting: names.length }))
  expect(await armedIn(test, prefix)).toBe(0)
  await worker.drain(1000)
}

describe('timers beyond what the server is to carry', () => {
  it.concurrent('sleep, and fire when they are due, once each', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix, ALL_SLEEP)
    const at = inMs(AHEAD_MS)
    await asleep(test, prefix, keys, at)
    const world = new World()
    const early: string[] = []
    const worker = world.serve(test.queue, ({ key }) => {
      if (Date.now() < at.getTime() - 50) early.push(key)
      return DONE
    })
    await until(() => expect(world.starts.toSorted()).toEqual(keys.toSorted()))
    expect(early).toEqual([])
    expect(world.leases.every(({ fired }) => fired)).toBe(true)
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('that the server can carry stay with it', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const worker = new World().serve(test.queue, timersDue(inMs(AHEAD_MS)))
    await test.queue.enqueue(FN, 'n.a')
    await until(async () => expect(await armedIn(test, prefix)).toBe(1))
    await worker.drain(1000)
  })

  it('are not due in one instant after an outage of NATS', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix, ALL_SLEEP)
    const at = inMs(AHEAD_MS)
    await asleep(test, prefix, keys, at)
    nats().signal('SIGKILL')
    await until(() => expect(Date.now()).toBeGreaterThan(at.getTime()))
    await nats().restart()
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, waiting: keys.length }))
    const world = new World()
    const worker = world.serve(test.queue)
    await until(() => expect(world.starts.toSorted()).toEqual(keys.toSorted()))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it.concurrent('are woken by another process when the one that opens their bucket is lost', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix, ALL_SLEEP)
    const lost = Promise.withResolvers<void>()
    await using dying = await open(prefix, {
      ...ALL_SLEEP,
      onIo: async (io, key) => {
        if (io.do !== 'publish' || io.message.role !== 'record' || !key.startsWith('n.k')) return
        lost.resolve()
        await dying.js.close()
      },
    })
    await asleep(test, prefix, keys, inMs(AHEAD_MS))
    new World().serve(dying.queue)
    await lost.promise
    const world = new World()
    const worker = world.serve(test.queue)
    await until(() => expect(world.starts.toSorted()).toEqual(keys.toSorted()))
    await worker.drain(1000)
  })

  it.concurrent('are found by the janitor when nobody has opened their bucket', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix, ALL_SLEEP)
    const at = inMs(AHEAD_MS)
    await asleep(test, prefix, keys, at)
    await test.js.admin.streams.purge(test.queue.stream, { filter: `${prefix}.key._timers.>` })
    await until(() => expect(Date.now()).toBeGreaterThan(at.getTime()))
    const world = new World()
    const worker = world.serve(test.queue)
    await test.queue.janitor(FN).pass()
    await until(() => expect(world.starts.toSorted()).toEqual(keys.toSorted()))
    await worker.drain(1000)
  })
})

it('timers that nobody has woken are found in seven looks of the janitor, behind as many as sleep longer', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix, ALL_SLEEP)
  const far = keysNamed('far', 100)
  const near = inMs(AHEAD_MS)
  const hour = inMs(3_600_000)
  const planning = new World().serve(test.queue, ({ key }) => ({
    kind: 'requeue',
    at: far.includes(key) ? hour : near,
  }))
  for (const [count, some] of [
    [far.length, far],
    [far.length + keys.length, keys],
  ] as const) {
    for (const key of some) await test.queue.enqueue(FN, key)
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, waiting: count }))
  }
  await planning.drain(1000)
  await test.js.admin.streams.purge(test.queue.stream, { filter: `${prefix}.key._timers.>` })
  await until(() => expect(Date.now()).toBeGreaterThan(near.getTime()))
  const janitor = test.queue.janitor(FN, 10)
  for (let look = 0; look < 7; look++) await janitor.pass()
  expect((await test.js.count(test.queue.stream, `${prefix}.work._timers.high.>`)).count).toBeGreaterThan(0)
})

describe('a key whose timer sleeps', () => {
  const sleeping = async () => {
    const prefix = freshPrefix()
    const test = await open(prefix, ALL_SLEEP)
    const at = inMs(3_600_000)
    await asleep(test, prefix, ['n.a'], at)
    return { test, at }
  }

  it('is listed as any that waits, and its bucket is nobody’s business', async () => {
    const { test, at } = await sleeping()
    await using _ = test
    const [entry, ...others] = (await entriesOf(test.queue)) as (Entry & { state: 'waiting' })[]
    expect(others).toEqual([])
    expect(entry).toMatchObject({ key: 'n.a', state: 'waiting', reason: 'Requeue' })
    expect(Math.abs(entry!.until.getTime() - at.getTime())).toBeLessThan(50)
    expect(await Array.fromAsync(test.queue.list({ states: ['waiting'] }))).toHaveLength(1)
    expect(await Array.fromAsync(test.queue.list({ states: ['parked', 'running'] }))).toEqual([])
    expect(await test.queue.reconcilers()).toEqual([FN])
    expect(await test.queue.depth(FN)).toEqual({ queued: 0, running: 0, waiting: 1, parked: 0 })
  })

  it('runs at once when it changes, and leaves only the alarm of its bucket', async () => {
    const { test } = await sleeping()
    await using _ = test
    const world = new World()
    const worker = world.serve(test.queue)
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
    const left = await Array.fromAsync(test.js.scan(test.queue.stream, '*.key.>'))
    expect(left.map(({ subject }) => subject.split('.')[2])).toEqual(['_timers'])
  })

  it.each(['retry', 'park', 'purge'] as const)('can be acted upon by hand: %s', async (act) => {
    const { test } = await sleeping()
    await using _ = test
    const outcome = { retry: 'queued', park: 'parked', purge: 'purged' } as const
    expect(await test.queue[act]({ reconciler: FN, key: 'n.a' })).toBe(outcome[act])
    expect(await statesOf(test.queue)).toEqual(act === 'purge' ? [] : [`n.a ${outcome[act]}`])
  })
})

it('when a schedule of now has fired, the server has tried all earlier ones: so the janitor knows what it has given up', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix)
  const { js } = test
  const due = new Date((await js.serverTime(test.queue.stream)) + 3000).toISOString()
  const schedule = (subject: string, target: string) =>
    js.publish(`${prefix}.${subject}`, '', {
      'Nats-Schedule': `@at ${due}`,
      'Nats-Schedule-Target': `${prefix}.${target}`,
    })
  await Promise.all(keysNamed('k', 1000).map((key) => schedule(`key.${FN}.w.${key}.x-0`, `work.${FN}.high.${key}`)))
  await schedule('done.probe', 'done.fired')
  await until(async () => expect(await js.lastOf(test.queue.stream, `${prefix}.done.fired`)).toBeDefined())
  expect((await js.count(test.queue.stream, `${prefix}.work.${FN}.high.>`)).count).toBe(1000)
})

it('buckets have a name that no function can have', async () => {
  await using test = await open()
  await expect(test.queue.declare(TIMERS.replace('.', '_'))).rejects.toThrow('Reconciler name')
})
