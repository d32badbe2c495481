import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openEventStore } from '#events'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { openQueue } from '#queue'
import { connectTo } from '../support/jetstream.ts'
import { setBack, snapshot } from '../support/nats-stores.ts'
import { startTestNats } from '../support/servers.ts'
import { configMaps, pods } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import { configMap, configMapPath, createReconciler, silent, startBridge, until, untilEqual } from './world.ts'

/** More than the tests lose: the last sequence alone does not show that something is lost. */
const OTHERS = 60

let servers: Servers
let three: Nats & AsyncDisposable

beforeAll(async () => {
  ;[servers, three] = await Promise.all([startServers(), startTestNats({ replicas: 3 })])
  await createReconciler(servers.kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
})
afterAll(async () => {
  await three?.[Symbol.asyncDispose]()
  await servers?.[Symbol.asyncDispose]()
})

describe.each([1, 3] as const)('after %i servers have lost power', (replicas) => {
  const [before, lost] = [`before${replicas}`, `lost${replicas}`]
  /** By the bridge that starts then, and by bridges that were there all the time: one lost WORK, the other EVENTS. */
  let starts: Awaited<ReturnType<typeof begin>>
  let stays: typeof starts
  let events: typeof starts
  let js: JetStream

  /** Opens streams, and another client that writes to them as soon as they exist again. */
  async function begin(name: string) {
    const { url } = replicas === 3 ? three : servers.nats
    const prefix = `${name}${replicas}`
    const options = { prefix, log: silent, replicas }
    const store = await openEventStore(js, { ...options, cluster: 'test' })
    const queue = await openQueue(js, options)
    await queue.declare('another')
    const queued = async () =>
      new Set((await Array.fromAsync(queue.list({ reconciler: 'maps' }))).map(({ key }) => key.slice(8)))
    return {
      store,
      streams: { WORK: queue.stream, EVENTS: store.stream },
      start: () => startBridge(servers.kube, url, { prefix, replicas, noticeRestarts: true }),
      queued,
      untilQueued: (map: string) => until(async () => (await queued()).has(map), { what: `${map} is queued` }),
      untilCovered: (resourceVersion: string | undefined) =>
        until(
          async () => Number((await store.cursor(configMaps, 'default'))?.resourceVersion) >= Number(resourceVersion),
          { what: 'the cursor covers it' },
        ),
      async goOn() {
        for (let at = 0; at < OTHERS; at++) {
          await queue.enqueue('another', `n.k${at}`)
          const metadata = { name: `k${at}`, namespace: 'n', uid: `u${at}`, resourceVersion: '1' }
          await store.put(pods, 'added', { apiVersion: 'v1', kind: 'Pod', metadata })
        }
      },
    }
  }
  const create = (map: string) => servers.kube.create(configMapPath(), configMap(map, 'value'))

  const bridges = new AsyncDisposableStack()
  beforeAll(async () => {
    const nats = replicas === 3 ? three : servers.nats
    js = bridges.use(await connectTo(nats.url, 'another'))
    ;[starts, stays, events] = [await begin('starts'), await begin('stays'), await begin('events')]
    {
      await using _ = await starts.start()
      await create(before)
      await starts.untilQueued(before)
    }
    for (const { start } of [stays, events]) await bridges.use(await start()).synced('configmaps.v1')
    await snapshot(nats)
    {
      await using _ = await starts.start()
      const { metadata } = await create(lost)
      for (const { untilCovered } of [starts, stays, events]) await untilCovered(metadata.resourceVersion)
    }
    await setBack(nats, js, [starts.streams.WORK, stays.streams.WORK, events.streams.EVENTS])
    for (const scene of [starts, stays, events]) await scene.goOn()
  })
  afterAll(() => bridges[Symbol.asyncDispose]())

  it('each key is queued that WORK lost, and each whose timer it may have lost, by a bridge that starts then', async () => {
    expect(await starts.queued()).not.toContain(lost)
    await using after = await starts.start()
    await starts.untilQueued(lost)
    await until(() => after.keysOf('maps').includes(`default.${before}`), { what: 'the other one too' })
    const restarted: unknown = expect.objectContaining({ because: 'store-restarted' })
    await until(() => expect(after.relists).toContainEqual(restarted), { what: 'the list is reported' })
  })

  it('each key is queued that WORK lost, by a bridge that was there all the time', () => stays.untilQueued(lost))

  it('each object is stored that EVENTS lost, by a bridge that was there all the time', () =>
    untilEqual(servers.kube, events.store, configMaps, 'default'))
})

it('a bridge that starts after its only server moves the cursors: a copy of EVENTS from before is not the newest state', async () => {
  await using stack = new AsyncDisposableStack()
  const { url } = servers.nats
  const js = stack.use(await connectTo(url, 'another'))
  const start = () => startBridge(servers.kube, url, { prefix: 'moves', noticeRestarts: true })
  const stream = await (async () => {
    await using bridge = await start()
    await bridge.synced('configmaps.v1')
    return bridge.events.stream
  })()
  const before = await js.lastSequence(stream)
  await servers.nats.restart()
  await using _ = await start()
  await until(async () => (await js.lastSequence(stream)) > before, { what: 'EVENTS has gone on' })
})
