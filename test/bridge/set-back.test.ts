import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openEventStore } from '#events'
import type { Nats } from '#lab'
import { connectJetStream } from '#nats'
import { openQueue } from '#queue'
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

describe.each([1, 3] as const)('on %i servers that lost power', (replicas) => {
  /** Opens the streams of a test, and another client that writes to them as soon as they exist again. */
  async function begin(name: string) {
    const { kube } = servers
    const nats = replicas === 3 ? three : servers.nats
    const prefix = `${name}${replicas}`
    const js = await connectJetStream({ servers: nats.url, name: 'another' })
    const options = { prefix, log: silent, replicas }
    const events = await openEventStore(js, { ...options, cluster: 'test' })
    const queue = await openQueue(js, options)
    await queue.declare('another')
    return {
      events,
      start: () => startBridge(kube, nats.url, { prefix, replicas, noticeRestarts: true }),
      create: (map: string) => kube.create(configMapPath(), configMap(map, 'value')),
      queued: async () =>
        new Set((await Array.fromAsync(queue.list({ reconciler: 'maps' }))).map(({ key }) => key.slice(8))),
      covered: (resourceVersion: string | undefined) =>
        until(
          async () => {
            const cursor = await events.cursor(configMaps, 'default')
            return Number(cursor?.resourceVersion) >= Number(resourceVersion)
          },
          { what: 'the cursor covers it' },
        ),
      snapshot: () => snapshot(nats),
      async setBack(stream: 'WORK' | 'EVENTS') {
        await setBack(nats, js, `${prefix}_${stream}`)
        for (let at = 0; at < OTHERS; at++) {
          if (stream === 'WORK') await queue.enqueue('another', `n.k${at}`)
          const metadata = { name: `k${at}`, namespace: 'n', uid: `u${at}`, resourceVersion: '1' }
          if (stream === 'EVENTS') await events.put(pods, 'added', { apiVersion: 'v1', kind: 'Pod', metadata })
        }
      },
      [Symbol.asyncDispose]: () => js.close(),
    }
  }

  it('each key is queued that WORK lost, and each whose timer it may have lost, by a bridge that starts then', async () => {
    await using scene = await begin('start')
    const before = await scene.start()
    await scene.create(`before${replicas}`)
    await until(async () => (await scene.queued()).has(`before${replicas}`), { what: 'it is queued' })
    await before[Symbol.asyncDispose]()
    await scene.snapshot()
    const meanwhile = await scene.start()
    const { metadata } = await scene.create(`lost${replicas}`)
    await scene.covered(metadata.resourceVersion)
    await meanwhile[Symbol.asyncDispose]()
    await scene.setBack('WORK')
    expect(await scene.queued()).not.toContain(`lost${replicas}`)

    await using after = await scene.start()
    await until(async () => (await scene.queued()).has(`lost${replicas}`), { what: 'what was lost is queued' })
    await until(() => after.keysOf('maps').includes(`default.before${replicas}`), { what: 'the other one too' })
    await until(() => after.relists.length > 0, { what: 'the list is reported' })
    expect(after.relists).toContainEqual(expect.objectContaining({ because: 'store-restarted' }))
  })

  it('each key is queued that WORK lost, by a bridge that was there all the time', async () => {
    await using scene = await begin('stay')
    await using bridge = await scene.start()
    await bridge.synced('configmaps.v1')
    await scene.snapshot()
    const { metadata } = await scene.create(`kept-running${replicas}`)
    await scene.covered(metadata.resourceVersion)
    await scene.setBack('WORK')
    await until(async () => (await scene.queued()).has(`kept-running${replicas}`), { what: 'what was lost is queued' })
  })

  it('each object is stored that EVENTS lost, by a bridge that was there all the time', async () => {
    await using scene = await begin('events')
    await using bridge = await scene.start()
    await bridge.synced('configmaps.v1')
    await scene.snapshot()
    const { metadata } = await scene.create(`stored${replicas}`)
    await scene.covered(metadata.resourceVersion)
    await scene.setBack('EVENTS')
    await untilEqual(servers.kube, scene.events, configMaps, 'default')
  })
})
