import { expect, it } from 'vitest'
import type { KubeObject, RunInput } from '#contracts'
import { type EventStore, openEventStore } from '#events'
import { RECONCILERS, SHARD_LABEL } from '#spec'
import { CONFIG_MAPS, configMap, PODS, type Scene, silent, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

const { strategy: _, ...configMaps } = CONFIG_MAPS
const SERVICES = { group: '', version: 'v1', resource: 'services', kind: 'Service', strategy: 'Apply' } as const
const { strategy: __, ...services } = SERVICES
const ALL = ['c0', 'c1', 'c2']
const OWNER = { resource: 'widgets', name: 'w' }
const AT = '2030-01-01T00:00:00Z'
const LISTED = { resourceVersion: '1', at: AT }
const UNLISTED = { resourceVersion: '0', at: AT, covers: [], unlisted: true }
const OF_OTHERS = { ...LISTED, covers: ['another@one'] }

const mapsIn = (objects: Record<string, KubeObject[]>) =>
  (objects['ConfigMap.v1'] ?? []).map(({ metadata }) => metadata.name).toSorted()

/** A widget with three config maps, and what each of its calls has seen of them. */
async function withThreeMaps(scene: Scene) {
  const calls: string[][] = []
  const behaviour = ({ owned }: RunInput) => {
    calls.push(mapsIn(owned))
    return { apply: ALL.map((name) => configMap(name)) }
  }
  const widget = await scene.widget('w', behaviour)
  await scene.ended('w')
  await scene.run('w')
  expect(calls.at(-1)).toEqual(ALL)
  calls.length = 0
  return { widget, calls, behaviour }
}

/** EVENTS as another bridge makes it anew after NATS has lost its data. No bridge runs: what it has is what a test puts. */
async function madeAnew(): Promise<EventStore> {
  const { js, events } = fixture
  await js.admin.streams.delete(events.stream)
  return openEventStore(js, { prefix: events.root.slice(0, -1), cluster: 'test', log: silent })
}

/** Lists as a bridge does that has only begun with the children: the rest is there. */
async function listParents(bridge: EventStore, scene: Scene, widget: KubeObject) {
  await bridge.put(RECONCILERS, 'added', scene.reconciler())
  await bridge.put(WIDGETS, 'added', widget)
  for (const ref of [WIDGETS, PODS, RECONCILERS]) await bridge.setCursor(ref, undefined, LISTED)
}

async function listChildren(bridge: EventStore, scene: Scene, names: readonly string[]) {
  for (const name of names)
    await bridge.put(CONFIG_MAPS, 'added', (await scene.get(CONFIG_MAPS, name))!, { owner: OWNER })
}

/** The key waits, and its function has not been called. */
const isNotServed = (scene: Scene, calls: unknown[]) =>
  until(() => calls.length > 0 || !scene.dispatcher.serving().includes(scene.name))

it.each([
  ['nothing of its list', 'anew-nothing', undefined],
  ['the beginning of its list', 'anew-begun', UNLISTED],
  ['its list for another Reconciler', 'anew-for-others', OF_OTHERS],
] as const)(
  'after EVENTS was lost, no function is called while the new EVENTS has %s of an owned kind, and then with all objects',
  async (_, name, cursor) => {
    await using scene = await fixture.scene(name)
    const { widget, calls } = await withThreeMaps(scene)
    const bridge = await madeAnew()
    await listParents(bridge, scene, widget)
    await listChildren(bridge, scene, ['c0'])
    if (cursor) await bridge.setCursor(CONFIG_MAPS, undefined, cursor)
    await scene.enqueue('w')
    await isNotServed(scene, calls)
    expect([calls, scene.dispatcher.serving()]).toEqual([[], []])

    await listChildren(bridge, scene, ALL)
    await bridge.setCursor(CONFIG_MAPS, undefined, LISTED)
    await until(() => calls.length > 0)
    expect(calls[0]).toEqual(ALL)
  },
)

it('the same holds where the message of the Reconciler has the sequence of before by chance', async () => {
  await using scene = await fixture.scene('anew-by-chance')
  const { widget, calls } = await withThreeMaps(scene)
  const of = { ref: RECONCILERS, namespace: undefined, name: scene.name }
  const { sequence } = (await fixture.events.observe({ primary: of })).primary!
  const bridge = await madeAnew()
  while ((await bridge.end()) < sequence - 1) await bridge.setCursor(SERVICES, undefined, LISTED)
  await listParents(bridge, scene, widget)
  expect((await bridge.observe({ primary: of })).primary).toMatchObject({ sequence })
  await scene.enqueue('w')
  await isNotServed(scene, calls)
  expect(calls).toEqual([])

  await listChildren(bridge, scene, ALL)
  await bridge.setCursor(CONFIG_MAPS, undefined, LISTED)
  await until(() => calls.length > 0)
  expect(calls[0]).toEqual(ALL)
})

it('a run that is under way when EVENTS is lost decides on what it has read, and the next one waits until all is listed', async () => {
  await using scene = await fixture.scene('anew-under-way', {
    spec: { owns: [SERVICES], related: [configMaps] },
    waitFor: false,
  })
  await fixture.listed(CONFIG_MAPS)
  await fixture.listed(SERVICES)
  const calls: string[][] = []
  const begun = Promise.withResolvers<void>()
  const goOn = Promise.withResolvers<void>()
  const service = (name: string) => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name },
    spec: { ports: [{ port: 80 }] },
  })
  const related = [configMap('c0'), configMap('c1')].map((map, index) => ({
    ...map,
    metadata: { ...map.metadata, namespace: scene.name, uid: `c${index}`, resourceVersion: `${index + 1}` },
  }))
  for (const map of related) await fixture.events.put(configMaps, 'added', map)
  const widget = await scene.widget('w', async (input) => {
    calls.push(mapsIn(input.related))
    begun.resolve()
    await goOn.promise
    return { apply: [service('s')] }
  })
  await begun.promise
  const bridge = await madeAnew()
  await listParents(bridge, scene, widget)
  await bridge.put(configMaps, 'added', related[0]!)
  await bridge.setCursor(SERVICES, undefined, LISTED)
  await scene.enqueue('w')
  goOn.resolve()
  const isHalf = (call: string[]) => call.length < 2
  await until(() => calls.some(isHalf) || scene.dispatcher.serving().length === 0)
  expect(calls.filter(isHalf)).toEqual([])
  const before = calls.length
  await bridge.put(configMaps, 'added', related[1]!)
  await bridge.setCursor(CONFIG_MAPS, undefined, LISTED)
  await until(() => calls.length > before)
  expect(calls.filter(isHalf)).toEqual([])
})

/** As a sweeper of a bridge that knows no Reconciler for the kind. */
async function sweep() {
  const { events } = fixture
  const { sequence = 0 } = (await events.cursor(CONFIG_MAPS)) ?? {}
  const moved = await events.moveCursor(CONFIG_MAPS, undefined, UNLISTED, sequence)
  const which = { upTo: await events.end(), keeps: () => false, signal: new AbortController().signal }
  await events.sweep(CONFIG_MAPS, undefined, which)
  return moved!
}

async function listAgain(scene: Scene) {
  fixture.events.forget(CONFIG_MAPS)
  await listChildren(fixture.events, scene, ALL)
  await fixture.listed(CONFIG_MAPS)
}

it('a Reconciler is served no more when a kind of it is swept, and again when that is listed', async () => {
  const functions = new Map([['fence', async () => ({})]])
  const scene = await fixture.scene('anew-swept', {
    dispatcher: { functions: { get: (name: string) => functions.get(name) ?? invoke(name) } as never },
    waitFor: false,
  })
  await using _scene = scene
  const calls: string[][] = []
  function invoke(name: string) {
    if (name !== 'anew-swept') return undefined
    return async (input: RunInput | { ask?: string }) => {
      calls.push(mapsIn((input as RunInput).owned))
      return { apply: ALL.map((map) => configMap(map)) }
    }
  }
  await fixture.listed(PODS)
  await scene.widget('w', () => ({}))
  await scene.ended('w')
  await scene.run('w')
  expect(calls.at(-1)).toEqual(ALL)
  calls.length = 0

  const fence = scene.reconciler({ owns: [], related: [services] })
  fence.metadata = { name: 'fence', uid: 'fence', resourceVersion: '1' }
  await fixture.events.put(RECONCILERS, 'added', fence)
  await sweep()
  // The dispatcher has followed the cursors up to the one behind that of the sweep.
  await fixture.listed(SERVICES)
  await until(() => scene.dispatcher.serving().includes('fence'))
  await scene.enqueue('w')
  await isNotServed(scene, calls)
  expect(calls).toEqual([])
  await listAgain(scene)
  await until(() => calls.length > 0)
  expect(calls[0]).toEqual(ALL)
})

it('a Reconciler that comes back from another shard waits until what was swept meanwhile is listed', async () => {
  const lines: string[] = []
  const log = { ...silent, info: (_: object, line: string) => void lines.push(line) }
  await using scene = await fixture.scene('anew-came-back', { dispatcher: { log } })
  const { calls } = await withThreeMaps(scene)
  const inShard = (labels: Record<string, string>, resourceVersion: string) => {
    const reconciler = scene.reconciler()
    return { ...reconciler, metadata: { ...reconciler.metadata, labels, resourceVersion } }
  }
  await fixture.events.put(RECONCILERS, 'modified', inShard({ [SHARD_LABEL]: 'other' }, '2'))
  await until(() => scene.dispatcher.serving().length === 0)
  await sweep()
  await fixture.events.put(RECONCILERS, 'modified', inShard({}, '3'))
  await scene.enqueue('w')
  await until(() => calls.length > 0 || lines.includes('reconciler waits for its resources'))
  expect([calls, scene.dispatcher.serving()]).toEqual([[], []])
  await listAgain(scene)
  await until(() => calls.length > 0)
  expect(calls[0]).toEqual(ALL)
})
