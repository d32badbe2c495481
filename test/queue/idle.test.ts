import { describe, expect, it } from 'vitest'
import type { JetStream } from '#nats'
import { FN, until, useTestNats, World } from './support.ts'

/** Returns, for each request for work, the interval in seconds at which the server has to send heartbeats. */
async function heartbeats(watching: JetStream): Promise<number[]> {
  const asked: number[] = []
  watching.nc.subscribe('$JS.API.CONSUMER.MSG.NEXT.>', {
    callback: (_, message) => void asked.push(message.json<{ idle_heartbeat: number }>().idle_heartbeat / 1e9),
  })
  await watching.flush()
  return asked
}

async function whatIdleWorkersAsk(open: ReturnType<typeof useTestNats>['open']): Promise<Set<number>> {
  await using test = await open()
  await using other = await open()
  const asked = await heartbeats(other.js)
  const worker = new World().serve(test.queue)
  // Two lanes.
  await until(() => expect(asked.length).toBeGreaterThanOrEqual(2))
  await worker.drain(0)
  return new Set(asked)
}

describe('a worker that has nothing to do', () => {
  const alone = useTestNats()
  it('hears of it every 15 s from a single server, which does not go away without the connection', async () => {
    expect(await whatIdleWorkersAsk(alone.open)).toEqual(new Set([15]))
  })

  const cluster = useTestNats({ replicas: 3 })
  it('hears of it every 2 s from a cluster, where the leader may go away', async () => {
    expect(await whatIdleWorkersAsk(cluster.open)).toEqual(new Set([2]))
  })
})

describe(`a worker of ${FN} that has other work to expect`, () => {
  const { open } = useTestNats()
  it('hears every 2 s whether it is still there', async () => {
    await using test = await open()
    await using other = await open()
    const keys = ['n.a', 'n.b', 'n.c']
    for (const key of keys) await test.queue.enqueue(FN, key)
    const asked = await heartbeats(other.js)
    const world = new World()
    const worker = world.serve(test.queue, () => ({ kind: 'done' }), 1)
    await until(() => expect(world.starts).toHaveLength(3))
    expect(asked).toContain(2)
    await worker.drain(1000)
  })
})
