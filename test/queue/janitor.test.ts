import { describe, expect, it, vi } from 'vitest'
import type { Entry } from '#queue'
import {
  DONE,
  entriesOf,
  FN,
  fence,
  freshPrefix,
  inMs,
  keysNamed,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

const { open } = useTestNats()
const MONTH_MS = 30 * 24 * 3_600_000
const RECONCILERS = Array.from({ length: 30 }, (_, number) => `r${number}`)

interface Stored {
  reconciler?: string
  key: string
  at: Date
  /** The state in the subject, with the slot of a timer that sleeps. */
  front?: string
}

/** Stores a timer with a schedule that is 30 days late: as earlier versions did, or as one that the server gave up. */
const store = ({ js }: TestQueue, prefix: string, { reconciler = FN, key, at, front = 'w' }: Stored) =>
  js.publish(`${prefix}.key.${reconciler}.${front}.${key}.owner-0`, '', {
    'Fairlead-State': 'waiting',
    'Fairlead-Owner': 'owner',
    'Fairlead-Since': Date.now(),
    'Fairlead-Reason': 'Requeue',
    'Fairlead-Due': at.getTime(),
    'Nats-Schedule': `@at ${new Date(at.getTime() + MONTH_MS).toISOString()}`,
    'Nats-Schedule-Target': `${prefix}.work.${reconciler}.high.${key}`,
  })

it('the janitor of a process reads the records of all Reconcilers together, and finds what is overdue of each of them', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix)
  for (const reconciler of RECONCILERS) {
    await test.queue.declare(reconciler)
    await store(test, prefix, { reconciler, key: 'n.a', at: inMs(-1000) })
  }
  const scan = vi.spyOn(test.js, 'scan')
  const fired = new Set<string>()
  const workers = RECONCILERS.map((reconciler) =>
    test.queue.serve({
      reconciler,
      slots: 4,
      handler: async (lease) => {
        if (lease.fired) fired.add(reconciler)
        return DONE
      },
    }),
  )
  await until(() => expect(fired.size).toBe(RECONCILERS.length))
  const subjects = scan.mock.calls.map(([, subject]) => subject).filter((subject) => /\.key\./.test(subject))
  expect(new Set(subjects)).toEqual(new Set([`${prefix}.key.>`]))
  await Promise.all(workers.map((worker) => worker.drain(1000)))
})

describe('timers that a process of an earlier version has put to sleep', () => {
  const SLOTS = ['w00', 'w15', 'w67']
  const due = keysNamed('due', 30)
  const near = keysNamed('near', 30)
  const slotFor = (index: number) => SLOTS[index % SLOTS.length]!

  /** Stores what such processes have left: timers in several buckets, and the alarms of these. */
  async function left(test: TestQueue, prefix: string, at: Date, reconciler = FN): Promise<void> {
    for (const [index, key] of due.entries())
      await store(test, prefix, { reconciler, key, at: inMs(-60_000), front: slotFor(index) })
    for (const [index, key] of near.entries()) await store(test, prefix, { reconciler, key, at, front: slotFor(index) })
    await test.js.admin.consumers.add(test.queue.stream, {
      durable_name: '_timers-high',
      filter_subject: `${prefix}.work._timers.high.>`,
      ack_policy: 'explicit',
    })
    await store(test, prefix, { reconciler: '_timers', key: '1.7', at: inMs(-60_000) })
    await test.js.publish(`${prefix}.work._timers.high.0.9`, '', {})
  }

  it('fire once each, none before it is due', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const at = inMs(3000)
    await left(test, prefix, at)
    const world = new World()
    const early: string[] = []
    const worker = world.serve(test.queue, ({ key, fired }) => {
      if (!fired || (near.includes(key) && Date.now() < at.getTime() - 50)) early.push(key)
      return DONE
    })
    await until(() => expect(world.starts.toSorted()).toEqual([...due, ...near].toSorted()))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(early).toEqual([])
    await worker.drain(1000)
    await fence(test)
    expect(world.starts).toHaveLength(due.length + near.length)
  })

  it('are armed behind any number of other records, and for Reconcilers that this process does not serve', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    for (const key of keysNamed('parked', 45)) {
      await test.queue.enqueue(FN, key)
      await test.queue.park({ reconciler: FN, key })
    }
    await test.queue.declare('other')
    const at = inMs(3_600_000)
    await left(test, prefix, at, 'other')
    const janitor = test.queue.janitor(FN, 10)
    let armed = 0
    await until(async () => {
      armed += await janitor.pass()
      expect(armed).toBe(due.length + near.length)
    })
    await until(async () => expect((await test.queue.depth('other')).queued).toBe(due.length))
    const waiting = await Array.fromAsync(test.js.scan(test.queue.stream, `${prefix}.key.other.w.>`))
    const schedules = waiting.map(({ headers }) => headers['Nats-Schedule'])
    expect(schedules).toEqual(near.map(() => `@at ${at.toISOString()}`))
  })

  it('are listed and changed by hand as any timer, and their buckets are no keys', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const at = inMs(3_600_000)
    await store(test, prefix, { key: 'n.a', at, front: 'w34' })
    await left(test, prefix, at, 'other')
    const [entry, ...others] = (await entriesOf(test.queue)) as (Entry & { state: 'waiting' })[]
    expect([entry, others]).toMatchObject([{ key: 'n.a', state: 'waiting', reason: 'Requeue' }, []])
    expect(Math.abs(+entry!.until - +at)).toBeLessThan(50)
    expect(await test.queue.reconcilers()).toEqual([FN])
    const all = await Array.fromAsync(test.queue.list())
    expect(new Set(all.map(({ reconciler }) => reconciler))).toEqual(new Set([FN, 'other']))
    expect(await test.queue.retry({ reconciler: FN, key: 'n.a' })).toBe('queued')
    expect(await statesOf(test.queue)).toEqual(['n.a queued'])
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
