import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { BridgeObserver, Echo } from '#bridge'
import { type KubeObject, resourceName } from '#contracts'
import { type EventStore, openEventStore } from '#events'
import { resourcePath } from '#kube'
import { unlessAborted } from '#primitives'
import { RECONCILERS } from '#spec'
import { compactEtcd } from '../kube/etcd.ts'
import { connectTo } from '../support/jetstream.ts'
import { configMaps } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  configMapPath,
  createReconciler,
  lastSequence,
  present,
  removeReconcilers,
  silent,
  startBridge,
  stored,
  until,
  untilEqual,
  writeConfigMap,
} from './world.ts'

let servers: Servers
let cluster: Servers['cluster']
let nats: Servers['nats']
let kube: Servers['kube']
let number = 0
/** A stream of its own for each test. */
let prefix: string

beforeAll(async () => {
  servers = await startServers()
  ;({ cluster, nats, kube } = servers)
})

afterEach(async () => {
  await removeReconcilers(kube)
  await kube.request({ method: 'DELETE', path: configMapPath() })
})

afterAll(() => servers?.[Symbol.asyncDispose]())

const kubeEvents = { group: '', version: 'v1', resource: 'events', kind: 'Event' }
const kubeEvent = (name: string, message: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Event',
  metadata: { name, namespace: 'default' },
  involvedObject: { namespace: 'default' },
  message,
})

const fresh = () => `t${++number}`
const names = (count: number, stem = 'c') => Array.from({ length: count }, (_, index) => `${stem}${index}`)
const keys = (list: string[]) => list.map((name) => `default.${name}`).sort()
const createAll = (list: string[]) =>
  Promise.all(list.map((name) => kube.create(configMapPath(), configMap(name, 'first'))))
const deleteAll = (list: string[]) => Promise.all(list.map((name) => kube.delete(configMapPath(name))))

describe('every change', () => {
  it('of a few hundred objects arrives as it happened, first from a list, then from the watch', async () => {
    prefix = fresh()
    await createAll(names(100, 'old'))
    await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
    await using bridge = await startBridge(kube, nats.url, { prefix })
    await bridge.synced('configmaps.v1')
    expect(bridge.enqueued.every(({ lane }) => lane === 'low')).toBe(true)
    expect(bridge.keysOf('maps')).toEqual([...(await present(kube, configMaps, 'default')).keys()].sort())

    const seen: string[] = []
    const following = new AbortController()
    const follower = (async () => {
      for await (const { verb, key, object } of bridge.events.follow(
        { ref: configMaps, namespace: 'default', name: 'life' },
        following.signal,
      ))
        seen.push(`${verb} ${key.name} ${(object['data'] as { value: string } | undefined)?.value}`)
    })()
    bridge.enqueued.length = 0
    await createAll([...names(150), 'life'])
    await until(async () => seen.length === 1, { what: 'the creation is seen' })
    await writeConfigMap(kube, 'life', 'second')
    await until(async () => seen.length === 2, { what: 'the update is seen' })
    await Promise.all([
      ...names(50).map((name) => writeConfigMap(kube, name, 'second')),
      deleteAll(['life', ...names(100, 'old')]),
    ])
    await until(async () => seen.length === 3, { what: 'the deletion is seen' })
    following.abort()
    await follower
    expect(seen).toEqual(['added life first', 'modified life second', 'deleted life undefined'])
    await untilEqual(kube, bridge.events, configMaps, 'default')
    await until(async () => bridge.keysOf('maps').length === 251, { what: 'all are enqueued' })
    expect(bridge.enqueued.every(({ lane }) => lane === 'high')).toBe(true)
  })
})

describe('a start', () => {
  it('goes on from the cursor without a list', async () => {
    prefix = fresh()
    await createReconciler(kube, 'maps', { for: configMaps })
    await createAll(names(10))
    {
      await using bridge = await startBridge(kube, nats.url, { prefix })
      await bridge.synced('configmaps.v1')
      await bridge.rested()
    }
    await deleteAll(names(3))
    await writeConfigMap(kube, 'c5', 'second')
    await using bridge = await startBridge(kube, nats.url, { prefix })
    await untilEqual(kube, bridge.events, configMaps)
    await until(async () => bridge.enqueued.length >= 4, { what: 'what changed is enqueued' })
    expect(bridge.keysOf('maps')).toEqual(keys(['c0', 'c1', 'c2', 'c5']))
    expect(bridge.relists.filter(({ resource }) => resource === 'configmaps.v1')).toEqual([])
  })

  it('knows the echo of what a settled run has written through, and of no other', async () => {
    prefix = fresh()
    await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
    {
      await using before = await startBridge(kube, nats.url, { prefix })
      await before.synced('configmaps.v1')
      await before.rested()
    }
    const [own, foreign] = await createAll(['own', 'foreign', 'unwritten'])
    const js = await connectTo(nats.url, 'writer')
    const events = await openEventStore(js, { prefix, cluster: 'test', log: silent })
    await events.put(configMaps, 'added', own!, { origin: 'maps/default.own/run' })
    await events.put(configMaps, 'added', foreign!, { origin: 'maps/default.other/run' })
    await js.close()
    const needsNoRun = ({ reconciler, key, origin }: Echo) => origin.startsWith(`${reconciler}/${key}/`)
    const ownWrites = { needsNoRun, traceOf: () => undefined, written: () => undefined }
    const published: string[] = []
    const observer = { published: ({ object }: { object: KubeObject }) => published.push(object.metadata.name) }
    await using bridge = await startBridge(kube, nats.url, { prefix, ownWrites, observer })
    await until(async () => ['own', 'foreign', 'unwritten'].every((name) => published.includes(name)), {
      what: 'all are published',
    })
    expect(bridge.keysOf('maps')).toEqual(keys(['foreign', 'unwritten']))
  })

  const cases: [string, typeof configMaps, (name: string, value: string) => KubeObject, () => Promise<void>][] = [
    // A watch cache that has just been filled has none.
    ['the cache of the API server', configMaps, configMap, () => cluster.restart('kube-apiserver')],
    // The only kind for which the API server keeps no watch cache (Kubernetes 1.36).
    ['etcd', kubeEvents, kubeEvent, () => compactEtcd(cluster.dir)],
  ]
  it.each(cases)(
    'after the history is gone from %s finds deletions, and what is unchanged costs no event and no run; a bridge that was there all the time misses nothing',
    async (_, ref, object, forget) => {
      prefix = fresh()
      const path = (name?: string) => resourcePath(ref, 'default', name)
      await createReconciler(kube, 'all', { for: ref })
      await Promise.all(names(20).map((name) => kube.create(path(), object(name, 'first'))))
      {
        await using bridge = await startBridge(kube, nats.url, { prefix })
        await bridge.synced(resourceName(ref))
        await untilEqual(kube, bridge.events, ref)
        await bridge.rested()
      }
      await using through = await startBridge(kube, nats.url, { prefix: fresh() })
      await through.synced(resourceName(ref))
      for (const name of ['c0', 'c1', 'c2']) await kube.delete(path(name))
      await kube.create(path(), object('c2', 'anew'))
      await kube.replace(path('c3'), object('c3', 'second'))
      await forget()

      const published: string[] = []
      const observer: BridgeObserver = {
        published: ({ verb, object: { metadata } }) => published.push(`${verb} ${metadata.name}`),
      }
      await using bridge = await startBridge(kube, nats.url, { prefix, observer })
      await untilEqual(kube, bridge.events, ref)
      const relist = () => bridge.relists.find(({ resource }) => resource === resourceName(ref))
      await until(async () => relist() !== undefined, { what: 'it was listed' })
      const mine = () => published.filter((line) => / c\d+$/.test(line)).sort()
      await until(async () => mine().length >= 5, { what: 'it is said of all of them, which follows' })
      expect(mine()).toEqual(['added c2', 'deleted c0', 'deleted c1', 'deleted c2', 'modified c3'])
      expect(bridge.keysOf('all')).toEqual(keys(['c0', 'c1', 'c2', 'c3']))
      expect((await stored(bridge.events, ref)).get('default.c0')).toBe('deleted')
      expect(relist()).toMatchObject({ because: 'expired', deleted: 2 })
      await kube.create(path(), object('afterwards', 'first'))
      await untilEqual(kube, through.events, ref)
    },
  )
})

describe('Reconcilers come and go while the bridge runs', () => {
  it('a new one over a watched resource runs every object, others do not', async () => {
    prefix = fresh()
    await createReconciler(kube, 'first', { for: configMaps })
    await createAll(names(20))
    await using bridge = await startBridge(kube, nats.url, { prefix })
    let written = 0
    await bridge.synced('configmaps.v1')
    const sequence = await lastSequence(bridge.js, bridge.events.stream)
    bridge.enqueued.length = 0
    await createReconciler(kube, 'second', { for: { ...configMaps, namespaces: ['default'] } })
    await until(async () => bridge.keysOf('second').length === 20, { what: 'every key is enqueued for it' })
    expect(bridge.keysOf('first')).toEqual([])
    const identities = await Array.fromAsync(bridge.events.identities(configMaps, 'default'))
    expect(identities.filter((identity) => identity.sequence > sequence)).toEqual([])

    await kube.delete(resourcePath(RECONCILERS, undefined, 'first'))
    await until(
      async () => {
        bridge.enqueued.length = 0
        await writeConfigMap(kube, 'c0', `${written++}`)
        await until(async () => bridge.enqueued.length > 0, { what: 'a change arrives' })
        return bridge.keysOf('first').length === 0
      },
      { what: 'the first is forgotten' },
    )
    await kube.delete(resourcePath(RECONCILERS, undefined, 'second'))
    await until(async () => bridge.bridge.status().resources.length === 1, { what: 'nobody watches' })
  })
})

describe('NATS', () => {
  it('stopped for a while loses nothing, and holds the watch back instead of filling memory', async () => {
    prefix = fresh()
    await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
    await using bridge = await startBridge(kube, nats.url, { prefix })
    await bridge.synced('configmaps.v1')
    nats.signal('SIGSTOP')
    const created = names(400)
    await createAll(created)
    const unconfirmed = () =>
      bridge.bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1')?.unconfirmed ?? 0
    await until(async () => unconfirmed() === 128, { what: 'the watch is held back' })
    nats.signal('SIGCONT')
    await untilEqual(kube, bridge.events, configMaps, 'default')
    await until(async () => bridge.keysOf('maps').length === created.length, { what: 'all are enqueued' })
  })

  it('that does not answer does not keep a bridge from stopping', async () => {
    prefix = fresh()
    await createReconciler(kube, 'maps', { for: configMaps })
    const bridge = await startBridge(kube, nats.url, { prefix })
    await bridge.synced('configmaps.v1')
    nats.signal('SIGSTOP')
    await createAll(names(3))
    await bridge[Symbol.asyncDispose]().finally(() => nats.signal('SIGCONT'))
  })

  it('that does not confirm a change within the grace leaves it to the next start', async () => {
    prefix = fresh()
    await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
    const isWaiting = Promise.withResolvers<void>()
    const unconfirmed = (events: EventStore): EventStore => ({
      ...events,
      put(ref, verb, object, options) {
        if (object.metadata.name !== 'c0') return events.put(ref, verb, object, options)
        isWaiting.resolve()
        return unlessAborted(new Promise(() => undefined), options?.signal)
      },
    })
    {
      // It ends although the change is never confirmed.
      await using bridge = await startBridge(kube, nats.url, { prefix, graceMs: 0, through: unconfirmed })
      await bridge.synced('configmaps.v1')
      await createAll(['c0'])
      await isWaiting.promise
    }
    await using bridge = await startBridge(kube, nats.url, { prefix })
    await until(async () => bridge.keysOf('maps').includes('default.c0'), { what: 'it is enqueued' })
  })

  const relistsOfMaps = ({ relists }: Awaited<ReturnType<typeof startBridge>>) =>
    relists.filter(({ resource }) => resource === 'configmaps.v1')

  it('started anew makes everything be listed and enqueued again; what it had confirmed last and lost counts, also where that changes nothing', async () => {
    await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
    await createReconciler(kube, 'picky', { for: { ...configMaps, namespaces: ['default'] }, changes: ['Labels'] })
    await createAll(names(20))
    await using kept = await startBridge(kube, nats.url, { prefix: fresh(), noticeRestarts: true })
    await using lost = await startBridge(kube, nats.url, { prefix: fresh(), noticeRestarts: true })
    for (const bridge of [kept, lost]) await bridge.synced('configmaps.v1')
    const { js, events } = lost
    const { state } = await js.admin.streams.info(events.stream, { subjects_filter: '>' })
    const subject = Object.keys(state.subjects ?? {}).find((one) => one.includes('.configmaps.default.'))!
    const before = (await js.lastOf(events.stream, subject))!
    const changed = subject.split('.').at(-1)!
    await writeConfigMap(kube, changed, 'changed')
    for (const { events: store, bridge } of [kept, lost]) {
      await untilEqual(kube, store, configMaps, 'default')
      await until(async () => bridge.status().resources.every(({ unconfirmed }) => unconfirmed === 0), {
        what: 'nothing is under way',
      })
    }
    const headers = Object.entries(before.headers).filter(([name]) => !name.startsWith('Nats-'))
    await js.publish(subject, before.data, Object.fromEntries(headers))
    const lists = [kept, lost].map((bridge) => relistsOfMaps(bridge).length)
    for (const bridge of [kept, lost]) bridge.enqueued.length = 0
    nats.signal('SIGKILL')
    await nats.restart()
    for (const [index, bridge] of [kept, lost].entries()) {
      for (const reconciler of ['maps', 'picky'])
        await until(async () => bridge.keysOf(reconciler).length === 20, { what: 'everything is enqueued again' })
      await until(async () => relistsOfMaps(bridge).length > lists[index]!, { what: 'its kind has been listed again' })
      // What was lost, the list has found, or the watch before it, if the cursor had not passed the change.
      const { changed: found, deleted } = relistsOfMaps(bridge)[lists[index]!]!
      expect({ isRight: found <= index, deleted }).toEqual({ isRight: true, deleted: 0 })
      await untilEqual(kube, bridge.events, configMaps, 'default')
    }
    const unchanged = kept.enqueued.filter(({ key }) => key !== `default.${changed}`)
    expect(unchanged.every(({ lane }) => lane === 'low')).toBe(true)
  })
})
