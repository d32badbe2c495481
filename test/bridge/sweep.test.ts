import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createOrphanedKeySweeper } from '#bridge'
import type { ResourceRef } from '#contracts'
import { type EventStore, openEventStore, type StoredCursor } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { demandOf } from '../../bridge/bridge.ts'
import { parseReconciler, type Reconciler, type RefusedReconciler } from '../../bridge/reconcilers.ts'
import { RESYNCS } from '../../bridge/resyncs.ts'
import { lookForStale, type Sighting } from '../../bridge/sweeper.ts'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { configMaps, pods, reconciler, reconcilerObject, secrets, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  createReconciler,
  removeReconcilers,
  silent,
  startBridge,
  stored,
  until,
  untilEqual,
  writeConfigMap,
} from './world.ts'

describe('what may be swept', () => {
  const cursor = (sequence: number, scope?: string, ref: ResourceRef = pods): StoredCursor => ({
    ref,
    scope,
    sequence,
    resourceVersion: '1',
    at: '',
  })
  const look = (before: ReadonlyMap<string, Sighting>, cursors: StoredCursor[], now: number, end: number) =>
    lookForStale(before, { cursors, isWanted: ({ scope }) => scope === 'wanted', now, end, staleMs: 100 })

  it('is a cursor that no Reconciler has asked for, and no bridge has moved, all the time', () => {
    const first = look(new Map(), [cursor(5), cursor(6, 'wanted')], 0, 10)
    expect(first.stale).toEqual([])
    const early = look(first.sightings, [cursor(5)], 99, 20)
    expect(early.stale).toEqual([])
    const late = look(early.sightings, [cursor(5)], 100, 30)
    expect(late.stale).toEqual([{ cursor: cursor(5), upTo: 10 }])
  })

  it('is no cursor that was moved, or asked for, in between', () => {
    const first = look(new Map(), [cursor(5)], 0, 10)
    const moved = look(first.sightings, [cursor(7)], 100, 20)
    expect(moved.stale).toEqual([])
    expect(look(moved.sightings, [cursor(7)], 200, 30).stale).toEqual([{ cursor: cursor(7), upTo: 20 }])
    const gone = look(first.sightings, [], 50, 20)
    expect(look(gone.sightings, [cursor(5)], 100, 30).stale).toEqual([])
  })
})

describe('a Reconciler asks for', () => {
  const demand = (served: Reconciler[], refused: RefusedReconciler[] = [], isClusterScoped = false) =>
    demandOf(served, refused, () => isClusterScoped)

  it('its resources where it wants them, and the Reconcilers are always asked for', () => {
    const asks = demand([reconciler('a', { for: { ...widgets, namespaces: ['one'] }, owns: [pods] })])
    expect([asks(widgets, 'one'), asks(pods, 'one'), asks(RECONCILERS, undefined)]).toEqual([true, true, true])
    expect([asks(widgets, 'two'), asks(widgets, undefined), asks(configMaps, undefined)]).toEqual([false, false, false])
    expect(asks({ ...widgets, version: 'v2' }, 'one')).toBe(false)
    expect([asks(RESYNCS, 'a'), asks(RESYNCS, 'b')]).toEqual([true, false])
  })

  it('what has no namespaces, whatever namespaces it names', () => {
    const named = [reconciler('a', { for: { ...widgets, namespaces: ['one'] } })]
    expect([demand(named, [], true)(widgets, undefined), demand(named, [], true)(widgets, 'one')]).toEqual([
      true,
      false,
    ])
  })

  it('whatever resources are in it where it is refused: another version may understand it', () => {
    const made = parseReconciler(reconcilerObject('x', { for: { ...widgets, selector: 'a>1' }, later: [{ of: pods }] }))
    const asks = demand([], [made as RefusedReconciler])
    expect([asks(widgets, undefined), asks(widgets, 'any'), asks(pods, undefined)]).toEqual([true, true, true])
    expect([asks(configMaps, undefined), asks(RESYNCS, 'x')]).toEqual([false, true])
  })
})

describe('EVENTS', () => {
  const SOON = { staleMs: 300, everyMs: 50 }
  let servers: Servers
  let kube: KubeClient
  let number = 0

  beforeAll(async () => {
    servers = await startServers()
    ;({ kube } = servers)
    for (const name of ['a', 'b', 'c']) await kube.create(resourcePath(configMaps, 'default'), configMap(name, 'first'))
    await kube.create(resourcePath(secrets, 'default'), { metadata: { name: 's' } })
  })
  afterEach(() => removeReconcilers(kube))
  afterAll(() => servers?.[Symbol.asyncDispose]())

  type Options = Partial<Parameters<typeof startBridge>[2]>
  const start = (options: Options = {}) => startBridge(kube, servers.nats.url, { prefix: `s${++number}`, ...options })
  const cursorsOf = async (events: EventStore) =>
    (await Array.fromAsync(events.cursors())).map(({ ref }) => ref.resource).toSorted()
  const untilSwept = (events: EventStore, ref: ResourceRef) =>
    until(
      async () => {
        const isCursor = (await cursorsOf(events)).includes(ref.resource)
        return !isCursor && (await stored(events, ref)).size === 0
      },
      { what: `${ref.resource} are swept` },
    )
  const removeReconciler = (name: string) => kube.delete(resourcePath(RECONCILERS, undefined, name))

  it('loses a resource that no Reconciler asks for any more, keeps the rest, and has all again when one comes back', async () => {
    await using bridge = await start({ sweep: SOON })
    await createReconciler(kube, 'maps', { for: configMaps, resyncSeconds: 3600 })
    await createReconciler(kube, 'others', { for: secrets })
    await untilEqual(kube, bridge.events, configMaps)
    await bridge.synced('secrets.v1')
    await until(async () => (await cursorsOf(bridge.events)).join().includes('configmaps'), { what: 'both are listed' })
    await removeReconciler('maps')
    await untilSwept(bridge.events, configMaps)
    await until(async () => !(await cursorsOf(bridge.events)).includes('resyncs'), { what: 'its resync is forgotten' })
    await untilEqual(kube, bridge.events, secrets)
    bridge.enqueued.length = 0
    await createReconciler(kube, 'maps', { for: configMaps })
    await untilEqual(kube, bridge.events, configMaps)
    await until(async () => bridge.keysOf('maps').filter((key) => /[.][abc]$/.test(key)).length === 3, {
      what: 'each key is queued',
    })
  })

  it('loses a namespace that no Reconciler asks for any more', async () => {
    await kube.create('/api/v1/namespaces', { metadata: { name: 'left' } })
    await kube.create(resourcePath(configMaps, 'left'), configMap('l', 'x', { namespace: 'left' }))
    await using bridge = await start({ sweep: SOON })
    await createReconciler(kube, 'both', { for: { ...configMaps, namespaces: ['default', 'left'] } })
    await until(
      async () => {
        const keys = [...(await stored(bridge.events, configMaps)).keys()]
        return keys.includes('left.l') && keys.includes('default.a')
      },
      { what: 'both are there' },
    )
    const namespaces = ['default']
    await kube.patch(resourcePath(RECONCILERS, undefined, 'both'), { spec: { for: { namespaces } } }, 'merge')
    await until(
      async () => {
        const keys = [...(await stored(bridge.events, configMaps)).keys()]
        return !keys.includes('left.l')
      },
      { what: 'the namespace is swept' },
    )
    expect([...(await stored(bridge.events, configMaps)).keys()]).toContain('default.a')
  })

  it('has every object of a watch that begins in the middle of a sweep', async () => {
    const prefix = `s${++number}`
    const isUnlisted = Promise.withResolvers<void>()
    const goOn = Promise.withResolvers<void>()
    const swept = Promise.withResolvers<number>()
    const late = (events: EventStore): EventStore => ({
      ...events,
      async sweep(ref, scope, which) {
        isUnlisted.resolve()
        await goOn.promise
        // Sweeps like a process that does not know the new Reconciler yet.
        const count = await events.sweep(ref, scope, { ...which, keeps: () => false })
        swept.resolve(count)
        return count
      },
    })
    await using other = await start({ prefix })
    await using sweeping = await start({ prefix, sweep: SOON, through: late })
    await createReconciler(kube, 'first', { for: configMaps })
    await untilEqual(kube, other.events, configMaps)
    for (const bridge of [other, sweeping]) await bridge.synced('configmaps.v1')
    await removeReconciler('first')
    await isUnlisted.promise
    await createReconciler(kube, 'second', { for: configMaps })
    for (const bridge of [other, sweeping]) await bridge.synced('configmaps.v1')
    await until(async () => other.keysOf('second').filter((key) => /[.][abc]$/.test(key)).length === 3, {
      what: 'every key is there',
    })
    goOn.resolve()
    await swept.promise
    await untilEqual(kube, other.events, configMaps)
  })

  it('has everything again after a bridge swept a resource of a Reconciler that only another bridge knows', async () => {
    const prefix = `s${++number}`
    await using knowing = await start({ prefix })
    await createReconciler(kube, 'known', { for: configMaps })
    await untilEqual(kube, knowing.events, configMaps)
    await knowing.synced('configmaps.v1')
    {
      await using ignorant = await startBridge(blind(kube), servers.nats.url, { prefix, sweep: SOON })
      await until(async () => (await stored(ignorant.events, configMaps)).size === 0, { what: 'it is swept' })
    }
    knowing.enqueued.length = 0
    await writeConfigMap(kube, 'a', 'changed')
    await untilEqual(kube, knowing.events, configMaps)
    await until(() => expect(knowing.relists.map(({ because }) => because)).toContain('swept'), {
      what: 'the list is reported, which follows',
    })
  })

  describe('and WORK, for a bridge with the rights that it is deployed with', () => {
    let deployed: DeployedNats

    beforeAll(async () => {
      deployed = await startDeployedNats()
    })
    afterAll(() => deployed?.[Symbol.asyncDispose]())

    it('lose the leftovers of a Reconciler that is gone', async () => {
      const connect = () => deployed.connect('fairlead-bridge', 'test')
      await using js = await connect()
      await openEventStore(js, { cluster: 'test', log: silent })
      await openEventStore(js, { cluster: 'test', log: silent, maxBytes: 2 ** 30 })
      expect((await js.admin.streams.info('EVENTS')).config).toMatchObject({ discard: 'new', max_bytes: 2 ** 30 })
      await using bridge = await start({ prefix: '', connect, sweep: SOON })
      await createReconciler(kube, 'gone', { for: configMaps })
      await untilEqual(kube, bridge.events, configMaps)
      await bridge.synced('configmaps.v1')
      await removeReconciler('gone')
      const stop = new AbortController()
      const options = { kube, queue: bridge.queue, deadLetter: async () => {}, log: silent, absentMs: 0, everyMs: 50 }
      const sweeping = createOrphanedKeySweeper(options).run(stop.signal, 0)
      await until(async () => (await bridge.queue.reconcilers()).length === 0, { what: 'its consumers are deleted' })
      stop.abort()
      await sweeping
      await untilSwept(bridge.events, configMaps)
    })
  })
})

/** As it would be to a bridge that does not understand what the Reconcilers ask for. */
function blind(kube: KubeClient): KubeClient {
  const isAboutReconcilers = (path: string) => path.startsWith(resourcePath(RECONCILERS))
  return {
    ...kube,
    async *watch(path, options) {
      for await (const event of kube.watch(path, options))
        if (!isAboutReconcilers(path) || event.type === 'BOOKMARK') yield event as never
    },
  }
}
