import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createOrphanedKeySweeper } from '#bridge'
import { type KubeClient, resourcePath } from '#kube'
import type { WorkQueue } from '#queue'
import { RECONCILERS } from '#spec'
import { entriesOf, FN, keysNamed, openTestQueue, type TestQueue } from '../queue/support.ts'
import { type ShippedNats, startShippedNats } from '../support/shipped-users.ts'
import { configMaps } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import { createReconciler, grant, restrictedClient, revoke, silent, until } from './world.ts'

const KEYS = keysNamed('k', 30)

let servers: Servers
let cluster: Servers['cluster']
let nats: ShippedNats
let kube: Servers['kube']

beforeAll(async () => {
  ;[servers, nats] = await Promise.all([startServers(), startShippedNats(['back', 'unknown', 'due', 'stuck'])])
  ;({ cluster, kube } = servers)
})

afterAll(async () => {
  await nats?.[Symbol.asyncDispose]()
  await servers?.[Symbol.asyncDispose]()
})

/** Keys of no Reconciler, and one pass that moves them to the dead letters, in which something happens once ten letters are written. */
async function sweepWhile(
  kube: KubeClient,
  prefix: string,
  happens: (enqueueAll: () => Promise<void>) => Promise<void>,
) {
  await using test = await openTestQueue(nats.as(nats.url, 'fairlead-bridge'), prefix)
  const { queue } = test
  const enqueueAll = async () => {
    for (const key of KEYS) await queue.enqueue(FN, key)
  }
  await enqueueAll()
  let dead = 0
  const deadLetter = async () => {
    if (++dead === 10) await happens(enqueueAll)
  }
  const stop = new AbortController()
  const over = Promise.withResolvers<void>()
  const log = { debug() {}, info: () => over.resolve(), warn: () => over.resolve(), error() {} }
  // What happens meanwhile may take long.
  const limits = { absentMs: 0, everyMs: 3_600_000, keyMs: 240_000 }
  const sweeper = createOrphanedKeySweeper({ kube, queue, deadLetter, log, ...limits })
  const sweeping = sweeper.run(stop.signal, 0)
  await over.promise
  stop.abort()
  await sweeping
  return { dead, left: (await entriesOf(queue)).map(({ key }) => key) }
}

it('a Reconciler that comes back while its keys are being dead-lettered finds every key that it enqueues', async () => {
  const { left } = await sweepWhile(kube, 'back', async (enqueueAll) => {
    await createReconciler(kube, FN, { for: { ...configMaps, kind: 'ConfigMap' } })
    await enqueueAll()
  })
  await kube.delete(resourcePath(RECONCILERS, undefined, FN))
  expect(left.toSorted()).toEqual(KEYS.toSorted())
})

it('a key is queued again when nobody says whether its Reconciler has come back', async () => {
  const rule = { apiGroups: [RECONCILERS.group], resources: [RECONCILERS.resource], verbs: ['list'] }
  await using restricted = await restrictedClient(kube, cluster.kubeconfig)
  const isListed = () =>
    Array.fromAsync(restricted.list(resourcePath(RECONCILERS))).then(
      () => true,
      () => false,
    )
  await grant(kube, 'reconcilers', rule)
  await until(isListed, { what: 'they may be listed' })
  const { dead, left } = await sweepWhile(restricted, 'unknown', async () => {
    await revoke(kube, 'reconcilers')
    await until(async () => !(await isListed()), { what: 'they may not be listed' })
  })
  expect({ dead, left: left.length }).toEqual({ dead: 10, left: KEYS.length - 9 })
})

const inOneHour = () => new Date(Date.now() + 3_600_000)

/** Moves the keys to the dead letters, pass after pass, until `holds`; then it is stopped. */
async function sweepUntil(queue: WorkQueue, holds: (dead: number) => Promise<boolean>, keyMs?: number) {
  let dead = 0
  const deadLetter = async () => void dead++
  const stop = new AbortController()
  const options = {
    kube,
    queue,
    deadLetter,
    log: silent,
    absentMs: 0,
    everyMs: 100,
    ...(keyMs !== undefined && { keyMs }),
  }
  const sweeping = createOrphanedKeySweeper(options).run(stop.signal, 0)
  await until(() => holds(dead), { what: 'they are dead-lettered' })
  stop.abort()
  await sweeping
}

it('keys that wait, are parked or queued are all dead-lettered, by a bridge with the rights that are shipped', async () => {
  await using filling = await openTestQueue(nats.as(nats.url, 'fairlead-dispatcher'), 'due')
  const worker = filling.queue.serve({
    reconciler: FN,
    slots: 2,
    handler: async ({ key }) =>
      key === 'n.waits' ? { kind: 'requeue', at: inOneHour() } : { kind: 'terminal', message: 'no' },
  })
  for (const key of ['n.waits', 'n.parked']) await filling.queue.enqueue(FN, key)
  const depth = () => filling.queue.depth(FN)
  await until(async () => (await depth()).waiting + (await depth()).parked === 2, {
    what: 'one waits and one is parked',
  })
  await worker.drain(1000)
  await filling.queue.enqueue(FN, 'n.queued')
  await using test = await openTestQueue(nats.as(nats.url, 'fairlead-bridge'), 'due')
  await sweepUntil(test.queue, async () => (await entriesOf(test.queue)).length === 0)
})

it('a key that cannot be purged holds up neither the keys behind it nor the stop', async () => {
  const onIo = (_: unknown, key: string) => (key === 'n.stuck' ? new Promise<void>(() => {}) : undefined)
  await using plain = await openTestQueue(nats.as(nats.url, 'fairlead-bridge'), 'stuck')
  await using test = await openTestQueue(nats.as(nats.url, 'fairlead-bridge'), 'stuck', { onIo })
  for (const key of ['n.stuck', 'n.behind']) await plain.queue.enqueue(FN, key)
  const left = async () => (await entriesOf(plain.queue)).map(({ key }) => key)
  await sweepUntil(test.queue, async () => (await left()).join() === 'n.stuck', 200)
})

it('a stop does not wait for a key that cannot be purged', async () => {
  const onIo = () => new Promise<void>(() => {})
  await using test = await openTestQueue(nats.as(nats.url, 'fairlead-bridge'), 'stuck', { onIo })
  await sweepUntil(test.queue, async (dead) => dead > 0, 3_600_000)
})

describe('the consumers of a Reconciler that is gone', () => {
  /** Until they are deleted. */
  async function removeConsumers({ queue }: TestQueue, during: () => Promise<void> = async () => {}): Promise<void> {
    const stop = new AbortController()
    const bound = {
      stream: queue.stream,
      reconcilers: queue.reconcilers.bind(queue),
      list: queue.list.bind(queue),
      purge: queue.purge.bind(queue),
      enqueue: queue.enqueue.bind(queue),
      declare: queue.declare.bind(queue),
      async removeConsumers(reconciler: string) {
        await queue.removeConsumers(reconciler)
        await during()
      },
    }
    const isOver = Promise.withResolvers<void>()
    const info = (_: unknown, message: string) => message.endsWith('its consumers are deleted') && isOver.resolve()
    const log = { ...silent, info }
    const options = { kube, queue: bound, deadLetter: async () => {}, log, absentMs: 0, everyMs: 20 }
    const sweeping = createOrphanedKeySweeper(options).run(stop.signal, 0)
    await isOver.promise
    expect(await queue.reconcilers()).toEqual([])
    stop.abort()
    await sweeping
  }

  it('are deleted after its last key, and made again when it comes back', async () => {
    await using test = await openTestQueue(nats.url, 'removed')
    for (const key of KEYS.slice(0, 3)) await test.queue.enqueue(FN, key)
    await removeConsumers(test)
    expect(await entriesOf(test.queue)).toEqual([])
    await test.queue.enqueue(FN, KEYS[0]!)
    await test.queue.declare(FN)
    const ran = Promise.withResolvers<string>()
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 1,
      handler: async ({ key }) => {
        ran.resolve(key)
        return { kind: 'done' }
      },
    })
    expect(await ran.promise).toBe(KEYS[0])
    await worker.drain(1000)
  })

  it('are made again for a key that is enqueued while they are deleted, until it is dead-lettered too', async () => {
    await using test = await openTestQueue(nats.url, 'late')
    let times = 0
    await removeConsumers(test, async () => {
      if (times++ === 0) await test.queue.enqueue(FN, KEYS[0]!)
    })
    expect([times, await entriesOf(test.queue)]).toEqual([2, []])
  })
})
