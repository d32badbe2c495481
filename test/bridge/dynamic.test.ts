import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import type { TakeTrigger } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { storedConditions } from '../../bridge/conditions.ts'
import { configMaps, secrets, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  configMapPath,
  createReconciler,
  enqueuedBy,
  grant,
  installWidgets,
  moveWidgetsToV2,
  removeReconcilers,
  removeWidgets,
  restrictedClient,
  revoke,
  startBridge,
  stored,
  until,
  untilCondition,
  untilEqual,
  withSlowWatch,
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
  await kube.create('/api/v1/namespaces', { metadata: { name: 'other' } })
})

afterEach(async () => {
  await removeReconcilers(kube)
  for (const namespace of ['default', 'other'])
    for (const ref of [configMaps, widgets])
      await kube.request({ method: 'DELETE', path: resourcePath(ref, namespace) })
})

afterAll(() => servers?.[Symbol.asyncDispose]())

const start = (options: Partial<Parameters<typeof startBridge>[2]> = {}) =>
  startBridge(kube, nats.url, { prefix: `d${++number}`, ...options })
type Started = Awaited<ReturnType<typeof start>>

const createMap = (name: string, metadata: Partial<KubeObject['metadata']> = {}) =>
  kube.create(resourcePath(configMaps, metadata.namespace ?? 'default'), configMap(name, 'first', metadata))
const widgetPath = (name: string) => resourcePath(widgets, 'default', name)
const createWidget = (name: string, spec: object, namespace = 'default') =>
  kube.create(resourcePath(widgets, namespace), {
    apiVersion: 'example.com/v1',
    kind: 'Widget',
    metadata: { name, namespace },
    spec,
  })

describe('an update counts', () => {
  it('only for the aspects that the Reconciler looks at, where the version before is known', async () => {
    await createReconciler(kube, 'picky', { for: widgets, changes: ['Generation', 'Annotations'] })
    await createReconciler(kube, 'all', { for: configMaps })
    await createWidget('a', { size: 1 })
    await using bridge = await start()
    await bridge.synced('widgets.v1.example.com')
    await bridge.synced('configmaps.v1')
    // The watch of widgets may be behind that of ConfigMaps, by which a later change comes.
    const patch = async (body: object, version?: string) =>
      untilStored(bridge, await kube.patch<KubeObject>(widgetPath('a'), body, 'merge'), version)
    const runs = async (...patched: Parameters<typeof patch>) =>
      (await enqueuedBy(bridge, 'picky', () => patch(...patched))).length > 0
    await runs({ metadata: { annotations: { x: '1' } } })
    expect(await runs({ metadata: { labels: { x: '1' } } })).toBe(false)
    expect(await runs({ metadata: { annotations: { x: '2' } } })).toBe(true)
    expect(await runs({ spec: { size: 2 } })).toBe(true)
    expect(await runs({ metadata: { labels: { x: '2' } } })).toBe(false)
    expect(await runs({ metadata: { finalizers: ['example.com/x'] } })).toBe(false)
    const remove = async () => untilStored(bridge, (await kube.delete(widgetPath('a'))) as KubeObject)
    expect((await enqueuedBy(bridge, 'picky', remove)).length).toBe(1)
    expect(await runs({ metadata: { finalizers: null } }, 'deleted')).toBe(true)
  })

  const label = (size: string) => kube.patch<KubeObject>(widgetPath('a'), { metadata: { labels: { size } } }, 'merge')
  const untilStored = ({ events }: Started, { metadata }: KubeObject, version = metadata.resourceVersion) =>
    until(async () => (await stored(events, widgets)).get('default.a') === version, {
      what: 'it is stored',
    })

  it('beside what it was before it changed while nobody looked at aspects', async () => {
    await createReconciler(kube, 'picky', { for: widgets, changes: ['Labels'] })
    await createReconciler(kube, 'all', { for: configMaps })
    await using bridge = await start()
    await bridge.synced('configmaps.v1')
    const looksAt = async (changes: string[] | null) => {
      const path = resourcePath(RECONCILERS, undefined, 'picky')
      const { metadata } = await kube.patch<KubeObject>(path, { spec: { changes } }, 'merge')
      const known = async () => storedConditions(await kube.get(path))[0]?.observedGeneration
      await until(async () => (await known()) === metadata.generation, { what: 'the bridge knows' })
    }
    await createWidget('a', {})
    await untilStored(bridge, await label('first'))
    await looksAt(null)
    await untilStored(bridge, await label('second'))
    await looksAt(['Labels'])
    expect(await enqueuedBy(bridge, 'picky', async () => untilStored(bridge, await label('first')))).toEqual([
      'default.a',
    ])
  })

  it('beside what another bridge has stored, which a list finds unchanged', async () => {
    await createReconciler(kube, 'picky', { for: widgets, changes: ['Labels'] })
    await createWidget('a', {})
    const prefix = `beside${++number}`
    const slow = withSlowWatch(kube)
    await using behind = await startBridge(slow.kube, nats.url, { prefix })
    await behind.synced('widgets.v1.example.com')
    {
      await using ahead = await start({ prefix })
      await ahead.synced('widgets.v1.example.com')
      behind.enqueued.length = 0
      await label('first')
      await until(async () => behind.keysOf('picky').length > 0, { what: 'it is behind no more' })
      slow.isHeld = true
      ahead.enqueued.length = 0
      await label('second')
      await until(async () => ahead.keysOf('picky').length > 0, { what: 'the other one has it' })
    }
    await createReconciler(kube, 'other', { for: widgets })
    await until(async () => behind.keysOf('other').length > 0, { what: 'it has listed' })
    slow.isHeld = false
    behind.enqueued.length = 0
    await untilStored(behind, await label('first'))
    await until(async () => behind.bridge.status().resources.every(({ unconfirmed }) => unconfirmed === 0), {
      what: 'nothing is under way',
    })
    expect(behind.keysOf('picky')).toEqual(['default.a'])
  })
})

it('every key runs again in the low lane, once, when its Reconciler has changed or a second revision of the function is recorded', async () => {
  const path = resourcePath(RECONCILERS, undefined, 'revised')
  const record = (...names: string[]) => {
    const revisions = names.map((name) => ({ name, at: '2030-01-01T00:00:00Z' }))
    return kube.patch(`${path}/status`, { status: { revisions } }, 'merge')
  }
  await createReconciler(kube, 'revised', { for: { ...configMaps, namespaces: ['default'] } })
  await createMap('a')
  await using bridge = await start()
  await bridge.synced('configmaps.v1')
  const runs = () => bridge.enqueued.filter(({ key }) => key === 'default.a').map(({ lane }) => lane)
  const first = runs().length
  const causes = () => bridge.enqueued.filter(({ key }) => key === 'default.a').map(({ cause }) => cause)
  expect(causes()).toContain('first list of configmaps.v1')
  await kube.patch(path, { spec: { identity: 'revised-2' } }, 'merge')
  await until(async () => runs().length === first + 1, { what: 'it is queued again' })
  await record('r1')
  await record('r1', 'r2')
  await until(async () => runs().length === first + 2, { what: 'it is queued once more' })
  await createMap('b')
  await until(async () => bridge.enqueued.some(({ key }) => key === 'default.b'), { what: 'a later change has come' })
  expect(runs().slice(first)).toEqual(['low', 'low'])
  const changed = 'its Reconciler has changed'
  expect(causes().slice(first)).toEqual([changed, `${changed}: revision r2 of the function`])
  const later = bridge.enqueued.filter(({ key }) => key === 'default.b').map(({ cause }) => cause)
  expect(later[0]).toMatch(/^added ConfigMap\.v1 default\/b@\d+$/)
})

it('every key runs again in the low lane after the period of its Reconciler', async () => {
  await createReconciler(kube, 'again', { for: { ...configMaps, namespaces: ['default'] }, resyncSeconds: 1 })
  await createMap('a')
  await using bridge = await start()
  const again = { reconciler: 'again', key: 'default.a', lane: 'low', cause: 'resync' }
  await until(() => expect(bridge.enqueued).toContainEqual(again))
})

it('tells which Reconcilers are paused, and watches for them all the same', async () => {
  await createReconciler(kube, 'maps', { for: configMaps, paused: true })
  await createReconciler(kube, 'others', { for: configMaps })
  await createMap('a')
  await using bridge = await start()
  await untilCondition(kube, 'maps', 'Watching')
  expect(bridge.bridge.status().paused).toEqual(['maps'])
  expect(bridge.keysOf('maps')).toContain('default.a')
  await kube.patch(resourcePath(RECONCILERS, undefined, 'maps'), { spec: { paused: false } }, 'merge')
  await until(() => expect(bridge.bridge.status().paused).toEqual([]), { what: 'it is resumed' })
})

describe('what is watched', () => {
  it('is one watch for all who ask for the same, and only what anybody asks for', async () => {
    await createReconciler(kube, 'first', { for: { ...configMaps, selector: 'use=yes' } })
    await createReconciler(kube, 'second', { for: widgets, related: [{ ...configMaps, selector: 'use=yes' }] })
    await createMap('yes', { labels: { use: 'yes' } })
    await createMap('no')
    await using bridge = await start()
    await bridge.synced('configmaps.v1')
    const names = async () =>
      [...(await stored(bridge.events, configMaps))].filter(([key]) => key.startsWith('default.'))
    expect((await names()).map(([key]) => key)).toEqual(['default.yes'])
    expect(bridge.bridge.status().resources).toHaveLength(3)
    await createReconciler(kube, 'third', { for: { ...configMaps, selector: 'use=no' } })
    await until(async () => (await names()).length === 2, { what: 'everything is watched' })
    expect(bridge.bridge.status().resources).toHaveLength(3)
    await until(async () => bridge.bridge.status().resources.every(({ synced }) => synced), { what: 'all are served' })
    expect(bridge.keysOf('third')).toEqual([])
  })

  it.each([
    { how: 'by a change of its labels', bridges: 1 },
    { how: 'by a change of the selector', bridges: 2 },
  ])('is there again, unchanged, once it is selected after it had left $how', async ({ how, bridges }) => {
    const name = `left-${++number}`
    const select = (selector: string) =>
      kube.patch(resourcePath(RECONCILERS, undefined, 'narrow'), { spec: { for: { selector } } }, 'merge')
    await createReconciler(kube, 'narrow', { for: { ...configMaps, selector: 'use=yes' } })
    await createMap(name, { labels: { use: 'yes' } })
    const prefix = `left${++number}`
    await using first = await start({ prefix })
    await using last = bridges === 1 ? first : await start({ prefix })
    await first.synced('configmaps.v1')
    await last.synced('configmaps.v1')
    const version = async () => (await stored(first.events, configMaps)).get(`default.${name}`)
    if (how.endsWith('labels')) await kube.patch(configMapPath(name), { metadata: { labels: { use: 'no' } } }, 'merge')
    else await select('use=never')
    await until(async () => (await version()) === 'deleted', { what: 'it has left' })
    const { metadata } = await kube.get(configMapPath(name))
    await createReconciler(kube, 'other', { for: { ...configMaps, selector: `use=${metadata.labels?.['use']}` } })
    await until(async () => (await version()) === metadata.resourceVersion, { what: 'it is there' })
    const runs = () => [first, last].flatMap((bridge) => bridge.keysOf('other'))
    await until(async () => runs().includes(`default.${name}`), { what: 'it runs' })
  })

  it('are the namespaces that all who ask name, with the rights for these only', async () => {
    const verbs = ['get', 'list', 'watch', 'patch']
    await grant(kube, 'only-reconcilers', { apiGroups: [RECONCILERS.group], resources: ['*'], verbs })
    await grant(kube, 'only-other', { apiGroups: [''], resources: ['configmaps'], verbs }, 'other')
    await createMap('a', { namespace: 'other' })
    await createMap('a')
    await createReconciler(kube, 'there', { for: { ...configMaps, namespaces: ['other'] } })
    await using restricted = await restrictedClient(kube, cluster.kubeconfig)
    await using bridge = await startBridge(restricted, nats.url, { prefix: `d${++number}` })
    await untilCondition(kube, 'there', 'Watching')
    expect([...(await stored(bridge.events, configMaps)).keys()]).toEqual(['other.a'])
    await until(async () => bridge.keysOf('there').length > 0, { what: 'its key is queued, which follows' })
    expect(bridge.keysOf('there')).toEqual(['other.a'])
    await revoke(kube, 'only-reconcilers')
  })

  it('are stored only in the namespaces that somebody names, also if they are too many for a watch each', async () => {
    const many = Array.from({ length: 16 }, (_, index) => `absent-${index}`)
    await createMap('a', { namespace: 'other' })
    await createMap('a')
    await createReconciler(kube, 'there', { for: { ...configMaps, namespaces: ['other', ...many] } })
    await using bridge = await start()
    await untilCondition(kube, 'there', 'Watching')
    expect(bridge.bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1')?.namespace).toBe(
      undefined,
    )
    await enqueuedBy(bridge, 'there', () => createMap('b'))
    const places = async () =>
      new Set([...(await stored(bridge.events, configMaps)).keys()].map((key) => key.split('.')[0]))
    expect(await places()).toEqual(new Set(['other']))
    await createReconciler(kube, 'here', { for: { ...configMaps, namespaces: ['default'] } })
    await until(() => bridge.keysOf('here').includes('default.b'), { what: 'all that exist run' })
    expect(bridge.keysOf('here')).toContain('default.a')
    expect(await places()).toEqual(new Set(['other', 'default']))
  })

  it('are metadata only where nobody needs more, and whole objects as soon as somebody does', async () => {
    const related = [{ ...configMaps, metadataOnly: true, fieldSelector: 'metadata.namespace=default' }]
    await createReconciler(kube, 'frugal', { for: widgets, related })
    await createMap('a')
    await createWidget('w', {})
    await using bridge = await start()
    await bridge.synced('configmaps.v1')
    const one = async () => {
      const { primary } = await bridge.events.observe({ primary: { ref: configMaps, namespace: 'default', name: 'a' } })
      return { kind: primary?.object.kind, data: primary?.object['data'], referenceOnly: primary?.referenceOnly }
    }
    expect(await one()).toEqual({ kind: 'ConfigMap', data: undefined, referenceOnly: true })
    await writeConfigMap(kube, 'a', 'second')
    await until(async () => bridge.keysOf('frugal').includes('default.w'), { what: 'the related change is routed' })
    await createReconciler(kube, 'thorough', { for: configMaps })
    await until(async () => (await one()).referenceOnly === false, { what: 'it is whole' })
    expect(await one()).toEqual({ kind: 'ConfigMap', data: { value: 'second' }, referenceOnly: false })
    await until(async () => bridge.keysOf('thorough').includes('default.a'), { what: 'it runs' })
  })
})

describe('a Reconciler that names the kind of another resource', () => {
  const accounts = { group: '', version: 'v1', resource: 'serviceaccounts', kind: 'ServiceAccount' }
  const owns = [{ ...secrets, strategy: 'Apply' as const }]
  const createOwned = async (name: string, owner: KubeObject) => {
    const { uid } = owner.metadata
    const ownerReferences = [{ apiVersion: 'v1', kind: 'ConfigMap', name: owner.metadata.name, uid, controller: true }]
    return kube.create(resourcePath(secrets, 'default'), { metadata: { name, ownerReferences } })
  }

  it('takes no routing of that one, is told why, and is served once it is corrected', async () => {
    await createReconciler(kube, 'maps', { for: configMaps, owns })
    await createReconciler(kube, 'thief', { for: { ...accounts, kind: 'ConfigMap' }, owns })
    await createReconciler(kube, 'unserved', { for: { ...accounts, resource: 'nothings', kind: 'ConfigMap' }, owns })
    const map = await createMap('m')
    await using bridge = await start()
    await untilCondition(kube, 'maps', 'Watching')
    await untilCondition(kube, 'thief', 'KindMismatch')
    await untilCondition(kube, 'unserved', 'KindUnknown')
    expect(await enqueuedBy(bridge, 'maps', () => createOwned(`owned-${++number}`, map))).toContain('default.m')
    expect([...bridge.keysOf('thief'), ...bridge.keysOf('unserved')]).toEqual([])
    const { conditions } = (await kube.get<KubeObject>(resourcePath(RECONCILERS, undefined, 'thief'))).status as {
      conditions: { message: string }[]
    }
    expect(conditions[0]?.message).toContain('serviceaccounts.v1 as ConfigMap, but the API server serves it as Service')
    await kube.patch(resourcePath(RECONCILERS, undefined, 'thief'), { spec: { for: accounts } }, 'merge')
    await untilCondition(kube, 'thief', 'Watching')
    await kube.patch(resourcePath(RECONCILERS, undefined, 'thief'), { spec: { for: { kind: 'ConfigMap' } } }, 'merge')
    await untilCondition(kube, 'thief', 'KindMismatch')
    expect(await enqueuedBy(bridge, 'maps', () => createOwned(`owned-${++number}`, map))).toContain('default.m')
  })

  it('does not keep others from their routing while the API server does not tell kinds', async () => {
    const mute: KubeClient = {
      ...kube,
      get: (path, options) => (path === '/api/v1' ? Promise.reject(new Error('503')) : kube.get(path, options)),
    }
    await createReconciler(kube, 'maps', { for: configMaps })
    await using bridge = await startBridge(mute, nats.url, { prefix: `d${++number}` })
    await untilCondition(kube, 'maps', 'Watching')
    await createMap('m')
    await until(() => bridge.keysOf('maps').includes('default.m'), { what: 'its key is queued' })
  })
})

describe('what cannot be watched', () => {
  it('since its definition has gone is said, and heals with another one, whatever its scope', async () => {
    await createReconciler(kube, 'widget', { for: { ...widgets, namespaces: ['default'] } })
    await createWidget('a', {})
    await using bridge = await start()
    await untilCondition(kube, 'widget', 'Watching')
    await removeWidgets(kube)
    await untilCondition(kube, 'widget', 'ResourceNotFound')
    await installWidgets(kube, 'Cluster')
    await kube.create(resourcePath(widgets), {
      apiVersion: 'example.com/v1',
      kind: 'Widget',
      metadata: { name: 'wide' },
    })
    await untilCondition(kube, 'widget', 'Watching')
    await until(async () => bridge.keysOf('widget').includes('_.wide'), { what: 'it runs' })
    await until(async () => bridge.enqueued.length >= 2, { what: 'the old one is known to be gone' })
    await removeWidgets(kube)
    await installWidgets(kube)
  })

  it('since its version is not served any more is said, and heals when the Reconciler asks for the next one', async () => {
    await createReconciler(kube, 'widget', { for: widgets })
    await createWidget('a', {})
    await using bridge = await start()
    await untilCondition(kube, 'widget', 'Watching')
    await moveWidgetsToV2(kube)
    await untilCondition(kube, 'widget', 'ResourceNotFound')
    bridge.enqueued.length = 0
    await kube.patch(resourcePath(RECONCILERS, undefined, 'widget'), { spec: { for: { version: 'v2' } } }, 'merge')
    await untilCondition(kube, 'widget', 'Watching')
    expect(bridge.keysOf('widget')).toEqual(['default.a'])
    expect(await stored(bridge.events, { ...widgets, version: 'v2' })).toHaveProperty('size', 1)
    await removeWidgets(kube)
    await installWidgets(kube)
  })

  it('since the rights were taken away is said, and heals when they are back', async () => {
    const verbs = ['get', 'list', 'watch', 'patch']
    await grant(kube, 'reconcilers-again', { apiGroups: [RECONCILERS.group], resources: ['*'], verbs })
    await grant(kube, 'maps-again', { apiGroups: [''], resources: ['configmaps'], verbs })
    await createReconciler(kube, 'maps', { for: configMaps })
    await using restricted = await restrictedClient(kube, cluster.kubeconfig)
    await using bridge = await startBridge(restricted, nats.url, { prefix: `d${++number}` })
    await untilCondition(kube, 'maps', 'Watching')
    await revoke(kube, 'maps-again')
    // An open watch keeps its permissions until it is opened again (Kubernetes 1.36).
    await cluster.restart('kube-apiserver')
    await untilCondition(kube, 'maps', 'Forbidden')
    await createMap('meanwhile')
    await grant(kube, 'maps-once-more', { apiGroups: [''], resources: ['configmaps'], verbs })
    await until(async () => bridge.keysOf('maps').includes('default.meanwhile'), {
      what: 'what happened meanwhile is enqueued',
    })
    await untilCondition(kube, 'maps', 'Watching')
  })
})

it('a trigger without the namespace of its object is refused, whatever namespaces are watched', async () => {
  const taken = Promise.withResolvers<TakeTrigger>()
  await createReconciler(kube, 'there', { for: { ...configMaps, namespaces: ['default'] } })
  await using _ = await start({ triggers: async (take) => taken.resolve(take) })
  await untilCondition(kube, 'there', 'Watching')
  const take = await taken.promise
  const ask = (namespace?: string) => take({ reconciler: 'there', of: { namespace, name: 'none' }, cause: '' })
  await until(async () => expect(await ask()).toEqual({ refused: 'there is no ConfigMap none' }))
  expect(await ask('other')).toEqual({ refused: expect.stringContaining('is not for the namespace other') })
})

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
    await using bridge = await start({ before })
    started.resolve(bridge)
    await untilCondition(kube, 'one', 'Watching')
    const edit = { spec: { for: { selector: null } } }
    if (generation === 2) await kube.patch(resourcePath(RECONCILERS, undefined, 'one'), edit, 'merge')
    await until(async () => bridge.keysOf('one').includes('default.m'), { what: 'its key is queued' })
    expect(await early.promise).toEqual([])
  })
})

it.each([
  { asked: 'any of them', selection: {}, isMetadata: true },
  {
    asked: 'those of a type, which metadata do not tell',
    selection: { fieldSelector: 'type=Opaque' },
    isMetadata: false,
  },
])(
  'of Secrets nothing but metadata is read from the API server, unless it is needed (asked for: $asked)',
  async (row) => {
    const told: object[] = []
    const watched: KubeClient = {
      ...kube,
      async *watch(path, options) {
        for await (const event of kube.watch(path, options)) {
          if (path.startsWith(resourcePath(secrets)) && event.type !== 'BOOKMARK') told.push(event.object)
          yield event as never
        }
      },
    }
    const path = resourcePath(secrets, 'default')
    const name = `s-${row.isMetadata}`
    await kube.create(path, {
      metadata: { name, labels: { a: 'b' } },
      type: 'Opaque',
      stringData: { password: 'hidden' },
    })
    await createReconciler(kube, 'secrets', { for: { ...secrets, ...row.selection } })
    await using bridge = await startBridge(watched, nats.url, { prefix: name })
    await untilEqual(kube, bridge.events, secrets)
    bridge.enqueued.length = 0
    await kube.patch(`${path}/${name}`, { stringData: { password: 'changed' } }, 'merge')
    await until(async () => bridge.keysOf('secrets').includes(`default.${name}`), {
      what: 'a change of the contents makes it run',
    })
    expect(told.some((object) => 'data' in object)).toBe(!row.isMetadata)
    const { primary } = await bridge.events.observe({ primary: { ref: secrets, namespace: 'default', name } })
    const { apiVersion, kind, metadata, ...rest } = primary!.object
    expect([apiVersion, kind, metadata.labels, rest]).toEqual(['v1', 'Secret', { a: 'b' }, {}])
  },
)
