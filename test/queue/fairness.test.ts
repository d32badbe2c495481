import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { openQueue, type WorkQueue } from '#queue'
import { startDeployedNats } from '../support/deployed-nats.ts'
import type { ShippedUser } from '../support/shipped-users.ts'
import { silent } from '../support/silent.ts'
import { DONE, FN, freshPrefix, gate, inMs, SHORT, until, useTestNats, World } from './support.ts'

const { open } = useTestNats()

const SLOTS = 4
/** The queue length above which the rest is read ahead. */
const LINE = 4 * SLOTS
/**
 * More runs than begin while a page is read, and while the key's token is read and taken: about 60, on a fast machine as
 * on a slow one, since runs and reads share a process. A flood has several times as many keys.
 */
const NOTICE = 200
/** A namespace that waits has a turn while so many keys are served, for each namespace. */
const SHARE = 8

const keysOf = (namespace: string, count: number, name = 'k'): string[] =>
  Array.from({ length: count }, (_, index) => `${namespace}.${name}${index}`)

const enqueueAll = (world: World, queue: WorkQueue, keys: readonly string[], lane: 'high' | 'low' = 'high') =>
  Promise.all(keys.map((key) => world.change(queue, key, lane)))

const namespaceOf = (key: string): string => key.slice(0, key.indexOf('.'))

const soon = async () => {
  await sleep(2)
  return DONE
}

describe('a flood of one namespace', () => {
  it.each([
    ['low', '_', 'tenant.a'],
    ['high', 'flood', '_.a'],
  ] as const)('in the %s lane, of %s, that was there first does not hold up %s', async (lane, flood, key) => {
    await using test = await open()
    const world = new World()
    await enqueueAll(world, test.queue, keysOf(flood, 600), lane)
    await world.change(test.queue, key, lane)
    const worker = world.serve(test.queue, soon, SLOTS)
    await until(() => expect(world.starts).toContain(key))
    expect(world.starts.indexOf(key)).toBeLessThanOrEqual(LINE + NOTICE)
    await worker.drain(1000)
  })

  it('does not hold up what comes while it is worked off: neither changes nor timers', async () => {
    await using test = await open()
    const world = new World()
    const timed = keysOf('tenant', 3, 'timer')
    const wait = test.queue.serve({
      reconciler: FN,
      slots: SLOTS,
      handler: async () => ({ kind: 'requeue', at: inMs(500) }),
    })
    await enqueueAll(world, test.queue, timed)
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, waiting: 3 }))
    await wait.drain(1000)
    await enqueueAll(world, test.queue, keysOf('flood', 1500))
    const worker = world.serve(test.queue, soon, SLOTS)
    await until(() => expect(world.starts.length).toBeGreaterThan(LINE))
    const before = world.starts.length
    await world.change(test.queue, 'tenant.change')
    await until(() => expect(world.starts).toContain('tenant.change'))
    expect(world.starts.indexOf('tenant.change') - before).toBeLessThanOrEqual(NOTICE + 2)
    await until(() => expect(world.starts).toEqual(expect.arrayContaining(timed)))
    expect(world.starts.length).toBeLessThan(1400)
    await worker.drain(1000)
  })

  it('does not hold up the change of a key that runs while the change comes', async () => {
    const prefix = freshPrefix()
    await using test = await open(prefix)
    const world = new World()
    const goesOn = gate()
    const first = gate()
    const key = 'tenant.a'
    const others = await open(prefix)
    const holder = world.serve(
      others.queue,
      async () => {
        first.open()
        await goesOn.opened
        return DONE
      },
      1,
    )
    await world.change(test.queue, key)
    await first.opened
    const left = holder.drain(60_000)
    await enqueueAll(world, test.queue, keysOf('flood', 3000))
    await world.change(test.queue, key)
    const worker = world.serve(test.queue, soon, SLOTS)
    await until(() => expect(world.starts.length).toBeGreaterThan(LINE + NOTICE))
    expect(world.runsOf(key)).toBe(1)
    goesOn.open()
    await left
    await until(() => expect(world.runsOf(key)).toBe(2))
    expect((await test.queue.depth(FN)).queued).toBeGreaterThan(100)
    expect(world.overlaps).toEqual([])
    await worker.drain(1000)
    await others[Symbol.asyncDispose]()
  })
})

it('a flood of one reconciler that has all slots of the process holds up the change of another for a run or two', async () => {
  await using test = await open(undefined, { slots: SLOTS })
  const world = new World()
  const other = 'other'
  await test.queue.declare(other)
  await enqueueAll(world, test.queue, keysOf('flood', 1500))
  const waits: number[] = []
  let changedAt = 0
  const neighbour = test.queue.serve({
    reconciler: other,
    slots: SLOTS,
    handler: async () => {
      waits.push(world.starts.length - changedAt)
      return DONE
    },
  })
  const worker = world.serve(test.queue, soon, SLOTS)
  for (let change = 1; change <= 5; change++) {
    await until(() => expect(world.starts.length).toBeGreaterThan(changedAt + LINE))
    changedAt = world.starts.length
    await test.queue.enqueue(other, 'tenant.a')
    await until(() => expect(waits).toHaveLength(change))
  }
  expect(world.starts.length).toBeLessThan(1500)
  // Runs that begin while the change is stored and delivered, as for a namespace.
  expect(Math.max(...waits)).toBeLessThanOrEqual(NOTICE)
  await Promise.all([worker, neighbour].map((one) => one.drain(1000)))
})

it('namespaces that wait one behind the other are all served before long', async () => {
  await using test = await open()
  const world = new World()
  const namespaces = Array.from({ length: 20 }, (_, index) => `n${index}`)
  for (const namespace of namespaces) await enqueueAll(world, test.queue, keysOf(namespace, 50))
  const worker = world.serve(test.queue, soon, SLOTS)
  await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, running: 0 }))
  await worker.drain(1000)
  const first = world.starts.slice(0, LINE + NOTICE + 2 * SHARE * 20)
  const begun = new Set(first.map(namespaceOf))
  expect(namespaces.filter((namespace) => !begun.has(namespace))).toEqual([])
  expect(new Set(world.starts).size).toBe(20 * 50)
})

it('several workers serve a tenant beside two floods, and no key twice at a time', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix)
  const world = new World()
  const all = [...keysOf('flood', 1000), ...keysOf('torrent', 1000), ...keysOf('tenant', 10)]
  for (const namespace of ['flood', 'torrent', 'tenant'])
    await enqueueAll(
      world,
      test.queue,
      all.filter((key) => namespaceOf(key) === namespace),
    )
  const processes = [test, await open(prefix), await open(prefix)]
  const workers = processes.map(({ queue }) => world.serve(queue, soon, SLOTS))
  await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, running: 0 }))
  for (const worker of workers) await worker.drain(1000)
  for (const other of processes.slice(1)) await other[Symbol.asyncDispose]()
  const consumer = await test.js.admin.consumers.info(test.queue.stream, `${FN}-high`)
  expect(consumer).toMatchObject({ num_pending: 0, num_ack_pending: 0 })
  expect(world.overlaps).toEqual([])
  expect(new Set(world.starts)).toEqual(new Set(all))
  // The line of one worker may deliver what another is taking: such a key runs twice, one run after the other.
  expect(world.starts.length).toBeLessThanOrEqual(all.length * 1.1)
  const last = world.starts.findLastIndex((key) => namespaceOf(key) === 'tenant')
  expect(last).toBeLessThanOrEqual(3 * (LINE + NOTICE + 10 * 3 * SHARE))
})

it('a worker that dies with a token that it took out of the order of the line leaves the key to the others', async () => {
  const prefix = freshPrefix()
  await using test = await open(prefix, SHORT)
  const world = new World()
  const key = 'tenant.a'
  await enqueueAll(world, test.queue, keysOf('flood', 400))
  await world.change(test.queue, key)
  const dead = gate()
  const doomed = await open(prefix, {
    ...SHORT,
    onIo: ({ do: what }, about) => {
      if (about !== key || what !== 'removeToken') return
      dead.open()
      return new Promise(() => undefined)
    },
  })
  const lost = world.serve(doomed.queue, soon, SLOTS)
  await dead.opened
  await doomed[Symbol.asyncDispose]()
  await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ running: 0 }))
  const worker = world.serve(test.queue, soon, SLOTS)
  await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ queued: 0, running: 0 }))
  expect(world.dealtWith.get(key)).toBe(1)
  await worker.drain(1000)
  await lost.drain(0)
})

it('the users of deploy/nats may do all that this takes', async () => {
  await using deployed = await startDeployedNats()
  const opened = async (user: ShippedUser) => {
    const js = await deployed.connect(user, user)
    const queue = await openQueue(js, { log: silent })
    return { js, queue, [Symbol.asyncDispose]: () => js.close() }
  }
  await using bridge = await opened('fairlead-bridge')
  await using dispatcher = await opened('fairlead-dispatcher')
  const world = new World()
  await bridge.queue.declare(FN)
  await enqueueAll(world, bridge.queue, keysOf('flood', 600))
  await world.change(bridge.queue, 'tenant.a')
  const worker = world.serve(dispatcher.queue, soon, SLOTS)
  await until(() => expect(world.starts).toContain('tenant.a'))
  expect(world.starts.indexOf('tenant.a')).toBeLessThanOrEqual(LINE + NOTICE)
  await worker.drain(1000)
})
