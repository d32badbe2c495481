/**
 * What a broker adds to the laws of a queue in one process, and what no upstream test covers: with one server, and with
 * three of which some are killed. 1 → 8 → 1 processes: scale.test.ts. Out-of-order versions across two bridges and
 * deletions found after a 410: test/bridge.
 */
import { describe, expect, it } from 'vitest'
import { InvalidNameError, LeaseLostError } from '#queue'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  gate,
  inMs,
  inOneHour,
  keysNamed,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from '../support.ts'

const idle = ({ queue }: TestQueue) => until(async () => expect(await statesOf(queue)).toEqual([]))

describe.each([{ replicas: 1 as const }, { replicas: 3 as const }])('with $replicas server(s)', ({ replicas }) => {
  const { nats, open } = useTestNats({ replicas })

  it('a worker that is stalled beyond its lease is fenced while it still runs', async () => {
    const prefix = freshPrefix()
    const resumes = gate()
    let stalling = false
    let ranAgain = false
    await using stalled = await open(prefix, { onIo: () => (stalling ? resumes.opened : undefined) })
    await using other = await open(prefix)
    const world = new World()
    const outcomes: string[] = []
    stalled.queue.serve({
      reconciler: FN,
      slots: 1,
      handler: async (lease) => {
        // The key that is queued again after the fence may come here, too.
        if (stalling) {
          ranAgain = true
          return DONE
        }
        stalling = true
        await until(() => expect(() => lease.hold()).toThrow(LeaseLostError))
        resumes.open()
        return DONE
      },
      onFinished: (_, result) => outcomes.push(result),
    })
    await world.change(stalled.queue, 'n.a')
    await until(() => expect(stalling).toBe(true))
    const worker = world.serve(other.queue)
    await until(() => ranAgain || world.dealtWith.get('n.a') === 1)
    await until(() => expect(outcomes[0]).toBe('fenced'))
    await idle(other)
    await worker.drain(1000)
  })

  it('a token whose taker died before it took it is delivered again: one more run, not none', async () => {
    const prefix = freshPrefix()
    const world = new World()
    const dead = await open(prefix, { onIo: () => new Promise<void>(() => undefined) })
    await using test = await open(prefix)
    const doomed = world.serve(dead.queue)
    await world.change(test.queue, 'n.a')
    const pending = async () => (await test.js.admin.consumers.info(`${prefix}_WORK`, `${FN}-high`)).num_ack_pending
    await until(async () => expect(await pending()).toBe(1))
    await dead.js.close()
    const worker = world.serve(test.queue)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(world.starts).toEqual(['n.a'])
    await idle(test)
    await Promise.all([doomed, worker].map((one) => one.drain(0)))
  })

  it('two bridges that tell of the same change make one run', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix)
    await using b = await open(prefix)
    const keys = keysNamed('k', 30)
    const results = await Promise.all([a, b].flatMap(({ queue }) => keys.map((key) => queue.enqueue(FN, key))))
    expect(results.filter((result) => result === 'queued')).toHaveLength(30)
    const world = new World()
    const worker = world.serve(a.queue)
    await idle(a)
    expect(world.starts.toSorted()).toEqual(keys.toSorted())
    await worker.drain(1000)
  })

  it('a change of the leader in the middle of a batch loses nothing and doubles nothing', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const world = new World()
    const work = async () => {
      await new Promise((resolve) => setTimeout(resolve, 3))
      return DONE
    }
    const worker = world.serve(test.queue, work, 8)
    const keys = keysNamed('k', 150)
    const adding = Promise.all(keys.map((key) => world.change(test.queue, key)))
    await until(() => expect(world.starts.length).toBeGreaterThan(10))
    const { cluster } = await test.js.admin.streams.info(`${prefix}_WORK`)
    await nats().restart(replicas === 1 ? 0 : nats().names.indexOf(cluster?.leader ?? ''))
    await adding
    for (const key of keys.slice(0, 30)) await world.change(test.queue, key)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await idle(test)
    expect(world.overlaps).toEqual([])
    await worker.drain(1000)
  })

  it('timers, failures and parked keys survive the restart of everything', async () => {
    await using test = await open()
    const before = new World().serve(test.queue, ({ key }) => {
      if (key === 'n.parked') return { kind: 'terminal', message: 'bad' }
      if (key === 'n.failed') return { kind: 'error', message: 'no', retryAt: inMs(1500) }
      return { kind: 'requeue', at: key === 'n.soon' ? inMs(1500) : inOneHour() }
    })
    for (const key of ['n.parked', 'n.failed', 'n.soon', 'n.later']) await test.queue.enqueue(FN, key)
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ waiting: 3, parked: 1 }))
    await before.drain(1000)
    for (const server of nats().names.keys()) nats().signal('SIGKILL', server)
    await Promise.all([...nats().names.keys()].map((server) => nats().restart(server)))
    const world = new World()
    const worker = world.serve(test.queue)
    await until(() => expect(world.starts.toSorted()).toEqual(['n.failed', 'n.soon']))
    expect(world.leases.find(({ key }) => key === 'n.failed')?.attempt).toBe(1)
    await until(async () => expect((await statesOf(test.queue)).sort()).toEqual(['n.later waiting', 'n.parked parked']))
    await worker.drain(1000)
  })
})

describe('one server suffices for', () => {
  const { open } = useTestNats()

  it('a hot key in a long backlog: it coalesces and keeps its place, and the others come through', async () => {
    await using test = await open()
    const world = new World()
    const keys = keysNamed('k', 1000)
    await Promise.all(keys.map((key) => world.change(test.queue, key)))
    const worker = world.serve(test.queue, undefined, 8)
    while (world.dealtWith.size < keys.length) await world.change(test.queue, 'n.k500')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect(keys.filter((key) => key !== 'n.k500').every((key) => world.runsOf(key) === 1)).toBe(true)
    expect(world.runsOf('n.k500')).toBeLessThan(world.versions.get('n.k500')!)
    await idle(test)
    await worker.drain(1000)
  })

  it('errors of any length, and names of any length that Kubernetes has', async () => {
    await using test = await open()
    const key = `${'n'.repeat(63)}.${'k'.repeat(253)}`
    const worker = new World().serve(test.queue, () => ({ kind: 'terminal', message: 'x'.repeat(3_000_000) }))
    await test.queue.enqueue(FN, key)
    await until(async () => expect(await entriesOf(test.queue)).toMatchObject([{ key, state: 'parked' }]))
    expect((await entriesOf(test.queue))[0]?.error?.length).toBeLessThan(10_000)
    await worker.drain(1000)
    await expect(test.queue.enqueue(FN, 'a b')).rejects.toThrow(InvalidNameError)
  })
})
