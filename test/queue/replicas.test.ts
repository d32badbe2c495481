import { describe, expect, it } from 'vitest'
import type { JetStream } from '#nats'
import type { Finish, Lease } from '#queue'
import { isRemoved } from '../../streams/queue/core.ts'
import { Names } from '../../streams/queue/wire.ts'
import { seededRandom } from '../support/random.ts'
import {
  DONE,
  FN,
  freshPrefix,
  inMs,
  inOneHour,
  keysNamed,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useShippedNats,
  useTestNats,
  World,
} from './support.ts'

const random = seededRandom('lengths of runs of replicas.test.ts')
const { nats, open, admin } = useShippedNats('fairlead-dispatcher', { replicas: 3 })

it('on one replica in a cluster, a run begins when its token is gone: the stream may get replicas at any time', async () => {
  const asked: string[] = []
  await using test = await open(undefined, { replicas: 1, onIo: (io) => void asked.push(io.do) })
  const world = new World()
  const worker = world.serve(test.queue, () => {
    asked.push('run')
    return DONE
  })
  await world.change(test.queue, 'n.a')
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  await until(async () => expect(await statesOf(test.queue)).toEqual([]))
  const taken = asked.slice(asked.indexOf('acknowledge'))
  expect(taken.slice(0, 3)).toEqual(['acknowledge', 'readToken', 'run'])
  await worker.drain(1000)
})

describe('on three replicas', () => {
  it('law 1: a token that was delivered before the leader has stored it does not count as gone', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const names = new Names(prefix)
    const last = await test.js.lastSequence(names.stream)
    const isGone = () => isRemoved(test.js, names.stream, last + 1)
    expect(await isGone()).toBe(false)
    await test.queue.enqueue(FN, 'n.a')
    expect(await isGone()).toBe(false)
    await test.js.remove(names.stream, last + 1)
    expect(await isGone()).toBe(true)
    await test.queue.enqueue(FN, 'n.b')
    expect(await isGone()).toBe(true)
  })

  it('law 1: a change the moment a run has begun never ends in a token that is about to go', async () => {
    await using test = await open()
    const world = new World()
    const worker = world.serve(test.queue, async ({ key }: Lease): Promise<Finish> => {
      if ((world.versions.get(key) ?? 0) < 25) await world.change(test.queue, key)
      return DONE
    })
    for (let i = 0; i < 12; i++) await world.change(test.queue, `n.k${i}`)
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    expect([...world.versions.values()]).toEqual(Array.from({ length: 12 }, () => 25))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('laws 2, 3 and 7: workers at different servers, hot keys, both lanes', async () => {
    const prefix = freshPrefix()
    await using a = await open(prefix, SHORT, nats().urls[0])
    await using b = await open(prefix, SHORT, nats().urls[1])
    await using c = await open(prefix, SHORT, nats().urls[2])
    const world = new World()
    const brief = async (): Promise<Finish> => {
      await new Promise((resolve) => setTimeout(resolve, random() * 10))
      return DONE
    }
    const workers = [a, b, c].map(({ queue }) => world.serve(queue, brief, 8))
    const keys = ['n.a', 'n.b', 'n.c']
    const hammer = async ({ queue }: typeof a) => {
      for (let i = 0; i < 80; i++) await world.change(queue, keys[i % 3]!, i % 5 ? 'high' : 'low')
    }
    await Promise.all([a, b, c].map(hammer))
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(a.queue)).toEqual([]))
    expect(world.overlaps).toEqual([])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })

  it('law 1: a change after a purge is never taken for the one that was thrown away', async () => {
    await using test = await open()
    const purgeAndChange = async (key: string) => {
      await test.queue.enqueue(FN, key)
      expect(await test.queue.purge({ reconciler: FN, key })).toBe('purged')
      expect(await test.queue.enqueue(FN, key)).toBe('queued')
      expect(await test.queue.find({ reconciler: FN, key })).toMatchObject([{ state: 'queued' }])
      await test.queue.purge({ reconciler: FN, key })
    }
    for (let i = 0; i < 12; i++) await Promise.all(Array.from({ length: 12 }, (_, k) => purgeAndChange(`n.k${k}`)))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
  })

  it('law 4: timers fire although the leader that held them is killed, and survive the restart of all servers', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix, SHORT)
    const world = new World()
    const worker = world.serve(test.queue, ({ key, fired }) =>
      fired ? DONE : { kind: 'requeue', at: key === 'n.later' ? inOneHour() : inMs(1000) },
    )
    const keys = keysNamed('k', 20)
    await Promise.all([...keys, 'n.later'].map((key) => world.change(test.queue, key)))
    await until(async () => expect((await test.queue.depth(FN)).waiting).toBe(21))
    const { cluster } = await test.js.admin.streams.info(`${prefix}_WORK`)
    nats().signal('SIGKILL', nats().names.indexOf(cluster?.leader ?? ''))
    const fired = () => new Set(world.leases.filter((lease) => lease.fired).map(({ key }) => key))
    await until(() => expect(fired()).toEqual(new Set(keys)))
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.later waiting']))
    await worker.drain(1000)
    await Promise.all([...nats().names.keys()].map((server) => nats().restart(server)))
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.later waiting']))
  })
})

it('law 1: keys run although all servers are killed, and consumers keep what they have delivered only in memory', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix, SHORT)
  const world = new World()
  const keys = keysNamed('k', 20)
  const begun = new Set<string>()
  const held = Promise.withResolvers<void>()
  const worker = world.serve(
    test.queue,
    async ({ key }) => {
      begun.add(key)
      await held.promise
      return DONE
    },
    8,
  )
  await Promise.all(keys.map((key) => world.change(test.queue, key)))
  await until(() => expect(begun.size).toBe(8))
  const consumer = async () => (await admin().admin.consumers.info(`${prefix}_WORK`, `${FN}-high`)).config.mem_storage
  expect(await consumer()).toBe(true)
  const servers = [...nats().names.keys()]
  for (const server of servers) nats().signal('SIGKILL', server)
  await Promise.all(servers.map((server) => nats().restart(server)))
  held.resolve()
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  await until(async () => expect(await statesOf(test.queue)).toEqual([]))
  expect(world.overlaps).toEqual([])
  await until(async () => expect(await consumer()).toBe(true))
  await worker.drain(1000)
})

/** Returns, for each request for work, the interval in seconds at which the server has to send heartbeats. */
async function heartbeats(watching: JetStream): Promise<number[]> {
  const asked: number[] = []
  watching.nc.subscribe('$JS.API.CONSUMER.MSG.NEXT.>', {
    callback: (_, message) => void asked.push(message.json<{ idle_heartbeat: number }>().idle_heartbeat / 1e9),
  })
  await watching.flush()
  return asked
}

async function whatIdleWorkersAsk(test: TestQueue, watching: JetStream): Promise<Set<number>> {
  const asked = await heartbeats(watching)
  const worker = new World().serve(test.queue)
  // Two lanes.
  await until(() => expect(asked.length).toBeGreaterThanOrEqual(2))
  await worker.drain(0)
  return new Set(asked)
}

describe('a worker that has nothing to do', () => {
  it('hears of it every 2 s from a cluster, where the leader may go away', async () => {
    await using test = await open()
    expect(await whatIdleWorkersAsk(test, admin())).toEqual(new Set([2]))
  })

  const alone = useTestNats()
  it('hears of it every 5 s from a single server, or every 2 s if it has other work to expect', async () => {
    await using test = await alone.open()
    await using other = await alone.open()
    expect(await whatIdleWorkersAsk(test, other.js)).toEqual(new Set([5]))
    for (const key of ['n.a', 'n.b', 'n.c']) await test.queue.enqueue(FN, key)
    const asked = await heartbeats(other.js)
    const world = new World()
    const worker = world.serve(test.queue, () => DONE, 1)
    await until(() => expect(world.starts).toHaveLength(3))
    expect(asked).toContain(2)
    await worker.drain(1000)
  })
})
