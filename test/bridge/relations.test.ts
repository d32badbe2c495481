import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import type { EventStore } from '#events'
import { resourcePath, type WatchEvent, type WatchOptions } from '#kube'
import { RECONCILERS } from '#spec'
import { Relations } from '../../bridge/relations.ts'
import { Routes } from '../../bridge/routing.ts'
import { openStore } from '../events/objects.ts'
import { configMaps, object, reconciler, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  createReconciler,
  enqueuedBy,
  grant,
  installWidgets,
  removeReconcilers,
  restrictedClient,
  silent,
  startBridge,
  stored,
  until,
  untilCondition,
  withSlowWatch,
} from './world.ts'

let servers: Servers
let nats: Servers['nats']
let kube: Servers['kube']
let number = 0
const NAMESPACES = ['one', 'two', 'other', 'default']
const CLASSES = { group: 'storage.k8s.io', version: 'v1', resource: 'storageclasses', kind: 'StorageClass' }

beforeAll(async () => {
  servers = await startServers()
  ;({ nats, kube } = servers)
  await installWidgets(kube)
  for (const name of ['one', 'two', 'other']) await kube.create('/api/v1/namespaces', { metadata: { name } })
})

afterEach(async () => {
  await removeReconcilers(kube)
  for (const namespace of NAMESPACES)
    for (const ref of [configMaps, widgets])
      await kube.request({ method: 'DELETE', path: resourcePath(ref, namespace) })
})

afterAll(() => servers?.[Symbol.asyncDispose]())

type Started = Awaited<ReturnType<typeof startBridge>>
type Labels = Record<string, string | null>

const freshPrefix = () => `r${++number}`
const start = (prefix = freshPrefix(), client = kube) => startBridge(client, nats.url, { prefix })

const createMap = (namespace: string, name: string, labels: Record<string, string> = {}) =>
  kube.create(resourcePath(configMaps, namespace), configMap(name, 'first', { namespace, labels }))
const change = (namespace: string, name: string, labels: Labels = {}): Promise<KubeObject> =>
  kube.patch(resourcePath(configMaps, namespace, name), { metadata: { labels }, data: { at: `${++number}` } }, 'merge')
const createWidget = (name: string, more: object = {}, namespace = 'default') =>
  kube.create<KubeObject>(resourcePath(widgets, namespace), {
    apiVersion: 'example.com/v1',
    kind: 'Widget',
    metadata: { name, namespace },
    ...more,
  })
const patchWidget = (name: string, patch: object): Promise<KubeObject> =>
  kube.patch(resourcePath(widgets, 'default', name), patch, 'merge')

/** Resolves when the initial keys of the Reconcilers are enqueued. */
async function untilCovered({ events }: Started, reconcilers: readonly string[], refs: ResourceRef[] = [widgets]) {
  const cursors = async () =>
    Promise.all([...refs, configMaps].map(async (ref) => (await events.cursor(ref)) ?? events.cursor(ref, 'default')))
  const isCovered = async () =>
    (await cursors()).every((cursor) =>
      reconcilers.every((name) => cursor?.covers?.some((id) => id.startsWith(`${name}@`))),
    )
  await until(isCovered, { what: `the cursors cover ${reconcilers.join()}` })
}

/** Resolves when the bridge has stored and enqueued that version of an object, or its deletion. */
const untilKnown = (
  { events, bridge }: Started,
  ref: typeof widgets,
  { metadata }: KubeObject,
  version = metadata.resourceVersion,
) =>
  until(
    async () =>
      (await stored(events, ref)).get(`${metadata.namespace ?? '_'}.${metadata.name}`) === version &&
      bridge.status().resources.every(({ unconfirmed }) => unconfirmed === 0),
    { what: `${metadata.name} is stored` },
  )

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

const named = { ...configMaps, byName: 'spec.configs[*].name' }
const placed = { ...configMaps, namespacePath: 'status.namespace' }
const inNamespace = (namespace: unknown) => ({ status: { namespace } })

describe('a change of a related object runs', () => {
  const RELATIONS: Record<string, object> = {
    named,
    placed,
    pairs: { ...configMaps, byName: 'spec.refs[*].name', namespacePath: 'spec.refs[*].namespace' },
    chosen: { ...placed, selector: 'use=yes' },
    near: { ...configMaps, selector: 'use=yes' },
  }
  type Runs = Partial<Record<keyof typeof RELATIONS, string>>
  const refs = (...pairs: [namespace: string | undefined, name: string][]) =>
    pairs.map(([namespace, name]) => ({ name, ...(namespace && { namespace }) }))

  /** The keys that a change has enqueued, by Reconciler. */
  const runsOf = async (bridge: Started, act: () => Promise<unknown>): Promise<Runs> => {
    await enqueuedBy(bridge, 'named', act)
    const keys = Object.keys(RELATIONS).map((name) => [
      name,
      bridge
        .keysOf(name)
        .map((key) => key.replace('default.', ''))
        .join(),
    ])
    return Object.fromEntries(keys.filter(([, found]) => found !== '')) as Runs
  }
  const runsOfChanges = async (bridge: Started, changes: Record<string, Runs>) => {
    const found: Record<string, Runs> = {}
    for (const path of Object.keys(changes)) {
      const [namespace = '', name = ''] = path.split('/')
      found[path] = await runsOf(bridge, () => change(namespace, name))
    }
    return found
  }

  it('whoever names it, its namespace or both, or is near it, by what is there now, also after a restart', async () => {
    for (const namespace of ['one', 'two', 'default']) {
      for (const name of ['x', 'y']) await createMap(namespace, name)
      await createMap(namespace, 'in', { use: 'yes' })
    }
    await createWidget('a', {
      spec: { configs: refs([undefined, 'x'], [undefined, 'y']), refs: refs(['one', 'x'], ['two', 'x']) },
      ...inNamespace('one'),
    })
    await createWidget('b', {
      spec: { configs: refs([undefined, 'x']), refs: refs(['one', 'y']) },
      ...inNamespace('one'),
    })
    await createWidget('c', { spec: { refs: refs([undefined, 'x']) }, ...inNamespace('two') })
    await createWidget('odd', inNamespace({ name: 'one' }))
    await createReconciler(kube, 'all', { for: configMaps })
    for (const [name, relation] of Object.entries(RELATIONS))
      await createReconciler(kube, name, { for: widgets, related: [relation] })
    const prefix = freshPrefix()
    const moved = {
      'default/x': { named: 'a' },
      'default/z': { named: 'b' },
      'one/x': { placed: 'a' },
      'one/y': { placed: 'a', pairs: 'b' },
      'two/x': { placed: 'b' },
      'two/y': { placed: 'b', pairs: 'a' },
      'two/in': { placed: 'b', chosen: 'b' },
    }
    {
      await using bridge = await start(prefix)
      await untilCovered(bridge, Object.keys(RELATIONS))
      const first = {
        'default/x': { named: 'a,b' },
        'default/y': { named: 'a' },
        'default/in': { near: 'a,b,c,odd' },
        'one/x': { placed: 'a,b', pairs: 'a' },
        'one/y': { placed: 'a,b', pairs: 'b' },
        'one/in': { placed: 'a,b', chosen: 'a,b' },
        'two/x': { placed: 'c', pairs: 'a' },
        'two/y': { placed: 'c' },
        'two/in': { placed: 'c', chosen: 'c' },
      }
      expect(await runsOfChanges(bridge, first)).toEqual(first)
      expect(await runsOf(bridge, () => createMap('other', 'x'))).toEqual({})
      const path = resourcePath(configMaps, 'default', 'y')
      expect(await runsOf(bridge, () => kube.delete(path))).toEqual({ named: 'a' })

      await createMap('default', 'z')
      await untilKnown(bridge, widgets, await patchWidget('a', { spec: { refs: refs(['two', 'y']) } }))
      await untilKnown(
        bridge,
        widgets,
        await patchWidget('b', { spec: { configs: refs([undefined, 'z']) }, ...inNamespace('two') }),
      )
      await untilKnown(bridge, widgets, await patchWidget('c', inNamespace(null)))
      expect(await runsOfChanges(bridge, moved)).toEqual(moved)
      await bridge.rested()
    }
    await using bridge = await start(prefix)
    await untilCovered(bridge, Object.keys(RELATIONS))
    expect(await runsOfChanges(bridge, moved)).toEqual(moved)
    expect(bridge.relists.filter(({ resource }) => resource.startsWith('widgets'))).toEqual([])
    const leaves = () => change('two', 'in', { use: 'no' })
    expect(await runsOf(bridge, leaves), 'it ceases to match').toEqual({ placed: 'b', chosen: 'b' })
    expect(await runsOf(bridge, leaves)).toEqual({ placed: 'b' })
    const gone = await kube.get<KubeObject>(resourcePath(widgets, 'default', 'b'))
    await kube.delete(resourcePath(widgets, 'default', 'b'))
    await untilKnown(bridge, widgets, gone, 'deleted')
    expect(await runsOf(bridge, () => change('two', 'x'))).toEqual({})
  })

  it('all that are near it, when it begins to match, changes and ceases to match, where nobody watches more', async () => {
    await createReconciler(kube, 'near', { for: widgets, related: [RELATIONS['near']!] })
    await createMap('other', 'far', { use: 'yes' })
    await createMap('default', 'plain')
    for (const name of ['a', 'b']) await createWidget(name)
    await createWidget('c', {}, 'other')
    const prefix = freshPrefix()
    const label = (use: string) => () => change('default', 'plain', { use })
    const near = async (bridge: Started, act: () => Promise<unknown>, expected: string) => {
      bridge.enqueued.length = 0
      await act()
      await until(async () => bridge.keysOf('near').join() === expected, { what: `${expected} are enqueued` })
    }
    {
      await using bridge = await start(prefix)
      await untilCovered(bridge, ['near'])
      await near(bridge, label('yes'), 'default.a,default.b')
      await near(bridge, label('yes'), 'default.a,default.b')
      await bridge.rested()
    }
    await using bridge = await start(prefix)
    await bridge.synced('configmaps.v1')
    await near(bridge, label('no'), 'default.a,default.b')
    await label('no-more')()
    await near(bridge, () => kube.delete(resourcePath(configMaps, 'other', 'far')), 'other.c')
  })

  it('each of them once for many changes at once, also those of other namespaces', async () => {
    await createReconciler(kube, 'wide', { for: widgets, related: [{ ...configMaps, within: 'Cluster' }] })
    await createReconciler(kube, 'placed', { for: widgets, related: [placed] })
    await createWidget('a', inNamespace('one'))
    await createWidget('c', {}, 'other')
    await using bridge = await start()
    await untilCovered(bridge, ['wide', 'placed'])
    bridge.enqueued.length = 0
    const unconfirmed = () =>
      bridge.bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1')?.unconfirmed
    nats.signal('SIGSTOP')
    await Promise.all(Array.from({ length: 100 }, (_, i) => createMap('one', `many-${i}`)))
    await until(async () => unconfirmed() === 100, { what: 'all are read' }).finally(() => nats.signal('SIGCONT'))
    await until(async () => bridge.bridge.status().resources.every((r) => r.unconfirmed === 0), {
      what: 'everything is confirmed',
    })
    expect([bridge.keysOf('wide'), bridge.keysOf('placed')]).toEqual([['default.a', 'other.c'], ['default.a']])
    expect(bridge.enqueued.length).toBeLessThan(100)
  })

  it('those that name it by what another bridge has stored, which a list finds unchanged', async () => {
    await createReconciler(kube, 'named', { for: widgets, related: [named] })
    await createMap('default', 'one')
    await createWidget('a')
    const prefix = freshPrefix()
    const slow = withSlowWatch(kube)
    await using behind = await start(prefix, slow.kube)
    await untilCovered(behind, ['named'])
    slow.isHeld = true
    {
      await using ahead = await start(prefix)
      await ahead.synced('widgets.v1.example.com')
      ahead.enqueued.length = 0
      await patchWidget('a', { spec: { configs: refs([undefined, 'one']) } })
      await until(async () => ahead.keysOf('named').length > 0, { what: 'the other one has it' })
    }
    await createReconciler(kube, 'other', { for: widgets })
    await until(async () => behind.keysOf('other').length > 0, { what: 'it has listed' })
    expect(await enqueuedBy(behind, 'named', () => change('default', 'one'))).toEqual(['default.a'])
  })

  it('a primary of which EVENTS has only a reference, also after a restart', async () => {
    await createReconciler(kube, 'placed', { for: widgets, related: [placed] })
    await createMap('one', 'c')
    await createWidget('large', { spec: { data: 'x'.repeat(600 * 1024) }, ...inNamespace('one') })
    await createWidget('small', inNamespace('two'))
    const prefix = freshPrefix()
    for (const time of ['first', 'second']) {
      await using bridge = await start(prefix)
      await untilCovered(bridge, ['placed'])
      expect(await enqueuedBy(bridge, 'placed', () => change('one', 'c'))).toEqual(['default.large'])
      await untilKnown(bridge, widgets, await patchWidget('large', { metadata: { labels: { time } } }))
      expect(await enqueuedBy(bridge, 'placed', () => createMap('other', time))).toEqual([])
    }
  })

  it('each owner that it has and had, be it its controller or not, also after a restart', async () => {
    const path = (name: string) => resourcePath(configMaps, 'default', name)
    const storage = await kube.create<KubeObject>(resourcePath(CLASSES), {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'owns' },
      provisioner: 'example.com/none',
    })
    const owners: KubeObject[] = []
    for (const name of ['a', 'b', 'c']) owners.push(await createWidget(name))
    const [a, b] = owners
    const refTo = ({ apiVersion, kind, metadata: { name, uid } }: KubeObject, controller = false) => ({
      apiVersion,
      kind,
      name,
      uid,
      controller,
    })
    const owned = (...ownerReferences: object[]) => ({ metadata: { ownerReferences } })
    for (const name of ['shared', 'lone']) await createMap('default', name)
    await kube.patch(path('shared'), owned(refTo(a!), refTo(b!, true), refTo(storage)), 'merge')
    await createReconciler(kube, 'widget', { for: widgets, related: [{ ...configMaps, byOwner: true }] })
    await createReconciler(kube, 'class', { for: CLASSES, related: [{ ...configMaps, byOwner: true }] })
    const prefix = freshPrefix()
    const runs = async (bridge: Started, act: () => Promise<unknown>) => {
      await enqueuedBy(bridge, 'widget', act)
      return { widget: bridge.keysOf('widget'), class: bridge.keysOf('class') }
    }
    {
      await using bridge = await start(prefix)
      await untilCovered(bridge, ['widget'])
      await untilCovered(bridge, ['class'], [CLASSES])
      const all = { widget: ['default.a', 'default.b'], class: ['_.owns'] }
      expect(await runs(bridge, () => change('default', 'shared'))).toEqual(all)
      expect(await runs(bridge, () => change('default', 'lone'))).toEqual({ widget: [], class: [] })
      await bridge.rested()
    }
    await using bridge = await start(prefix)
    await bridge.synced(resourceName(configMaps))
    const withoutA = () => kube.patch(path('shared'), owned(refTo(b!), refTo(storage)), 'merge')
    expect((await runs(bridge, withoutA)).widget, 'a loses it').toEqual(['default.a', 'default.b'])
    expect((await runs(bridge, () => change('default', 'shared'))).widget).toEqual(['default.b'])
    expect(await runs(bridge, () => kube.delete(path('shared')))).toEqual({ widget: ['default.b'], class: ['_.owns'] })
    await kube.delete(resourcePath(CLASSES, undefined, 'owns'))
  })

  it('each primary that its field names and did name, of that namespace or of none, also after a restart', async () => {
    const naming = (name: string) => ({ ...configMaps, naming: name })
    for (const name of ['a', 'b', 'c']) await createWidget(name)
    await createWidget('b', {}, 'one')
    await kube.create(resourcePath(CLASSES), {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'names' },
      provisioner: 'example.com/none',
    })
    await createMap('default', 'lone')
    await createMap('default', 'm')
    const names = (data: object, annotation: string | null = null) =>
      kube.patch(
        resourcePath(configMaps, 'default', 'm'),
        { metadata: { annotations: { of: annotation } }, data },
        'merge',
      )
    await names({ widget: 'a', class: 'names' }, 'c')
    await createReconciler(kube, 'widget', { for: widgets, related: [naming('data.widget')] })
    await createReconciler(kube, 'noted', { for: widgets, related: [naming("metadata.annotations['of']")] })
    await createReconciler(kube, 'class', { for: CLASSES, related: [naming('data.class')] })
    const shared = { ...naming('data.widget'), byName: "metadata.annotations['like']" }
    await createReconciler(kube, 'shared', { for: widgets, related: [shared] })
    await patchWidget('c', { metadata: { annotations: { like: 'a' } } })
    const prefix = freshPrefix()
    const runs = async (bridge: Started, act: () => Promise<unknown>) => {
      await enqueuedBy(bridge, 'widget', act)
      return ['widget', 'noted', 'class', 'shared'].map((name) => bridge.keysOf(name))
    }
    {
      await using bridge = await start(prefix)
      await untilCovered(bridge, ['widget', 'noted', 'shared'])
      await untilCovered(bridge, ['class'], [CLASSES])
      expect(await runs(bridge, () => change('default', 'm'))).toEqual([
        ['default.a'],
        ['default.c'],
        ['_.names'],
        ['default.c'],
      ])
      expect(await runs(bridge, () => change('default', 'lone'))).toEqual([[], [], [], []])
      await bridge.rested()
    }
    await using bridge = await start(prefix)
    await bridge.synced(resourceName(configMaps))
    await untilKnown(bridge, widgets, await patchWidget('b', { metadata: { annotations: { like: 'b' } } }))
    const both = [['default.a', 'default.b'], ['default.c'], ['_.names'], ['default.b', 'default.c']]
    expect(await runs(bridge, () => names({ widget: 'b' }, 'c')), 'a loses it').toEqual(both)
    const other = [['default.b'], ['default.c'], ['_.names'], ['default.b']]
    expect(await runs(bridge, () => names({ widget: '../b', class: null }))).toEqual(other)
    expect(await runs(bridge, () => kube.delete(resourcePath(configMaps, 'default', 'm')))).toEqual([[], [], [], []])
    await kube.delete(resourcePath(CLASSES, undefined, 'names'))
  })

  it.each([3, 2000])('of %i owners that it names, those that exist', async (count) => {
    const owner = await createWidget('a')
    await createWidget('b')
    const { apiVersion, kind } = owner
    const { uid } = owner.metadata
    const ownerReferences = Array.from({ length: count }, (_, index) =>
      index === 0 ? { apiVersion, kind, name: 'a', uid } : { apiVersion, kind, name: `none-${index}`, uid: `${index}` },
    )
    await createReconciler(kube, 'widget', { for: widgets, related: [{ ...configMaps, byOwner: true }] })
    await using bridge = await start()
    await untilCondition(kube, 'widget', 'Watching')
    const create = () =>
      kube.create(
        resourcePath(configMaps, 'default'),
        configMap('owned', 'first', { ownerReferences } as Partial<KubeObject['metadata']>),
      )
    expect(await enqueuedBy(bridge, 'widget', create)).toEqual(['default.a'])
  })

  it('primaries that are in no namespace: of all namespaces, or of the one that they name now, also after a restart', async () => {
    const classPath = resourcePath(CLASSES, undefined, 's')
    await kube.create(resourcePath(CLASSES), {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 's', labels: { in: 'one' } },
      provisioner: 'example.com/none',
    })
    for (const namespace of ['one', 'two', 'default']) await createMap(namespace, 'm')
    await createWidget('w')
    await createReconciler(kube, 'class', { for: CLASSES, related: [configMaps] })
    const byLabel = { ...configMaps, namespacePath: 'metadata.labels.in' }
    await createReconciler(kube, 'labelled', { for: CLASSES, related: [byLabel] })
    await createReconciler(kube, 'widget', { for: widgets, related: [configMaps] })
    const prefix = freshPrefix()
    {
      await using bridge = await start(prefix)
      await untilCovered(bridge, ['class', 'labelled'], [CLASSES])
      await untilCovered(bridge, ['widget'])
      bridge.enqueued.length = 0
      await untilKnown(bridge, configMaps, await change('default', 'm'))
      expect(['class', 'labelled', 'widget'].map((name) => bridge.keysOf(name))).toEqual([['_.s'], [], ['default.w']])
      expect(await enqueuedBy(bridge, 'labelled', () => change('one', 'm'))).toEqual(['_.s'])
      const labelled = await kube.patch<KubeObject>(classPath, { metadata: { labels: { in: 'two' } } }, 'merge')
      await untilKnown(bridge, CLASSES, labelled)
      expect(await enqueuedBy(bridge, 'labelled', () => change('one', 'm'))).toEqual([])
      await bridge.rested()
    }
    await using bridge = await start(prefix)
    await bridge.synced(resourceName(configMaps))
    expect(await enqueuedBy(bridge, 'labelled', () => change('two', 'm'))).toEqual(['_.s'])
    await kube.delete(classPath)
  })

  it('primaries of a Reconciler for some namespaces, though it is in another one that a field names', async () => {
    await createMap('one', 'far')
    await createWidget('w', inNamespace('one'))
    await createReconciler(kube, 'limited', { for: { ...widgets, namespaces: ['default'] }, related: [placed] })
    await using bridge = await start()
    await untilCovered(bridge, ['limited'])
    expect(await enqueuedBy(bridge, 'limited', () => change('one', 'far'))).toEqual(['default.w'])
  })
})

it('an update that names another namespace counts, whatever else the Reconciler looks at', async () => {
  await createMap('one', 'c')
  await createWidget('w', { spec: {}, ...inNamespace('two') })
  await createReconciler(kube, 'placed', { for: widgets, related: [placed], changes: ['Labels'] })
  await using bridge = await start()
  await untilCovered(bridge, ['placed'])
  const runs = async (status: object) => {
    bridge.enqueued.length = 0
    await untilKnown(bridge, widgets, await patchWidget('w', { status }))
    return bridge.keysOf('placed').length > 0
  }
  await runs({ phase: 'first' })
  expect(await runs({ phase: 'second' })).toBe(false)
  expect(await runs({ namespace: 'one' })).toBe(true)
  expect(await runs({ phase: 'third' })).toBe(false)
  expect(await runs({ namespace: null })).toBe(true)
})

describe('a change of a related object counts', () => {
  const here = { ...widgets, namespaces: ['default'] }

  it('while the watch of its namespace becomes one of all, since somebody else asks for more', async () => {
    await createMap('default', 'm')
    await createWidget('w', { spec: { configs: [{ name: 'm' }] } })
    const slow = withSlowLists()
    await using bridge = await start(freshPrefix(), slow.kube)
    await createReconciler(kube, 'near', { for: here, related: [configMaps] })
    await createReconciler(kube, 'named', { for: here, related: [named] })
    for (const name of ['near', 'named']) await untilCondition(kube, name, 'Watching')
    await createReconciler(kube, 'two', { for: configMaps })
    await slow.asked
    bridge.enqueued.length = 0
    const changed = await change('default', 'm')
    slow.go()
    await untilCondition(kube, 'two', 'Watching')
    await untilKnown(bridge, configMaps, changed)
    await until(() =>
      expect(['near', 'named'].map((name) => bridge.keysOf(name))).toEqual([['default.w'], ['default.w']]),
    )
  })

  it('once it may be seen, after somebody has asked for more than that, which is said of all whom it concerns', async () => {
    const verbs = ['get', 'list', 'watch', 'patch']
    await grant(kube, 'reconcilers', { apiGroups: [RECONCILERS.group], resources: ['*'], verbs })
    const seen = { apiGroups: ['', widgets.group], resources: ['configmaps', 'widgets'], verbs }
    await grant(kube, 'here', seen, 'default')
    await createMap('default', 'm')
    await createWidget('w')
    await using restricted = await restrictedClient(kube, servers.cluster.kubeconfig)
    await using bridge = await start(freshPrefix(), restricted)
    await createReconciler(kube, 'one', { for: here, related: [configMaps] })
    await untilCondition(kube, 'one', 'Watching')
    await createReconciler(kube, 'two', { for: configMaps })
    await untilCondition(kube, 'one', 'Forbidden')
    bridge.enqueued.length = 0
    await change('default', 'm')
    await grant(kube, 'everywhere', { apiGroups: [''], resources: ['configmaps'], verbs })
    await untilCondition(kube, 'one', 'Watching')
    // The condition may be written before the keys of what is related are queued.
    await until(() => expect(bridge.keysOf('one')).toEqual(['default.w']))
  })

  it('though the bridge that first knew everything died before it, and another one has not listed yet', async () => {
    await createMap('default', 'm')
    await createWidget('w')
    const prefix = freshPrefix()
    const slow = withSlowLists()
    await using last = await start(prefix, slow.kube)
    {
      await using first = await start(prefix)
      await createReconciler(kube, 'one', { for: widgets, related: [configMaps] })
      await untilCondition(kube, 'one', 'Watching')
      // Waits until the cursors claim that a dispatcher has run every key.
      await untilCovered(first, ['one'], [])
      await last.synced('widgets.v1.example.com')
      await slow.asked
    }
    last.enqueued.length = 0
    const changed = await change('default', 'm')
    slow.go()
    await last.synced('configmaps.v1')
    await untilKnown(last, configMaps, changed)
    expect(last.keysOf('one')).toEqual(['default.w'])
  })
})

it('the first list of what is related enqueues each key once, however much that is, before a cursor lets any run', async () => {
  const names = Array.from({ length: 100 }, (_, index) => `w${index}`)
  await Promise.all(names.flatMap((name) => [createMap('default', name), createWidget(name)]))
  const slow = withSlowLists()
  await using bridge = await start(freshPrefix(), slow.kube)
  await createReconciler(kube, 'one', { for: widgets, related: [configMaps] })
  await until(async () => bridge.enqueued.length === names.length, {
    what: 'the list of its own resource has enqueued them',
  })
  await slow.asked
  bridge.enqueued.length = 0
  slow.go()
  const enough = new AbortController()
  for await (const { ref, unlisted } of bridge.events.followCursors(enough.signal))
    if (ref.resource === configMaps.resource && !unlisted) enough.abort()
  expect(bridge.enqueued.map(({ key }) => key).sort()).toEqual(names.map((name) => `default.${name}`).sort())
})

const versionOf = (kind: string, name: string, version: number, labels: Record<string, string> = {}) =>
  object(kind, name, { uid: name, resourceVersion: `${version}`, labels })

it('each resource is read from EVENTS once for 100 relations that begin together, and each has its own members', async () => {
  await using store = await openStore(nats.url, { prefix: 'relations' })
  await store.put(widgets, 'added', versionOf('Widget', 'w', 1))
  for (const [name, version] of [
    ['covered', 2],
    ['beyond', 9],
  ] as const)
    await store.put(configMaps, 'added', versionOf('ConfigMap', name, version, { of: 'r7' }))
  await store.setCursor(configMaps, undefined, { resourceVersion: '5', covers: [], at: new Date(0).toISOString() })
  const read: string[] = []
  const follow: EventStore['follow'] = (filter, ...rest) => {
    read.push(filter.ref?.resource ?? '')
    return store.follow(filter, ...rest)
  }
  const queued: string[] = []
  const ended = new AbortController()
  const relations = new Relations(
    { events: { ...store, follow }, log: silent, signal: ended.signal, isClusterScoped: async () => false },
    async (name, key) => {
      queued.push(`${name} ${key}`)
    },
  )
  const names = Array.from({ length: 50 }, (_, number) => `r${number}`)
  const relatedTo = (name: string) => [
    { ...configMaps, selector: `of=${name}` },
    { ...configMaps, byName: 'spec.config' },
  ]
  relations.reroute(new Routes(names.map((name) => reconciler(name, { for: widgets, related: relatedTo(name) }))))
  /** The object has no labels any more. */
  const queuedBy = async (name: string, version: number) => {
    queued.length = 0
    const changed = versionOf('ConfigMap', name, version)
    const change = { namespace: 'default', name, object: changed, owners: [] }
    await relations.enqueue(configMaps, change, { lane: 'high', cause: 'test' }, () => true)
    relations.observeRelated(configMaps, `default.${name}`, changed)
    return [...queued].sort()
  }
  expect(await queuedBy('covered', 11)).toEqual(['r7 default.w'])
  expect(await queuedBy('covered', 12)).toEqual([])
  // Whoever stored it may have died before it queued the keys, so each relation may have selected it before.
  expect(await queuedBy('beyond', 13)).toEqual(names.map((name) => `${name} default.w`).sort())
  expect(await queuedBy('beyond', 14)).toEqual([])
  expect(read.sort()).toEqual(['configmaps', 'widgets'])
  ended.abort()
})
