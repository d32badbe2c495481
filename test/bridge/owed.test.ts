import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { resourcePath, type WatchEvent, type WatchOptions } from '#kube'
import { RECONCILERS } from '#spec'
import { configMaps, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  configMapPath,
  createReconciler,
  grant,
  installWidgets,
  removeReconcilers,
  restrictedClient,
  startBridge,
  stored,
  until,
  untilCondition,
  writeConfigMap,
} from './world.ts'

let servers: Servers
let cluster: Servers['cluster']
let nats: Servers['nats']
let kube: Servers['kube']
let number = 0

beforeAll(async () => {
  servers = await startServers()
  ;({ cluster, nats, kube } = servers)
  await installWidgets(kube)
})

afterEach(async () => {
  await removeReconcilers(kube)
  for (const ref of [configMaps, widgets]) await kube.request({ method: 'DELETE', path: resourcePath(ref, 'default') })
})

afterAll(() => servers?.[Symbol.asyncDispose]())

const freshPrefix = () => `o${++number}`
const createMap = (name: string) => kube.create(configMapPath(), configMap(name, 'first'))
const createWidget = (spec: object = {}, name = 'w') =>
  kube.create(resourcePath(widgets, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Widget',
    metadata: { name, namespace: 'default' },
    spec,
  })
const here = { ...widgets, namespaces: ['default'] }
type Started = Awaited<ReturnType<typeof startBridge>>

const untilStored = ({ events }: Started, ref: typeof widgets, { metadata }: KubeObject) =>
  until(async () => (await stored(events, ref)).get(`default.${metadata.name}`) === metadata.resourceVersion, {
    what: 'it is stored',
  })

/** The API server does not answer a list of all ConfigMaps until `go`; `asked` resolves when it is asked for one. */
function withSlowLists() {
  const asked = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<void>()
  async function* watch<T>(path: string, options?: WatchOptions): AsyncGenerator<WatchEvent<T>, void, undefined> {
    if (path === resourcePath(configMaps) && options?.sendInitialEvents) {
      asked.resolve()
      await answer.promise
    }
    yield* kube.watch<T>(path, options)
  }
  return { kube: { ...kube, watch }, asked: asked.promise, go: answer.resolve }
}

describe('a change of a related object counts', () => {
  it.each([{}, { byName: 'spec.config' }])(
    'while the watch of its namespace becomes one of all, since somebody else asks for more (%o)',
    async (relation) => {
      await createMap('m')
      await createWidget({ config: 'm' })
      const slow = withSlowLists()
      await using bridge = await startBridge(slow.kube, nats.url, { prefix: freshPrefix() })
      await createReconciler(kube, 'one', { for: here, related: [{ ...configMaps, ...relation }] })
      await untilCondition(kube, 'one', 'Watching')
      await createReconciler(kube, 'two', { for: configMaps })
      await slow.asked
      bridge.enqueued.length = 0
      const changed = await writeConfigMap(kube, 'm', 'second')
      slow.go()
      await untilCondition(kube, 'two', 'Watching')
      await untilStored(bridge, configMaps, changed)
      await until(async () => bridge.keysOf('one').length > 0, { what: 'the key is enqueued' })
      expect(bridge.keysOf('one')).toEqual(['default.w'])
    },
  )

  it('once it may be seen, after somebody has asked for more than that, which is said of all whom it concerns', async () => {
    const verbs = ['get', 'list', 'watch', 'patch']
    await grant(kube, 'reconcilers', { apiGroups: [RECONCILERS.group], resources: ['*'], verbs })
    await grant(
      kube,
      'here',
      { apiGroups: ['', widgets.group], resources: ['configmaps', 'widgets'], verbs },
      'default',
    )
    await createMap('m')
    await createWidget()
    await using restricted = await restrictedClient(kube, cluster.kubeconfig)
    await using bridge = await startBridge(restricted, nats.url, { prefix: freshPrefix() })
    await createReconciler(kube, 'one', { for: here, related: [configMaps] })
    await untilCondition(kube, 'one', 'Watching')
    await createReconciler(kube, 'two', { for: configMaps })
    await untilCondition(kube, 'one', 'Forbidden')
    bridge.enqueued.length = 0
    await writeConfigMap(kube, 'm', 'second')
    await grant(kube, 'everywhere', { apiGroups: [''], resources: ['configmaps'], verbs })
    await untilCondition(kube, 'one', 'Watching')
    expect(bridge.keysOf('one')).toEqual(['default.w'])
  })

  it('for objects that are in no namespace, to which those of all namespaces are related', async () => {
    const classes = { group: 'storage.k8s.io', version: 'v1', resource: 'storageclasses', kind: 'StorageClass' }
    const ofStorage = { apiVersion: 'storage.k8s.io/v1', kind: 'StorageClass', metadata: { name: 's' } }
    await kube.create(resourcePath(classes), { ...ofStorage, provisioner: 'example.com/none' })
    await createMap('m')
    await createWidget()
    await using bridge = await startBridge(kube, nats.url, { prefix: freshPrefix() })
    await createReconciler(kube, 'class', { for: classes, related: [configMaps] })
    await createReconciler(kube, 'widget', { for: widgets, related: [configMaps] })
    for (const name of ['class', 'widget']) await untilCondition(kube, name, 'Watching')
    bridge.enqueued.length = 0
    await untilStored(bridge, configMaps, await writeConfigMap(kube, 'm', 'second'))
    await until(async () => bridge.enqueued.length >= 2, { what: 'both are enqueued' })
    expect([bridge.keysOf('class'), bridge.keysOf('widget')]).toEqual([['_.s'], ['default.w']])
    await kube.delete(resourcePath(classes, undefined, 's'))
  })

  it('though the bridge that first knew everything died before it, and another one has not listed yet', async () => {
    await createMap('m')
    await createWidget()
    const prefix = freshPrefix()
    const slow = withSlowLists()
    await using last = await startBridge(slow.kube, nats.url, { prefix })
    {
      await using first = await startBridge(kube, nats.url, { prefix })
      await createReconciler(kube, 'one', { for: widgets, related: [configMaps] })
      await untilCondition(kube, 'one', 'Watching')
      // Waits until the cursors claim that a dispatcher has run every key.
      await until(
        async () => Boolean((await first.events.cursor(configMaps))?.covers?.some((id) => id.startsWith('one@'))),
        { what: 'its cursor covers everybody' },
      )
      await last.synced('widgets.v1.example.com')
      await slow.asked
    }
    last.enqueued.length = 0
    const changed = await writeConfigMap(kube, 'm', 'second')
    slow.go()
    await last.synced('configmaps.v1')
    await untilStored(last, configMaps, changed)
    expect(last.keysOf('one')).toEqual(['default.w'])
  })
})

it('the first list of what is related enqueues each key once, however much that is, before a cursor lets any run', async () => {
  const names = Array.from({ length: 100 }, (_, index) => `w${index}`)
  await Promise.all(names.flatMap((name) => [createMap(name), createWidget({}, name)]))
  const slow = withSlowLists()
  await using bridge = await startBridge(slow.kube, nats.url, { prefix: freshPrefix() })
  await createReconciler(kube, 'one', { for: widgets, related: [configMaps] })
  await until(async () => bridge.enqueued.length === names.length, {
    what: 'the list of its own resource has enqueued them',
  })
  await slow.asked
  bridge.enqueued.length = 0
  slow.go()
  await cursorOf(bridge, configMaps)
  expect(bridge.enqueued.map(({ key }) => key).sort()).toEqual(names.map((name) => `default.${name}`).sort())
})

/** Resolves as soon as there is one. */
async function cursorOf({ events }: Started, { resource }: ResourceRef): Promise<void> {
  const enough = new AbortController()
  for await (const cursor of events.followCursors(enough.signal)) if (cursor.ref.resource === resource) enough.abort()
}

describe('what a Reconciler says is acted upon when EVENTS has it', () => {
  const some = { ...configMaps, selector: 'take=yes' }

  it.each([
    { when: 'at the start', generation: 1 },
    { when: 'after an edit', generation: 2 },
  ])('no key is queued for it before ($when)', async ({ generation }) => {
    await createMap('m')
    const started = Promise.withResolvers<Started>()
    const early = Promise.withResolvers<unknown[]>()
    let isHeld = false
    const before = async ({ metadata }: KubeObject) => {
      if (isHeld || metadata.name !== 'one' || metadata.generation !== generation) return
      isHeld = true
      const { enqueued } = await started.promise
      await until(async () => enqueued.length > 0, { what: 'a key is queued', timeoutMs: 1000 }).catch(() => {})
      early.resolve([...enqueued])
    }
    await createReconciler(kube, 'one', { for: generation === 1 ? configMaps : some })
    await using bridge = await startBridge(kube, nats.url, { prefix: freshPrefix(), before })
    started.resolve(bridge)
    await untilCondition(kube, 'one', 'Watching')
    const edit = { spec: { for: { selector: null } } }
    if (generation === 2) await kube.patch(resourcePath(RECONCILERS, undefined, 'one'), edit, 'merge')
    await until(async () => bridge.keysOf('one').includes('default.m'), { what: 'its key is queued' })
    expect(await early.promise).toEqual([])
  })
})
