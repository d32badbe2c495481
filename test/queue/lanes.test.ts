import { describe, expect, it } from 'vitest'
import { type Lease, LeaseLostError } from '#queue'
import { fixedSlots } from '../../streams/queue/shared-slots.ts'
import {
  allowances,
  type LaneShare,
  type Load,
  LowLimit,
  ProcessSlots,
  type Sharer,
  TakeLimit,
} from '../../streams/queue/slots.ts'
import {
  DONE,
  FN,
  fence,
  freshPrefix,
  gate,
  HeldRuns,
  keysNamed,
  SHORT,
  statesOf,
  until,
  useTestNats,
  World,
} from './support.ts'

const { open } = useTestNats()

describe('a worker may have on their way', () => {
  /** `free`: for both lanes, if it is one number. */
  type Given = Partial<Omit<Load, 'free'>> & { free?: number | Load['free'] }
  const load = ({ free = 16, ...given }: Given): Load => ({
    slots: 16,
    free: typeof free === 'number' ? { high: free, low: free } : free,
    fair: 16,
    high: { busy: 0, backlog: 0 },
    low: { busy: 0, backlog: 0 },
    lastLane: 'high',
    ...given,
  })
  const cases: [string, Given, Partial<ReturnType<typeof allowances>>][] = [
    ['nothing known: changes for every slot, and one low token', {}, { high: 16, low: 1 }],
    ['low work alone: all but a quarter', { low: { busy: 0, backlog: 99 } }, { high: 4, low: 12, direct: 4 }],
    [
      'low work that its last free slots are kept for: none for changes without a token, one to hear of others',
      { free: 2, low: { busy: 3, backlog: 9 } },
      { high: 1, low: 2, direct: 0 },
    ],
    [
      'low work, of which the process has enough: what is left for low work, and changes for every other slot',
      { free: { high: 16, low: 2 }, low: { busy: 0, backlog: 99 } },
      { high: 14, low: 2, direct: 14 },
    ],
    ['at that limit: no low token', { free: 4, low: { busy: 12, backlog: 9 } }, { high: 4, low: 0 }],
    [
      'both have work: a quarter',
      { free: 4, high: { busy: 12, backlog: 9 }, low: { busy: 0, backlog: 9 } },
      { high: 0, low: 4 },
    ],
    [
      'both have work, the quarter is busy: the rest',
      { free: 3, high: { busy: 9, backlog: 9 }, low: { busy: 4, backlog: 9 } },
      { high: 3, low: 0 },
    ],
    [
      'all slots busy with changes: still one low token',
      { free: 0, high: { busy: 16, backlog: 5 } },
      { high: 0, low: 1 },
    ],
    [
      'no slot free, low work known: none, so that it is given back once only',
      { free: 0, high: { busy: 16, backlog: 5 }, low: { busy: 0, backlog: 1 } },
      { high: 0, low: 0 },
    ],
    [
      'one slot, both have work: in turn',
      { slots: 1, free: 1, high: { busy: 0, backlog: 3 }, low: { busy: 0, backlog: 3 }, lastLane: 'low' },
      { high: 1, low: 0 },
    ],
    [
      'one slot, both have work: in turn, the other way round',
      { slots: 1, free: 1, high: { busy: 0, backlog: 3 }, low: { busy: 0, backlog: 3 }, lastLane: 'high' },
      { high: 0, low: 1 },
    ],
  ]
  it.each(cases)('%s', (_, given, expected) => expect(allowances(load(given))).toMatchObject(expected))
})

describe('slots', () => {
  it.each([1, 16])('all %i are used by changes alone, and no more are taken from the server', async (slots) => {
    await using test = await open()
    const held = new HeldRuns()
    const world = new World()
    const worker = world.serve(test.queue, held.run, slots)
    for (const key of keysNamed('k', slots + 30)) await world.change(test.queue, key)
    await until(() => expect(held.running).toHaveLength(slots))
    await fence(test)
    const { num_pending, num_ack_pending } = await test.js.admin.consumers.info(test.queue.stream, `${FN}-high`)
    expect([num_pending, num_ack_pending]).toEqual([30, 0])
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(held.most).toBe(slots)
    await worker.drain(1000)
  })

  it.each([
    [1, 1],
    [4, 3],
  ])('of %i, initial lists alone take %i: a change need not wait for them', async (slots, most) => {
    await using test = await open()
    const held = new HeldRuns()
    const world = new World()
    const worker = world.serve(test.queue, held.run, slots)
    for (const key of keysNamed('k', slots + 3)) await world.change(test.queue, key, 'low')
    await until(() => expect(held.of('low')).toBe(most))
    await world.change(test.queue, 'n.urgent')
    await until(() => expect(held.of('high')).toBe(slots > 1 ? 1 : 0))
    expect(held.of('low')).toBe(most)
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(held.most).toBeLessThanOrEqual(slots)
    await worker.drain(1000)
  })

  it.each([
    [1, 5],
    [4, 8],
  ])('of %i: a permanent stream of changes lets the low lane have a quarter', async (slots, waiting) => {
    await using test = await open()
    const world = new World()
    const lanes: string[] = []
    const started = gate()
    const enough = slots * 4
    const worker = world.serve(
      test.queue,
      async ({ key, lane }) => {
        if (lanes.length === enough) started.open()
        lanes.push(lane)
        await new Promise((resolve) => setTimeout(resolve, 4))
        // Enqueued again by its own run: the high lane always has more keys queued than there are slots.
        if (lane === 'high' && lanes.length < 2000) await world.change(test.queue, key)
        return DONE
      },
      slots,
    )
    await Promise.all(keysNamed('busy', 4 * slots).map((key) => world.change(test.queue, key)))
    await started.opened
    await Promise.all(keysNamed('low', waiting).map((key) => world.change(test.queue, key, 'low')))
    const from = lanes.length
    await until(() => expect(lanes.filter((lane) => lane === 'low')).toHaveLength(waiting))
    const waited = lanes.lastIndexOf('low') - from
    await worker.drain(1000)
    expect(waited).toBeLessThanOrEqual(4 * (waiting + slots))
  })
})

it('a change of a key in the low lane goes before all of that lane, and the key runs once more at most', async () => {
  await using test = await open()
  const world = new World()
  const low = keysNamed('low', 12)
  for (const key of low) await world.change(test.queue, key, 'low')
  const raised = [low[9]!, low[7]!]
  for (const key of raised) await world.change(test.queue, key)
  await world.change(test.queue, low[9]!, 'low')
  const worker = world.serve(test.queue, undefined, 1)
  await until(async () => expect(await statesOf(test.queue)).toEqual([]))
  expect(world.dealtWith).toEqual(world.versions)
  expect(world.starts.filter((key) => raised.includes(key)).slice(0, 2)).toEqual(raised)
  // One slot serves the lanes in turn.
  expect(world.starts.indexOf(raised[1]!)).toBeLessThanOrEqual(4)
  for (const key of raised) expect(world.runsOf(key)).toBeLessThanOrEqual(2)
  await worker.drain(1000)
})

it('a permanent stream of changes that take slots without a token leaves the low lane its share', async () => {
  await using test = await open()
  const world = new World()
  const lanes: string[] = []
  const worker = world.serve(
    test.queue,
    async ({ lane }) => {
      lanes.push(lane)
      await new Promise((resolve) => setTimeout(resolve, 4))
      return DONE
    },
    4,
  )
  const enough = new AbortController()
  const stream = (async () => {
    for (let turn = 0; !enough.signal.aborted; turn++) {
      test.queue.announce(FN, `n.busy${turn % 64}`).safe.catch(() => undefined)
      if (turn % 8 === 7) await new Promise((resolve) => setTimeout(resolve, 1))
    }
  })()
  await until(() => expect(lanes.length).toBeGreaterThan(20))
  await Promise.all(keysNamed('low', 12).map((key) => world.change(test.queue, key, 'low')))
  const from = lanes.length
  await until(() => expect(lanes.filter((lane) => lane === 'low')).toHaveLength(12))
  const waited = lanes.lastIndexOf('low') - from
  enough.abort()
  await stream
  await worker.drain(1000)
  expect(waited).toBeLessThanOrEqual(4 * (12 + 4))
})

const outbox = { atEndOfTurn: (task: () => void) => task() }
const NONE: LaneShare = { busy: 0, taking: 0, promised: 0, backlog: 0 }
interface Worker extends Sharer {
  high: LaneShare
  low: LaneShare
}
const worker = (more: Partial<Worker> = {}): Worker => ({ high: NONE, low: NONE, poke() {}, pull() {}, ...more })

describe('the slots of a process', () => {
  it('are the limit of all functions together, and each of them has its turn', async () => {
    await using test = await open(undefined, { slots: 3 })
    const functions = ['a', 'b', 'c']
    const started: string[] = []
    let running = 0
    let most = 0
    for (const reconciler of functions) await test.queue.declare(reconciler)
    for (const key of keysNamed('k', 30)) for (const reconciler of functions) await test.queue.enqueue(reconciler, key)
    const handler = async ({ reconciler }: Lease) => {
      most = Math.max(most, ++running)
      started.push(reconciler)
      await new Promise((resolve) => setTimeout(resolve, 2))
      running--
      return DONE
    }
    const workers = functions.map((reconciler) => test.queue.serve({ reconciler, slots: 16, handler }))
    await until(() => expect(started).toHaveLength(90))
    expect(most).toBe(3)
    const early = started.slice(0, 45)
    for (const reconciler of functions)
      expect(early.filter((one) => one === reconciler).length).toBeGreaterThanOrEqual(5)
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })

  it('are not kept for a worker that has left, though its last runs end later', () => {
    const slots = new ProcessSlots(fixedSlots(4), outbox)
    const [gone, here] = [worker({ high: { ...NONE, busy: 4 } }), worker()]
    for (const one of [gone, here]) slots.join(one)
    expect(slots.free(4, here).high).toBe(0)
    slots.leave(gone)
    expect(slots.free(5, here).high).toBe(4)
    slots.released(gone)
    expect(slots.free(4, here).high).toBe(4)
  })

  it.each(['high', 'low'] as const)(
    'that become free are offered to the workers whose %s tokens wait, in turn, and to no others',
    (lane) => {
      const slots = new ProcessSlots(fixedSlots(lane === 'high' ? 1 : 4), outbox)
      const pulled: number[] = []
      const [first, second, third] = Array.from({ length: 1000 }, (_, index) => {
        const one = worker({
          pull() {
            pulled.push(index)
            one[lane] = { ...one[lane], promised: slots.free(16, one)[lane] }
            slots.changed(one)
          },
        })
        slots.join(one)
        return one
      }) as [Worker, Worker, Worker]
      const releasedBy = (one: Worker) => {
        one[lane] = { ...one[lane], busy: 0, promised: 0 }
        slots.released(one)
      }
      first[lane] = { ...NONE, busy: 1 }
      slots.changed(first)
      for (const waiting of [second, third]) {
        waiting[lane] = { ...NONE, backlog: 5 }
        slots.changed(waiting)
        expect(slots.free(16, waiting)[lane]).toBe(0)
      }
      releasedBy(first)
      expect(pulled).toEqual([1])
      expect(slots.free(16, first)[lane]).toBe(0)
      releasedBy(second)
      expect(pulled).toEqual([1, 2])
      releasedBy(third)
      expect(pulled).toEqual([1, 2, 1])
      // Another process has taken these tokens.
      second[lane] = NONE
      slots.changed(second)
      expect(pulled).toEqual([1, 2, 1, 2])
    },
  )

  it('come in turn to low work too, however many changes of other functions wait', () => {
    const slots = new ProcessSlots(fixedSlots(2), outbox)
    const began: string[] = []
    const running: (() => void)[] = []
    for (const [name, lane] of [
      ['low', 'low'],
      ['change', 'high'],
      ['other low', 'low'],
      ['other change', 'high'],
    ] as const) {
      const one = worker({
        [lane]: { ...NONE, backlog: 1000 },
        pull() {
          if (slots.free(1, one)[lane] === 0) return
          began.push(name)
          one[lane] = { ...one[lane], busy: one[lane].busy + 1 }
          slots.changed(one)
          running.push(() => {
            one[lane] = { ...one[lane], busy: one[lane].busy - 1 }
            slots.released(one)
            one.pull()
          })
        },
      })
      slots.join(one)
      one.pull()
    }
    for (let ended = 0; ended < 40; ended++) running.shift()!()
    for (const name of new Set(began)) expect(began.filter((one) => one === name).length).toBeGreaterThanOrEqual(6)
    expect(new Set(began).size).toBe(4)
  })

  it('are as many as the functions have, if there is no limit', () => {
    const slots = new ProcessSlots(fixedSlots(Number.POSITIVE_INFINITY), outbox)
    const one = worker({ high: { ...NONE, busy: 900 } })
    slots.join(one)
    expect(slots.free(100, one)).toEqual({ high: 100, low: 100 })
  })

  it('are not all taken by low work of many functions together: a change has a slot at once', async () => {
    await using test = await open(undefined, { slots: 4 })
    const held = new HeldRuns()
    const functions = Array.from({ length: 8 }, (_, number) => `f${number}`)
    for (const reconciler of functions) {
      await test.queue.declare(reconciler)
      await test.queue.enqueue(reconciler, 'n.low', { lane: 'low' })
    }
    const workers = functions.map((reconciler) => test.queue.serve({ reconciler, slots: 16, handler: held.run }))
    await until(() => expect(held.of('low')).toBeGreaterThan(0))
    await fence(test)
    await test.queue.enqueue('f7', 'n.urgent')
    await until(() => expect(held.of('high')).toBe(1))
    expect(held.of('low')).toBeLessThanOrEqual(3)
    held.letGo()
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    expect(held.most).toBeLessThanOrEqual(4)
    await Promise.all(workers.map((one) => one.drain(1000)))
  })
})

describe('the limit of takes', () => {
  const leaseMs = 5000
  const take = (limit: TakeLimit, from: number, to: number, times = 1): number => {
    for (let taken = 0; taken < times; taken++) limit.took({ from, to, leaseMs })
    return limit.takes
  }

  it('halves when keys are taken late, once for all that came before, and keeps some takes', () => {
    const limit = new TakeLimit()
    const most = limit.takes
    expect(take(limit, 0, 1500, 100)).toBe(most / 2)
    expect(take(limit, 1500, 3000)).toBe(most / 4)
    for (let at = 3000; at < 100_000; at += 1500) take(limit, at, at + 1500)
    expect(limit.takes).toBe(16)
  })

  it('recovers by each key that is taken in time, and slowly where the way to NATS is long', () => {
    const limit = new TakeLimit()
    const most = limit.takes
    take(limit, 0, 1500)
    expect(take(limit, 1500, 1700)).toBe(most / 2 + 1)
    take(limit, 1700, 3200)
    expect(take(limit, 3200, 3700, most / 2)).toBeLessThanOrEqual(most / 4 + 2)
    expect(take(limit, 3700, 4200, most * most)).toBe(most)
  })

  it('is shared by the workers of a process, which are offered the takes that end', () => {
    const slots = new ProcessSlots(fixedSlots(1000), outbox)
    const { takes } = new TakeLimit()
    let pulled = 0
    const first = worker({ high: { ...NONE, busy: takes, taking: takes } })
    const second = worker({ high: { ...NONE, backlog: 5 }, pull: () => void pulled++ })
    for (const one of [first, second]) slots.join(one)
    expect(slots.free(16, second).high).toBe(0)
    first.high = { ...NONE, busy: takes, taking: takes - 3 }
    slots.took(first, { from: 0, to: 10, leaseMs })
    expect(pulled).toBe(1)
    expect(slots.free(16, second).high).toBe(3)
  })
})

describe('the limit of low work', () => {
  it('leaves a quarter of the slots that the queue has of the process to changes', () => {
    const slots = new ProcessSlots({ ...fixedSlots(100), most: 1000 }, outbox)
    const all = Array.from({ length: 4 }, () => worker({ low: { ...NONE, backlog: 500 } }))
    for (const [nth, one] of all.entries()) {
      slots.join(one)
      for (let take = 0; take < 1000; take++)
        slots.took(one, { from: nth * 1000 + take, to: nth * 1000 + take, leaseMs: 5000 })
      const { low } = slots.free(50, one)
      one.low = { ...NONE, busy: low, backlog: 500 }
      slots.changed(one)
    }
    expect(all.reduce((sum, { low }) => sum + low.busy, 0)).toBe(75)
  })

  /** A key is taken by two messages of four. NATS does one after the other, for all runs in progress. */
  const limitAt = (runsPerSecond: number, wayMs = 0): number => {
    const limit = new LowLimit(1000)
    const aloneMs = 500 / runsPerSecond + wayMs
    limit.took(0, aloneMs)
    return busy(limit, { from: aloneMs, runsPerSecond, wayMs })
  }

  /** Takes 5000 keys, as many at once as the limit allows. */
  const busy = (limit: LowLimit, { from = 0, runsPerSecond = 100_000, wayMs = 0 }): number => {
    let now = from
    for (let taken = 0; taken < 5000; taken++) {
      const takeMs = (limit.slots * 500) / runsPerSecond + wayMs
      now += takeMs / limit.slots
      limit.took(now - takeMs, now)
    }
    return limit.slots
  }

  /** Takes one key a second, each alone, for some minutes. */
  const idle = (limit: LowLimit, { from = 0, minutes = 0, wayMs = 0 }): void => {
    for (let at = from; at < from + minutes * 60_000; at += 1000) limit.took(at, at + wayMs)
  }

  it.each([20, 100, 300, 1000, 3000])(
    'lets a change wait for half a second of runs at most, at %i a second',
    (rate) => {
      expect(limitAt(rate) / rate).toBeLessThanOrEqual(Math.max(0.5, 15 / rate))
    },
  )

  it('has a part of the slots however long the takes are', () => {
    expect(limitAt(1)).toBe(15)
  })

  it('is three quarters of the slots while runs do not slow each other down, also where the way to NATS is long', () => {
    for (const wayMs of [0, 300]) expect(limitAt(100_000, wayMs)).toBe(750)
  })

  it('follows a way to NATS that became long for good, by keys that are taken alone, but not one that was long for a minute', () => {
    const limitAfter = (minutes: number): number => {
      const limit = new LowLimit(1000)
      idle(limit, { minutes: 10, wayMs: 5 })
      idle(limit, { from: 600_000, minutes, wayMs: 300 })
      return busy(limit, { from: 600_000 + minutes * 60_000, wayMs: 300 })
    }
    expect([1, 10].map(limitAfter)).toEqual([15, 750])
  })

  it.each([
    [1, 1],
    [2, 1],
    [4, 3],
    [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY],
  ])('of %d slots is %d at most', (slots, most) => {
    const limit = new LowLimit(slots)
    for (let taken = 0; taken < 10; taken++) limit.took(0, 1)
    expect(limit.slots).toBe(most)
  })

  it('is cut once by all keys that came before the cut', () => {
    const limit = new LowLimit(64)
    for (let taken = 0; taken < 39; taken++) limit.took(0, 1)
    expect(limit.slots).toBe(40)
    for (let taken = 0; taken < 39; taken++) limit.took(2, 1000 + taken)
    expect(limit.slots).toBe(20)
    limit.took(1100, 2000)
    expect(limit.slots).toBe(10)
  })
})

it('a token that comes when every slot is busy is given back once, not in a loop', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix)
  const held = new HeldRuns()
  const world = new World()
  const worker = world.serve(test.queue, held.run, 4)
  for (const key of keysNamed('high', 8)) await world.change(test.queue, key)
  for (const key of keysNamed('low', 8)) await world.change(test.queue, key, 'low')
  await until(() => expect(held.of('high')).toBe(4))
  const deliveries = async () =>
    (await test.js.admin.consumers.info(`${prefix}_WORK`, `${FN}-low`)).delivered.consumer_seq
  await until(async () => expect(await deliveries()).toBe(1))
  await fence(test)
  expect(await deliveries()).toBe(1)
  held.letGo()
  await until(async () => expect(await statesOf(test.queue)).toEqual([]))
  expect(await deliveries()).toBeLessThanOrEqual(9 + 4)
  await worker.drain(1000)
})

it('a worker that loses its leases holds half as many keys at once, and all again when runs end in time', async () => {
  const prefix = freshPrefix()
  let starved: Promise<void> | undefined
  await using test = await open(prefix, { ...SHORT, onIo: () => starved })
  await using other = await open(prefix, SHORT)
  const enqueue = (name: string) =>
    Promise.all(keysNamed(name, 8).map((key) => other.queue.enqueue(FN, key, { lane: 'high' })))
  let held = 0
  let work: (lease: { hold(): void }) => Promise<void> = async (lease) =>
    until(() => expect(() => lease.hold()).toThrow(LeaseLostError))
  const fenced: string[] = []
  const worker = test.queue.serve({
    reconciler: FN,
    slots: 8,
    handler: async (lease) => {
      held++
      try {
        await work(lease)
        return DONE
      } finally {
        held--
      }
    },
    onFinished: ({ key }, result) => void (result === 'fenced' && fenced.push(key)),
  })

  await enqueue('a')
  await until(() => expect(held).toBe(8))
  const { opened: fed, open: feed } = gate()
  starved = fed
  await until(() => expect(held).toBe(0))

  const first = gate()
  work = () => first.opened
  starved = undefined
  feed()
  await until(() => expect(fenced).toHaveLength(8))
  await until(() => expect(held).toBe(8 / 2))
  await fence(other)
  expect(held).toBe(8 / 2)
  first.open()
  await until(async () => expect(await statesOf(other.queue)).toEqual([]))

  const second = gate()
  work = () => second.opened
  await enqueue('b')
  await until(() => expect(held).toBe(8))
  second.open()
  await worker.drain(5000)
})
