import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import type { Finish, WorkQueue } from '#queue'
import { randomFrom } from '../support/random.ts'
import { DONE, entriesOf, FN, freshPrefix, gate, inOneHour, statesOf, until, useShippedNats, World } from './support.ts'

const { open, admin } = useShippedNats('fairlead-dispatcher')
const of = (key: string) => ({ reconciler: FN, key })
const failed = (): Finish => ({ kind: 'error', message: 'broken', retryAt: inOneHour() })

/** Enqueues the keys and lets each end in its own way. */
async function leave(queue: WorkQueue, endings: Record<string, Finish>): Promise<void> {
  const worker = queue.serve({ reconciler: FN, slots: 4, handler: async ({ key }) => endings[key] ?? DONE })
  for (const key of Object.keys(endings)) await queue.enqueue(FN, key)
  await until(async () =>
    expect(await queue.depth(FN)).toMatchObject({
      queued: 0,
      running: 0,
      waiting: Object.values(endings).filter(({ kind }) => kind === 'error' || kind === 'requeue').length,
    }),
  )
  await worker.drain(1000)
}

describe('retry', () => {
  it('runs waiting and parked keys now, and once', async () => {
    await using test = await open()
    const { queue } = test
    await leave(queue, {
      'n.failed': failed(),
      'n.timer': { kind: 'requeue', at: inOneHour() },
      'n.parked': { kind: 'terminal', message: 'bad' },
    })
    for (const key of ['n.failed', 'n.timer', 'n.parked']) expect(await queue.retry(of(key))).toBe('queued')
    expect(await statesOf(queue)).toEqual(['n.failed queued', 'n.timer queued', 'n.parked queued'])
    expect(await queue.find(of('n.failed'))).toMatchObject([{ state: 'queued', attempt: 1, error: 'broken' }])
    const world = new World()
    const worker = world.serve(queue)
    await until(() => expect(world.starts.toSorted()).toEqual(['n.failed', 'n.parked', 'n.timer']))
    await until(async () => expect(await statesOf(queue)).toEqual([]))
    await worker.drain(1000)
    expect(world.starts).toHaveLength(3)
  })

  it('leaves alone what runs, is queued, or is idle', async () => {
    await using test = await open()
    const { queue } = test
    const goesOn = gate()
    const worker = queue.serve({ reconciler: FN, slots: 2, handler: () => goesOn.opened.then(() => DONE) })
    await queue.enqueue(FN, 'n.runs')
    await until(async () => expect(await statesOf(queue)).toEqual(['n.runs running']))
    expect(await queue.retry(of('n.runs'))).toBe('running')
    goesOn.open()
    await worker.drain(1000)
    await queue.enqueue(FN, 'n.queued')
    expect(await queue.retry(of('n.queued'))).toBe('queued')
    expect(await queue.retry(of('n.idle'))).toBe('idle')
    expect(await statesOf(queue)).toEqual(['n.queued queued'])
  })
})

describe('park', () => {
  it('keeps queued and waiting keys from running, until they are retried or something changes', async () => {
    await using test = await open()
    const { queue } = test
    await leave(queue, { 'n.waits': failed() })
    await queue.enqueue(FN, 'n.queued', { lane: 'low' })
    await queue.enqueue(FN, 'n.both')
    await queue.enqueue(FN, 'n.both', { lane: 'low' })
    for (const key of ['n.waits', 'n.queued', 'n.both']) expect(await queue.park(of(key))).toBe('parked')
    expect(await entriesOf(queue)).toMatchObject([
      { key: 'n.waits', state: 'parked', reason: 'Withdrawn', attempt: 1, error: 'broken' },
      { key: 'n.queued', state: 'parked', reason: 'Withdrawn' },
      { key: 'n.both', state: 'parked', reason: 'Withdrawn' },
    ])
    const world = new World()
    const worker = world.serve(queue)
    await world.change(queue, 'n.other')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(world.starts).toEqual(['n.other'])
    await queue.retry(of('n.waits'))
    await world.change(queue, 'n.queued')
    await until(() => expect(world.starts.toSorted()).toEqual(['n.other', 'n.queued', 'n.waits']))
    await until(async () => expect(await statesOf(queue)).toEqual(['n.both parked']))
    await worker.drain(1000)
  })

  it('is the same twice, and nothing for an idle key', async () => {
    await using test = await open()
    await test.queue.enqueue(FN, 'n.a')
    expect(await test.queue.park(of('n.a'))).toBe('parked')
    expect(await test.queue.park(of('n.a'))).toBe('parked')
    expect(await test.queue.park(of('n.idle'))).toBe('idle')
    expect(await statesOf(test.queue)).toEqual(['n.a parked'])
  })
})

describe('purge', () => {
  it('leaves nothing of queued, waiting and parked keys, and the next change runs', async () => {
    await using test = await open()
    const { queue } = test
    await leave(queue, { 'n.waits': failed(), 'n.parked': { kind: 'terminal', message: 'bad' } })
    await queue.enqueue(FN, 'n.queued')
    await queue.enqueue(FN, 'n.waits')
    for (const key of ['n.waits', 'n.parked', 'n.queued']) expect(await queue.purge(of(key))).toBe('purged')
    expect(await queue.purge(of('n.idle'))).toBe('idle')
    expect(await statesOf(queue)).toEqual([])
    const world = new World()
    const worker = world.serve(queue)
    await world.change(queue, 'n.waits')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await worker.drain(1000)
    expect(world.starts).toEqual(['n.waits'])
  })
})

it('hands against live workers lose no change that comes after them, and give no key to two', async () => {
  const prefix = freshPrefix()
  await using a = await open(prefix)
  await using b = await open(prefix)
  const seed = Date.now() % 100_000
  console.log(`seed ${seed}`)
  const random = randomFrom(seed)
  const world = new World()
  const work = async (): Promise<Finish> => {
    await sleep(random() * 4)
    const dice = random()
    if (dice < 0.2) return { kind: 'requeue', at: new Date(Date.now() + 300) }
    return dice < 0.3 ? { kind: 'terminal', message: 'bad' } : DONE
  }
  const workers = [a, b].map(({ queue }) => world.serve(queue, work, 8))
  const keys = Array.from({ length: 12 }, (_, i) => `n.k${i}`)
  const outcomes = new Set<string>()
  const meddle = async (queue: WorkQueue) => {
    for (let i = 0; i < 120; i++) {
      const key = keys[Math.floor(random() * keys.length)]!
      const act = (['retry', 'park', 'purge'] as const)[i % 3]!
      await queue.enqueue(FN, key, { lane: i % 2 ? 'high' : 'low' })
      outcomes.add(`${act} ${await queue[act](of(key))}`)
    }
  }
  await Promise.all([meddle(a.queue), meddle(b.queue)])
  for (const key of keys) await world.change(a.queue, key)
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  expect(world.overlaps).toEqual([])
  await until(async () => expect(await a.queue.depth(FN)).toMatchObject({ queued: 0, running: 0, waiting: 0 }))
  expect([...outcomes]).toEqual(expect.arrayContaining(['retry queued', 'park parked', 'purge purged']))
  await Promise.all(workers.map((worker) => worker.drain(1000)))
  expect([...a.logged, ...b.logged]).toEqual([])
})

it('names the process that runs a key, and the place of one that is queued', async () => {
  await using test = await open(freshPrefix(), { instance: 'host-1' })
  const { queue } = test
  const goesOn = gate()
  const worker = queue.serve({ reconciler: FN, slots: 2, handler: () => goesOn.opened.then(() => DONE) })
  await queue.enqueue(FN, 'n.runs')
  await until(async () => expect(await queue.find(of('n.runs'))).toMatchObject([{ state: 'running', by: 'host-1' }]))
  goesOn.open()
  await worker.drain(1000)
  for (const key of ['n.a', 'n.b', 'n.c']) await queue.enqueue(FN, key)
  await queue.enqueue(FN, 'other.a')
  expect(await queue.find(of('n.c'))).toMatchObject([{ state: 'queued', position: 3, positionInNamespace: 3 }])
  expect(await queue.find(of('other.a'))).toMatchObject([{ state: 'queued', position: 4, positionInNamespace: 1 }])
  const placed = (await entriesOf(queue)).map((entry) => entry.state === 'queued' && entry.positionInNamespace)
  expect(placed).toEqual([1, 2, 3, 1])
  expect((await entriesOf(queue)).map((entry) => entry.state === 'queued' && entry.position)).toEqual([1, 2, 3, 4])
  expect(await queue.find(of('n.idle'))).toEqual([])
  expect(await queue.reconcilers()).toEqual([FN])
  const { lanes, oldest } = await queue.backlog(FN)
  expect(lanes).toEqual({ high: 4, low: 0 })
  expect(Math.abs(Date.now() - (oldest?.getTime() ?? 0))).toBeLessThan(30_000)
})

it.each(['high', 'low'] as const)(
  'a worker goes on when somebody has deleted its consumer: of the %s lane too, no key is lost or stuck',
  async (lane) => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const world = new World()
    const worker = world.serve(test.queue)
    await world.change(test.queue, 'n.before', lane)
    await until(() => expect(world.dealtWith.get('n.before')).toBe(1))
    await admin().admin.consumers.delete(`${prefix}_WORK`, `${FN}-${lane}`)
    await world.change(test.queue, 'n.after', lane)
    await test.queue.janitor(FN).pass()
    await until(() => expect(world.dealtWith.get('n.after')).toBe(1))
    expect(world.runsOf('n.before')).toBe(1)
    await worker.drain(1000)
  },
)
