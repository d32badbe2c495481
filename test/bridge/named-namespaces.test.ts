import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type KubeObject, resourceName } from '#contracts'
import { keyOf } from '#events'
import { resourcePath } from '#kube'
import { configMaps, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  createReconciler,
  enqueuedBy,
  installWidgets,
  removeReconcilers,
  removeWidgets,
  startBridge,
  stored,
  until,
} from './world.ts'

let servers: Servers
let nats: Servers['nats']
let kube: Servers['kube']
let number = 0

beforeAll(async () => {
  servers = await startServers()
  ;({ nats, kube } = servers)
  for (const name of ['one', 'two', 'other']) await kube.create('/api/v1/namespaces', { metadata: { name } })
})

afterAll(() => servers?.[Symbol.asyncDispose]())

type Started = Awaited<ReturnType<typeof startBridge>>

const createMap = (namespace: string, name: string, labels: Record<string, string> = {}) =>
  kube.create(resourcePath(configMaps, namespace), configMap(name, 'first', { namespace, labels }))
const change = (namespace: string, name: string, metadata: object = {}) =>
  kube.patch(resourcePath(configMaps, namespace, name), { metadata, data: { value: `${++number}` } }, 'merge')

/** Resolves when the initial keys of the Reconciler are enqueued. */
async function startedFor(reconciler: string, prefix: string): Promise<Started> {
  const bridge = await startBridge(kube, nats.url, { prefix })
  for (const ref of [widgets, configMaps]) {
    await bridge.synced(resourceName(ref))
    const cursor = async () => (await bridge.events.cursor(ref)) ?? (await bridge.events.cursor(ref, 'default'))
    const isCovered = async () => (await cursor())?.covers?.some((id) => id.startsWith(`${reconciler}@`))
    await until(async () => (await isCovered()) === true, { what: `the cursor of ${ref.resource} covers it` })
  }
  return bridge
}

describe.each(['Namespaced', 'Cluster'])('where a field of a primary names the namespace (%s primaries)', (scope) => {
  const home = scope === 'Cluster' ? undefined : 'default'
  const pathOf = (name?: string) => resourcePath(widgets, home, name)
  const key = (name: string) => keyOf(home, name)

  beforeAll(() => installWidgets(kube, scope))
  afterAll(() => removeWidgets(kube))
  afterEach(async () => {
    await removeReconcilers(kube)
    await kube.request({ method: 'DELETE', path: pathOf() })
    for (const namespace of ['one', 'two', 'other', 'default'])
      await kube.request({ method: 'DELETE', path: resourcePath(configMaps, namespace) })
  })

  const createWidget = (name: string, more: object = {}) =>
    kube.create<KubeObject>(pathOf(), {
      apiVersion: 'example.com/v1',
      kind: 'Widget',
      metadata: { name, ...(home && { namespace: home }) },
      ...more,
    })
  const placed = (namespace: unknown) => ({ status: { namespace } })
  const place = (name: string, namespace: unknown) => kube.patch<KubeObject>(pathOf(name), placed(namespace), 'merge')

  async function start(related: object, { prefix = `n${++number}`, spec = {} } = {}): Promise<Started> {
    await createReconciler(kube, 'placed', { for: widgets, related: [{ ...configMaps, ...related }], ...spec }).catch(
      (error: { code?: number }) => {
        if (error.code !== 409) throw error
      },
    )
    return startedFor('placed', prefix)
  }

  /** Resolves when the bridge has stored and enqueued that version of a widget, or its deletion. */
  const untilKnown = ({ events, bridge }: Started, { metadata }: KubeObject, version = metadata.resourceVersion) =>
    until(
      async () =>
        (await stored(events, widgets)).get(key(metadata.name)) === version &&
        bridge.status().resources.every(({ unconfirmed }) => unconfirmed === 0),
      { what: `${metadata.name} is stored` },
    )

  const inStatus = { namespacePath: 'status.namespace' }

  it('a change runs the primaries that name its namespace, and no other one, also after a restart', async () => {
    for (const namespace of ['one', 'two', 'default']) await createMap(namespace, 'c')
    for (const [name, namespace] of Object.entries({ a: 'one', b: 'one', c: 'two' }))
      await createWidget(name, placed(namespace))
    await createWidget('nowhere')
    await createWidget('odd', placed({ name: 'one' }))
    const prefix = `restart${++number}`
    const changes = async (bridge: Started) => [
      await enqueuedBy(bridge, 'placed', () => change('one', 'c')),
      await enqueuedBy(bridge, 'placed', () => change('two', 'c')),
      await enqueuedBy(bridge, 'placed', () => change('default', 'c')),
      await enqueuedBy(bridge, 'placed', () => createMap('other', `c${++number}`)),
    ]
    const expected = [[key('a'), key('b')], [key('c')], [], []]
    {
      await using bridge = await start(inStatus, { prefix })
      expect(await changes(bridge)).toEqual(expected)
    }
    await using bridge = await start(inStatus, { prefix })
    expect(await changes(bridge)).toEqual(expected)
    expect(bridge.relists.filter(({ resource }) => resource.startsWith('widgets'))).toEqual([])
  })

  it('a change counts in the namespace that the field names now, and where it is missing, nowhere', async () => {
    for (const namespace of ['one', 'two']) await createMap(namespace, 'c')
    await createWidget('w')
    await using bridge = await start(inStatus)
    const runs = async () => [
      await enqueuedBy(bridge, 'placed', () => change('one', 'c')),
      await enqueuedBy(bridge, 'placed', () => change('two', 'c')),
    ]
    expect(await runs()).toEqual([[], []])
    await untilKnown(bridge, await place('w', 'one'))
    expect(await runs()).toEqual([[key('w')], []])
    await untilKnown(bridge, await place('w', 'two'))
    expect(await runs()).toEqual([[], [key('w')]])
    await untilKnown(bridge, await place('w', null))
    expect(await runs()).toEqual([[], []])
    const gone = await place('w', 'one')
    await untilKnown(bridge, gone)
    await kube.delete(pathOf('w'))
    await untilKnown(bridge, gone, 'deleted')
    expect(await runs()).toEqual([[], []])
  })

  it('an update that names another namespace counts, whatever else the Reconciler looks at', async () => {
    await createMap('one', 'c')
    await createWidget('w', { spec: {}, ...placed('two') })
    await using bridge = await start(inStatus, { spec: { changes: ['Labels'] } })
    const runs = async (patch: object) => {
      bridge.enqueued.length = 0
      await untilKnown(bridge, await kube.patch<KubeObject>(pathOf('w'), patch, 'merge'))
      return bridge.keysOf('placed')
    }
    await runs({ status: { phase: 'first' } })
    expect(await runs({ status: { phase: 'second' } })).toEqual([])
    expect(await runs(placed('one'))).toEqual([key('w')])
    expect(await runs({ status: { phase: 'third' } })).toEqual([])
    expect(await runs(placed(null))).toEqual([key('w')])
  })

  it('the selector counts there too, also when an object ceases to match it', async () => {
    await createReconciler(kube, 'all', { for: configMaps })
    for (const namespace of ['one', 'two']) await createMap(namespace, 'in', { use: 'yes' })
    await createMap('one', 'out')
    await createWidget('w', placed('one'))
    const prefix = `selector${++number}`
    const selected = { ...inStatus, selector: 'use=yes' }
    {
      await using bridge = await start(selected, { prefix })
      expect(await enqueuedBy(bridge, 'placed', () => change('one', 'out'))).toEqual([])
      expect(await enqueuedBy(bridge, 'placed', () => change('two', 'in', { labels: { use: 'no' } }))).toEqual([])
      expect(await enqueuedBy(bridge, 'placed', () => change('one', 'in'))).toEqual([key('w')])
    }
    await using bridge = await start(selected, { prefix })
    const leaves = () => change('one', 'in', { labels: { use: 'no' } })
    expect(await enqueuedBy(bridge, 'placed', leaves)).toEqual([key('w')])
    expect(await enqueuedBy(bridge, 'placed', () => change('one', 'in'))).toEqual([])
  })

  it('names count in these namespaces, of which there may be several', async () => {
    const refs = (...pairs: [string, string][]) => ({
      spec: { refs: pairs.map(([namespace, name]) => ({ namespace, name })) },
    })
    for (const namespace of ['one', 'two', 'default']) for (const name of ['x', 'y']) await createMap(namespace, name)
    await createWidget('a', refs(['one', 'x'], ['two', 'x']))
    await createWidget('b', refs(['one', 'y']))
    await createWidget('c', { spec: { refs: [{ name: 'x' }] } })
    await using bridge = await start({ byName: 'spec.refs[*].name', namespacePath: 'spec.refs[*].namespace' })
    const runs = (namespace: string, name: string) => enqueuedBy(bridge, 'placed', () => change(namespace, name))
    expect([await runs('one', 'x'), await runs('two', 'x'), await runs('one', 'y')]).toEqual([
      [key('a')],
      [key('a')],
      [key('b')],
    ])
    expect([await runs('two', 'y'), await runs('default', 'x')]).toEqual([[], []])
    await untilKnown(bridge, await kube.patch<KubeObject>(pathOf('a'), refs(['two', 'y']), 'merge'))
    expect([await runs('one', 'x'), await runs('two', 'x'), await runs('two', 'y')]).toEqual([[], [], [key('a')]])
  })

  it('a primary of which EVENTS has only a reference is not forgotten by a restart', async () => {
    await createMap('one', 'c')
    await createWidget('large', { spec: { data: 'x'.repeat(600 * 1024) }, ...placed('one') })
    await createWidget('small', placed('two'))
    const prefix = `large${++number}`
    {
      await using bridge = await start(inStatus, { prefix })
      expect(await enqueuedBy(bridge, 'placed', () => change('one', 'c'))).toEqual([key('large')])
      expect(await enqueuedBy(bridge, 'placed', () => createMap('other', 'c'))).toEqual([])
    }
    await using bridge = await start(inStatus, { prefix })
    expect(await enqueuedBy(bridge, 'placed', () => change('one', 'c'))).toEqual([key('large')])
    await untilKnown(
      bridge,
      await kube.patch<KubeObject>(pathOf('large'), { metadata: { labels: { a: 'b' } } }, 'merge'),
    )
    expect(await enqueuedBy(bridge, 'placed', () => change('other', 'c'))).toEqual([])
  })

  it('many changes at once run a primary in rounds', async () => {
    await createWidget('w', placed('one'))
    await using bridge = await start(inStatus)
    bridge.enqueued.length = 0
    const unconfirmed = () =>
      bridge.bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1')?.unconfirmed
    nats.signal('SIGSTOP')
    await Promise.all(Array.from({ length: 100 }, (_, i) => createMap('one', `many-${i}`)))
    await until(async () => unconfirmed() === 100, { what: 'all are read' }).finally(() => nats.signal('SIGCONT'))
    await until(async () => unconfirmed() === 0, { what: 'everything is confirmed' })
    expect(bridge.keysOf('placed')).toEqual([key('w')])
    expect(bridge.enqueued.length).toBeLessThan(100)
  })
})

it('a Reconciler for some namespaces hears of changes in others that a field names', async () => {
  await installWidgets(kube)
  await createMap('one', 'far')
  await kube.create(resourcePath(widgets, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Widget',
    metadata: { name: 'w', namespace: 'default' },
    spec: { namespace: 'one' },
  })
  const related = [{ ...configMaps, namespacePath: 'spec.namespace' }]
  await createReconciler(kube, 'limited', { for: { ...widgets, namespaces: ['default'] }, related })
  await using bridge = await startedFor('limited', 'limited')
  expect(await enqueuedBy(bridge, 'limited', () => change('one', 'far'))).toEqual(['default.w'])
})
