import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import type { EventStore } from '#events'
import { type KubeClient, resourcePath, type WatchEvent, type WatchOptions } from '#kube'
import { RECONCILERS } from '#spec'
import { randomFrom } from '../support/random.ts'
import { configMaps, secrets, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  createReconciler,
  enqueuedBy,
  grant,
  installWidgets,
  removeReconcilers,
  removeWidgets,
  restrictedClient,
  revoke,
  startBridge,
  stored,
  until,
  writeConfigMap,
} from './world.ts'

const accounts = { group: '', version: 'v1', resource: 'serviceaccounts', kind: 'ServiceAccount' }
const limits = { group: '', version: 'v1', resource: 'limitranges', kind: 'LimitRange' }
const gadgets = { group: 'example.com', version: 'v1', resource: 'gadgets', kind: 'Gadget' }
const GRANTED = [configMaps, secrets, limits]
const onDemand = (ref: ResourceRef) => ({ ...ref, kindPath: 'spec.targets[*]', byName: 'spec.targets[*].name' })
const naming = { for: widgets, related: GRANTED.map(onDemand) }
const SOON = { staleMs: 300, everyMs: 50 }

let servers: Servers
let kube: KubeClient
let number = 0

beforeAll(async () => {
  servers = await startServers()
  ;({ kube } = servers)
  await installWidgets(kube)
  await kube.create('/api/v1/namespaces', { metadata: { name: 'other' } })
})
afterEach(async () => {
  await removeReconcilers(kube)
  for (const ref of [widgets, ...GRANTED]) await kube.request({ method: 'DELETE', path: resourcePath(ref, 'default') })
})
afterAll(() => servers?.[Symbol.asyncDispose]())

type Options = Partial<Parameters<typeof startBridge>[2]>
type Started = Awaited<ReturnType<typeof startBridge>>
type Target = [kind: string, name: string]

const fresh = () => `n${++number}`
const start = (options: Options = {}, client = kube) =>
  startBridge(client, servers.nats.url, { prefix: fresh(), staysMs: 100, ...options })

const specOf = (targets: Target[]) => ({
  targets: targets.map(([kind, name]) => ({ apiVersion: kind === 'Gadget' ? 'example.com/v1' : 'v1', kind, name })),
})
const createWidget = (name: string, ...targets: Target[]) =>
  kube.create<KubeObject>(resourcePath(widgets, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Widget',
    metadata: { name },
    spec: specOf(targets),
  })
const retarget = (name: string, ...targets: Target[]) =>
  kube.patch<KubeObject>(resourcePath(widgets, 'default', name), { spec: specOf(targets) }, 'merge')
const createMap = (name: string) => kube.create(resourcePath(configMaps, 'default'), configMap(name, 'first'))

const watchedBy = ({ bridge }: Started): string[] =>
  bridge
    .status()
    .resources.map(({ resource }) => resource)
    .filter((name) => ![RECONCILERS, widgets].some((ref) => resourceName(ref) === name))
    .sort()
const untilWatched = (bridge: Started, ...refs: ResourceRef[]) =>
  until(() => expect(watchedBy(bridge)).toEqual(refs.map(resourceName).sort()), { what: 'these kinds are watched' })
const coverage = async (events: EventStore, ref: ResourceRef, scope?: string) =>
  (await events.cursor(ref, scope))?.covers?.some((id) => id.startsWith('naming@')) ?? false
const untilCovered = ({ events }: Started, ref: ResourceRef, isCovered = true, scope?: string) =>
  until(async () => (await coverage(events, ref, scope)) === isCovered, {
    what: `${ref.resource} are ${isCovered ? '' : 'not '}covered`,
  })

/** Counts the requests to the API server that are open. */
function counting() {
  const open = new Map<string, number>()
  async function* watch<T>(path: string, options?: WatchOptions): AsyncGenerator<WatchEvent<T>, void, undefined> {
    open.set(path, (open.get(path) ?? 0) + 1)
    try {
      yield* kube.watch<T>(path, options)
    } finally {
      open.set(path, (open.get(path) ?? 0) - 1)
    }
  }
  return { kube: { ...kube, watch }, openOf: (ref: ResourceRef) => open.get(resourcePath(ref)) ?? 0 }
}

/** The prefix of a bridge that has covered what "a" names, and has ended. */
async function coveredBefore(): Promise<string> {
  const prefix = fresh()
  await createMap('m')
  await createWidget('a', ['ConfigMap', 'm'])
  await createReconciler(kube, 'naming', naming)
  await using first = await start({ prefix })
  await untilCovered(first, configMaps)
  await first.rested()
  return prefix
}

describe('a kind that a primary names', () => {
  it('is watched from then on, and a change of its object runs the primaries that name it, and no others', async () => {
    await createMap('m')
    await createWidget('a')
    await createWidget('b', ['Secret', 'm'])
    await createReconciler(kube, 'naming', naming)
    await createReconciler(kube, 'fence', { for: { ...configMaps, namespaces: ['other'] } })
    await using bridge = await start()
    await untilWatched(bridge, secrets, configMaps)
    await untilCovered(bridge, configMaps, false)
    await retarget('a', ['ConfigMap', 'm'])
    await untilCovered(bridge, configMaps)
    await untilWatched(bridge, secrets, configMaps)
    await until(() => bridge.enqueued.some(({ key, cause }) => key === 'default.a' && cause.startsWith('first list')), {
      what: 'its key is queued when the list has ended',
    })
    expect(await enqueuedBy(bridge, 'naming', () => writeConfigMap(kube, 'm', 'second'))).toEqual(['default.a'])
    expect(await enqueuedBy(bridge, 'naming', () => createMap('unnamed'))).toEqual([])
  })

  it('is no longer watched when the last one has gone, covers nobody, and EVENTS loses its objects', async () => {
    await createMap('m')
    await createWidget('a', ['ConfigMap', 'm'])
    await createWidget('b', ['ConfigMap', 'm'])
    await createReconciler(kube, 'naming', naming)
    const counted = counting()
    await using bridge = await start({ sweep: { ...SOON, staleMs: 60_000 } }, counted.kube)
    await untilCovered(bridge, configMaps)
    await retarget('a')
    await until(async () => (await stored(bridge.events, widgets)).size === 2)
    await untilWatched(bridge, configMaps)
    await kube.delete(resourcePath(widgets, 'default', 'b'))
    await untilWatched(bridge)
    await until(() => counted.openOf(configMaps) === 0, { what: 'no watch is open' })
    await untilCovered(bridge, configMaps, false)

    // What has changed meanwhile is in EVENTS before anybody relies on it again.
    await kube.delete(resourcePath(configMaps, 'default', 'm'))
    await createMap('later')
    await retarget('a', ['ConfigMap', 'later'])
    await untilCovered(bridge, configMaps)
    const found = await stored(bridge.events, configMaps)
    expect([found.has('default.later'), found.get('default.m')]).toEqual([true, 'deleted'])
  })

  it('is swept when nothing names it', async () => {
    await createMap('m')
    await createWidget('a', ['ConfigMap', 'm'])
    await createReconciler(kube, 'naming', naming)
    await using bridge = await start({ sweep: SOON })
    await untilCovered(bridge, configMaps)
    await retarget('a')
    await until(async () => (await stored(bridge.events, configMaps)).size === 0, { what: 'its objects are swept' })
  })

  it('stays watched while the field changes back and forth: one list', async () => {
    await createMap('m')
    await createWidget('a', ['ConfigMap', 'm'])
    await createReconciler(kube, 'naming', naming)
    await using bridge = await start({ staysMs: 60_000 })
    await untilCovered(bridge, configMaps)
    for (let turn = 0; turn < 10; turn++) await retarget('a', ...(turn % 2 ? ([['ConfigMap', 'm']] as Target[]) : []))
    await until(async () => bridge.enqueued.length > 0)
    const last = await retarget('a')
    await until(async () => (await stored(bridge.events, widgets)).get('default.a') === last.metadata.resourceVersion)
    expect(watchedBy(bridge)).toEqual(['configmaps.v1'])
    expect(bridge.relists.filter(({ resource }) => resource === 'configmaps.v1')).toHaveLength(1)
  })

  it('is watched on, without another list, by a bridge that starts again', async () => {
    const prefix = await coveredBefore()
    const changed = await writeConfigMap(kube, 'm', 'second')
    await using second = await start({ prefix })
    await until(
      async () => (await stored(second.events, configMaps)).get('default.m') === changed.metadata.resourceVersion,
    )
    await until(() => second.keysOf('naming').includes('default.a'), { what: 'the missed change runs it' })
    expect(second.relists.map(({ resource }) => resource)).toEqual([resourceName(RECONCILERS)])
  })

  it('and left while no bridge was there, covers nobody after the start of the next one', async () => {
    const prefix = await coveredBefore()
    await retarget('a')
    await using second = await start({ prefix })
    await untilCovered(second, configMaps, false)
    await untilWatched(second)
  })

  it('and left just before a stop, named again while no bridge was there, is listed before anybody relies on it', async () => {
    const prefix = fresh()
    await createMap('m')
    await createWidget('a', ['ConfigMap', 'm'])
    await createReconciler(kube, 'naming', naming)
    {
      await using first = await start({ prefix, staysMs: 60_000 })
      await untilCovered(first, configMaps)
      const left = await retarget('a')
      await until(async () => (await stored(first.events, widgets)).get('default.a') === left.metadata.resourceVersion)
      await first.rested()
    }
    await createMap('later')
    await retarget('a', ['ConfigMap', 'later'])
    let failures = 1
    const failing = (events: EventStore): EventStore => ({
      ...events,
      async *cursors() {
        if (failures-- > 0) throw new Error('NATS is away')
        yield* events.cursors()
      },
    })
    await using second = await start({ prefix, staysMs: 60_000, through: failing })
    await until(async () => (await stored(second.events, configMaps)).has('default.later'))
    await untilCovered(second, configMaps)
    expect(second.relists.map(({ resource }) => resource)).toContain('configmaps.v1')
  })

  it('is neither swept nor missed while one of two bridges has not read the primaries', async () => {
    const prefix = fresh()
    await createMap('m')
    await createWidget('a', ['ConfigMap', 'm'])
    await createReconciler(kube, 'naming', naming)
    await using knowing = await start({ prefix })
    await untilCovered(knowing, configMaps)
    await knowing.rested()
    const read = Promise.withResolvers<void>()
    const held = (events: EventStore): EventStore => ({
      ...events,
      async *follow(filter, signal, caughtUp) {
        if (filter.ref !== undefined && resourceName(filter.ref) === resourceName(widgets)) await read.promise
        yield* events.follow(filter, signal, caughtUp)
      },
    })
    let looks = 0
    const watched = (events: EventStore): EventStore => ({
      ...held(events),
      cursors: () => {
        looks++
        return events.cursors()
      },
    })
    await using ignorant = await start({ prefix, sweep: { staleMs: 0, everyMs: 10 }, through: watched })
    await until(() => ignorant.relists.length > 0, { what: 'it knows the Reconciler' })
    await writeConfigMap(kube, 'm', 'second')
    await until(() => knowing.enqueued.some(({ cause }) => cause.startsWith('modified ConfigMap')))
    expect(looks).toBe(0)
    expect(await coverage(knowing.events, configMaps)).toBe(true)
    read.resolve()
    await untilWatched(ignorant, configMaps)
    await until(() => looks > 3, { what: 'it has looked for what may be swept' })
    expect([...(await stored(knowing.events, configMaps)).keys()]).toContain('default.m')
    expect(await coverage(knowing.events, configMaps)).toBe(true)
  })

  it('and that the bridge may not read is a condition, which leaves the Reconciler in sync; the right lets it run', async () => {
    const restricted = await restrictedClient(kube, servers.cluster.kubeconfig)
    const rule = (apiGroups: string, resources: string, verbs: string[]) => ({
      apiGroups: [apiGroups],
      resources: [resources],
      verbs,
    })
    const READ = ['get', 'list', 'watch']
    await grant(kube, `${fresh()}-reconcilers`, rule('fairlead.dev', 'reconcilers', READ))
    await grant(kube, `${fresh()}-status`, rule('fairlead.dev', 'reconcilers/status', ['patch']))
    await grant(kube, `${fresh()}-widgets`, rule('example.com', 'widgets', READ))
    await grant(kube, `${fresh()}-gadgets`, rule('example.com', 'gadgets', READ))
    await createMap('m')
    await createWidget('a', ['ConfigMap', 'm'], ['Gadget', 'g'])
    await createReconciler(kube, 'naming', { ...naming, related: [configMaps, gadgets].map(onDemand) })
    await using bridge = await start({}, restricted)
    const conditions = async () => {
      const { status } = await kube.get(resourcePath(RECONCILERS, undefined, 'naming'))
      const { conditions = [] } = (status ?? {}) as { conditions?: { type: string; reason: string; message: string }[] }
      return Object.fromEntries(conditions.map((one) => [one.type, one]))
    }
    await until(
      async () => {
        const { NamedKinds, Synced } = await conditions()
        expect(NamedKinds?.message).toContain('gadgets.v1.example.com is not served by the API server')
        expect(NamedKinds?.message).toMatch(/list and watch of configmaps.v1 are not allowed: .*cannot (list|watch)/)
        expect(Synced).toMatchObject({ reason: 'Watching' })
      },
      { what: 'the condition names what is missing' },
    )
    const maps = `${fresh()}-maps`
    await grant(kube, maps, rule('', 'configmaps', READ))
    await untilCovered(bridge, configMaps)
    await until(() => bridge.enqueued.some(({ cause }) => cause === 'first list of configmaps.v1'), {
      what: 'the object runs when the list has ended',
    })
    await retarget('a', ['ConfigMap', 'm'])
    await until(async () => (await conditions())['NamedKinds'] === undefined, { what: 'the condition goes' })
    await revoke(kube, maps)
  })
})

it('a kind that the bridge may no longer read covers nobody until it may', async () => {
  const restricted = await restrictedClient(kube, servers.cluster.kubeconfig)
  const prefix = fresh()
  const may = async (apiGroup: string, resource: string) => {
    const name = `${fresh()}-${resource.replace('/', '-')}`
    const rule = { apiGroups: [apiGroup], resources: [resource], verbs: ['get', 'list', 'watch', 'patch'] }
    await grant(kube, name, rule)
    return name
  }
  await may('fairlead.dev', 'reconcilers')
  await may('example.com', 'widgets')
  const right = await may('', 'configmaps')
  await createMap('m')
  await createWidget('a', ['ConfigMap', 'm'])
  await createReconciler(kube, 'naming', naming)
  {
    await using first = await start({ prefix }, restricted)
    await untilCovered(first, configMaps)
    await first.rested()
  }
  // The API server asks for the right when a watch opens.
  await revoke(kube, right)
  await using bridge = await start({ prefix }, restricted)
  await until(() => bridge.bridge.status().resources.some(({ failure }) => failure?.kind === 'forbidden'))
  await untilCovered(bridge, configMaps, false)
  await createMap('later')
  await may('', 'configmaps')
  await untilCovered(bridge, configMaps)
  await until(async () => (await stored(bridge.events, configMaps)).has('default.later'))
})

it('a kind whose definition comes later is listed then, and its key is queued', async () => {
  await removeWidgets(kube)
  const data = { apiVersion: 'example.com/v1', kind: 'Widget', name: 'w' }
  await kube.create(resourcePath(configMaps, 'default'), { ...configMap('a', ''), data })
  const related = [{ ...widgets, kindPath: 'data', byName: 'data.name' }]
  await createReconciler(kube, 'naming', { for: { ...configMaps, namespaces: ['default'] }, related })
  await using bridge = await start()
  await until(() => bridge.bridge.status().resources.some(({ failure }) => failure?.kind === 'absent'))
  bridge.enqueued.length = 0
  await installWidgets(kube)
  await until(() => bridge.keysOf('naming').includes('default.a'), { what: 'the object runs' })
  await untilCovered(bridge, widgets, true, 'default')
})

const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000)

it(`the kinds watched at the end are exactly those named, after any edits, definitions and restarts (SEED=${seed})`, async () => {
  const random = randomFrom(seed)
  const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T
  const prefix = fresh()
  const names = ['a', 'b', 'c']
  for (const name of names) await createWidget(name)
  await createReconciler(kube, 'naming', { ...naming, related: [...GRANTED, gadgets].map(onDemand) })
  let bridge = await start({ prefix })
  const named = new Map<string, Target[]>()
  try {
    for (let step = 0; step < 40; step++) {
      const name = pick(names)
      const targets = [...GRANTED, gadgets, accounts]
        .filter(() => random() < 0.3)
        .map(({ kind }): Target => [kind, 'x'])
      if (random() < 0.15) {
        await bridge[Symbol.asyncDispose]()
        bridge = await start({ prefix })
      } else if (random() < 0.2) {
        await kube.delete(resourcePath(widgets, 'default', name))
        await createWidget(name)
        named.delete(name)
      } else {
        await retarget(name, ...targets)
        named.set(name, targets)
      }
    }
    const wanted = [...GRANTED, gadgets].filter(({ kind }) => [...named.values()].flat().some(([one]) => one === kind))
    await untilWatched(bridge, ...wanted)
    for (const ref of GRANTED) await untilCovered(bridge, ref, wanted.includes(ref))
  } finally {
    await bridge[Symbol.asyncDispose]()
  }
})
