import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openDeadLetters, openEventStore } from '#events'
import type { JetStream } from '#nats'
import { openQueue, type QueueOptions, type WorkQueue } from '#queue'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { silent as log } from '../support/silent.ts'
import { DONE, FN, freshPrefix, pausedWork, statesOf, until, useTestNats, World } from './support.ts'

const LANES = [`${FN}-high`, `${FN}-low`]

async function opened(js: JetStream, options: Partial<QueueOptions>) {
  const queue = await openQueue(js, { log, ...options })
  await queue.declare(FN)
  return queue
}

const ackWaitsOf = (js: JetStream, stream: string) =>
  Promise.all(LANES.map(async (name) => (await js.admin.consumers.info(stream, name)).config.ack_wait! / 1e6))

const leaseOf = (ms: number) => ({ leaseMs: ms, ackWaitMs: ms })

describe('more Reconcilers than the stream permits consumers', () => {
  const { open } = useTestNats()
  const RECONCILERS = 12
  const declareAll = async (queue: WorkQueue) => {
    for (let number = 0; number < RECONCILERS; number++) await queue.declare(`r${number}`)
  }

  it('are refused with the fix if the stream is from before, and served when a bridge has started', async () => {
    const prefix = freshPrefix()
    await using before = await open(prefix)
    const { stream } = before.queue
    const { config } = await before.js.admin.streams.info(stream)
    const asBefore: object = { max_consumers: 20 }
    await before.js.admin.streams.update(stream, asBefore)
    await expect(declareAll(before.queue)).rejects.toThrow(`nats stream edit ${stream} --max-consumers=`)
    await using after = await open(prefix, { raiseReplicas: true })
    await declareAll(after.queue)
    const found = await after.js.admin.streams.info(stream)
    expect(found.state.consumer_count).toBeGreaterThan(2 * RECONCILERS)
    expect(found.config.max_consumers).toBe(config.max_consumers)
  })

  it('are permitted by a new stream, and by one that had no limit of its own when a bridge has started', async () => {
    const prefix = freshPrefix()
    await using before = await open(prefix)
    const { stream } = before.queue
    const permitted = async () => (await before.js.admin.streams.info(stream)).config.max_consumers
    expect(await permitted()).toBeGreaterThanOrEqual(100_000)
    const asBefore: object = { max_consumers: -1 }
    await before.js.admin.streams.update(stream, asBefore)
    expect(await permitted()).toBeLessThan(100_000)
    await using _ = await open(prefix, { raiseReplicas: true })
    expect(await permitted()).toBeGreaterThanOrEqual(100_000)
  })
})

describe('another length of the lease', () => {
  const { open } = useTestNats()

  it('is taken over by consumers that exist, with what they have delivered', async () => {
    const prefix = freshPrefix()
    await using before = await open(prefix, leaseOf(5000))
    await before.queue.enqueue(FN, 'n.a')
    await using after = await open(prefix, leaseOf(9000))
    expect(await ackWaitsOf(after.js, after.queue.stream)).toEqual([9000, 9000])
    const world = new World()
    const worker = world.serve(after.queue)
    await until(async () => expect(await statesOf(after.queue)).toEqual([]))
    expect(world.starts).toEqual(['n.a'])
    await worker.drain(1000)
  })

  it.each([
    ['longer', 3000, 1200],
    ['shorter', 1200, 3000],
  ])('law 2: a key in a %s lease is nobody else’s before its own end', async (_, mine, theirs) => {
    const prefix = freshPrefix()
    await using holder = await open(prefix, leaseOf(mine))
    await using other = await open(prefix, leaseOf(theirs))
    const world = new World()
    const run = pausedWork()
    world.serve(holder.queue, run.work)
    await world.change(holder.queue, 'n.a')
    await run.began
    await holder.js.close()
    const until_ = world.leases[0]!.until.getTime()
    const next = Promise.withResolvers<number>()
    const worker = world.serve(other.queue, () => {
      next.resolve(Date.now())
      return DONE
    })
    await world.change(other.queue, 'n.a')
    expect(await next.promise).toBeGreaterThanOrEqual(until_)
    expect(world.overlaps).toEqual([])
    await until(async () => expect(await statesOf(other.queue)).toEqual([]))
    await worker.drain(1000)
  })

  it('laws 1, 2 and 3: processes of both lengths serve the same keys', async () => {
    const prefix = freshPrefix()
    await using long = await open(prefix, leaseOf(3000))
    await using short = await open(prefix, leaseOf(1200))
    const world = new World()
    const workers = [long, short].map(({ queue }) => world.serve(queue, async () => sleep(5).then(() => DONE), 8))
    for (let change = 0; change < 300; change++)
      await world.change([long, short][change % 2]!.queue, `n.k${change % 5}`, change % 3 ? 'high' : 'low')
    await until(() => expect(world.dealtWith).toEqual(world.versions))
    await until(async () => expect(await statesOf(long.queue)).toEqual([]))
    expect(world.overlaps).toEqual([])
    await Promise.all(workers.map((worker) => worker.drain(1000)))
  })
})

describe('from one replica to three, with the users of deploy/nats', () => {
  let nats: DeployedNats
  beforeAll(async () => {
    nats = await startDeployedNats({ replicas: 3 })
  })
  afterAll(() => nats?.[Symbol.asyncDispose]())

  const connected = (user: 'bridge' | 'dispatcher') => nats.connect(`fairlead-${user}`, 'test')
  const replicasOf = async (js: JetStream) =>
    Promise.all(['EVENTS', 'WORK', 'DEAD'].map(async (name) => (await js.admin.streams.info(name)).config.num_replicas))
  const declareAll = async (js: JetStream, wish: { replicas: 1 | 3; raiseReplicas?: boolean }) => {
    await openEventStore(js, { cluster: 'test', log, ...wish })
    await openDeadLetters(js, { cluster: 'test', log, ...wish })
    return opened(js, { ...wish, ...leaseOf(3000) })
  }

  it('a bridge raises all streams while a dispatcher of before serves, and nobody lowers them', async () => {
    await using dispatcher = await connected('dispatcher')
    await using bridge = await connected('bridge')
    const queue = await declareAll(dispatcher, { replicas: 1 })
    const world = new World()
    let raised = false
    const worker = world.serve(queue, async ({ key }) => {
      if (!raised || (world.versions.get(key) ?? 0) < 40) await world.change(queue, key)
      return DONE
    })
    for (let key = 0; key < 8; key++) await world.change(queue, `n.k${key}`)
    await declareAll(dispatcher, { replicas: 3 })
    expect(await replicasOf(dispatcher)).toEqual([1, 1, 1])
    await declareAll(bridge, { replicas: 3, raiseReplicas: true })
    const isCurrent = async (js: JetStream) => (await js.admin.streams.info('WORK')).cluster?.replicas?.length
    await until(async () => expect(await isCurrent(bridge)).toBe(2))
    raised = true
    await declareAll(bridge, { replicas: 1, raiseReplicas: true })
    expect(await replicasOf(dispatcher)).toEqual([3, 3, 3])
    // nats-server 2.15 may forget a schedule that is due while the number of replicas changes.
    const janitor = queue.janitor(FN)
    await until(async () => {
      await janitor.pass()
      expect(world.dealtWith).toEqual(world.versions)
    })
    await until(async () => expect(await statesOf(queue)).toEqual([]))
    await worker.drain(1000)
  })

  it.each(['bridge', 'dispatcher'] as const)('a %s changes how long consumers wait', async (user) => {
    await using js = await connected(user)
    for (const ms of [4000, 7000]) {
      await opened(js, leaseOf(ms))
      expect(await ackWaitsOf(js, 'WORK')).toEqual([ms, ms])
    }
  })
})
