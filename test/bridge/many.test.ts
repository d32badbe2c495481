import { fork } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Bridge, BridgeObserver } from '#bridge'
import { createKubeClient } from '#kube'
import { RECONCILERS } from '#spec'
import { json, startScriptedServer } from '../kube/scripted-server.ts'
import { LEASHED } from '../support/fairlead.ts'
import { startTestNats } from '../support/servers.ts'
import { configMaps, reconcilerObject } from './objects.ts'
import { bookmark, end, hold, line, map, type ScriptedApi, startScriptedApi } from './scripted-api.ts'
import { startBridge, until } from './world.ts'

const RESOURCES = 200
const NAMESPACES = Array.from({ length: 50 }, (_, index) => `ns-${index}`)
const secrets = { group: '', version: 'v1', resource: 'secrets', kind: 'Secret' }
/** A Reconciler may own 64 kinds. */
const OWNED = 50
const LISTS_AT_ONCE = 8

const thing = (index: number) => ({
  group: 'many.dev',
  version: 'v1',
  resource: `thing${index}s`,
  kind: `Thing${index}`,
})

function listedReconciler(...args: Parameters<typeof reconcilerObject>): string {
  const { metadata, ...rest } = reconcilerObject(...args)
  return line('ADDED', { ...rest, metadata: { ...metadata, uid: metadata.name, resourceVersion: '1' } })
}

let nats: Awaited<ReturnType<typeof startTestNats>>
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats?.stop())

it('asks for 200 resources in 50 namespaces each with a list and a watch per resource, eight lists at once', async () => {
  const things = Array.from({ length: RESOURCES }, (_, index) => thing(index))
  const reconcilers = Array.from({ length: RESOURCES / OWNED }, (_, index) => {
    const [first = thing(0), ...owns] = things.slice(index * OWNED, (index + 1) * OWNED)
    return listedReconciler(`r${index}`, { for: { ...first, namespaces: NAMESPACES }, owns })
  })
  let open = 0
  let mostOpen = 0
  await using server = await startScriptedServer(async ({ url }, response) => {
    const { pathname, searchParams } = new URL(url ?? '', 'https://x')
    if (!searchParams.has('watch'))
      return json(response, 200, {
        resources: things.map(({ resource: name, kind }) => ({ name, kind, namespaced: true })),
      })
    if (!searchParams.has('sendInitialEvents')) return hold(response)
    const isReconcilers = pathname.endsWith('/reconcilers')
    mostOpen = Math.max(mostOpen, isReconcilers ? 0 : ++open)
    await sleep(20)
    if (!isReconcilers) open--
    return response.write((isReconcilers ? reconcilers.join('') : '') + end(10))
  })
  await using kube = createKubeClient({ ...server.access, userAgent: 'test' })
  await using bridge = await startBridge(kube, nats.url, { prefix: 'many' })
  const isWatching = ({ phase, synced }: { phase: string; synced: boolean }) => phase === 'watching' && synced
  const asked = () => server.requests.map(({ url }) => new URL(url ?? '', 'https://x'))
  const ofThings = () => asked().filter(({ pathname }) => pathname.includes('/thing'))
  await until(
    async () => {
      const { resources } = bridge.bridge.status()
      return resources.length === RESOURCES + 1 && resources.every(isWatching) && ofThings().length >= 2 * RESOURCES
    },
    { what: 'all are watched' },
  )
  expect(new Set(ofThings().map(({ pathname }) => pathname)).size).toBe(RESOURCES)
  expect(ofThings()).toHaveLength(2 * RESOURCES)
  // How often their conditions are written is a matter of time.
  const others = asked().filter(({ pathname }) => !pathname.includes('/thing') && !pathname.endsWith('/status'))
  // The list and the watch of Reconcilers. The kinds are asked for by one request for each part in which the list arrives.
  const ofReconcilers = others.filter(({ pathname }) => pathname.endsWith('/reconcilers'))
  expect(ofReconcilers).toHaveLength(2)
  expect(others.length).toBeLessThanOrEqual(ofReconcilers.length + 3)
  expect(mostOpen).toBeLessThanOrEqual(LISTS_AT_ONCE)
})

it('a change is published, and its key queued in the high lane, while a list of thousands has not ended', async () => {
  const reconcilers = [configMaps, secrets].map((primary) => listedReconciler(primary.resource, { for: primary }))
  let list: ServerResponse | undefined
  let watch: ServerResponse | undefined
  await using server = await startScriptedServer(({ url }, response) => {
    const { pathname, searchParams } = new URL(url ?? '', 'https://x')
    if (pathname === '/api/v1') return json(response, 200, { resources: [] })
    hold(response)
    if (pathname.endsWith('/configmaps')) list = response
    else if (searchParams.has('sendInitialEvents'))
      response.write((pathname.endsWith('/reconcilers') ? reconcilers.join('') : '') + end(10))
    else if (pathname.endsWith('/secrets')) watch = response
  })
  await using kube = createKubeClient({ ...server.access, userAgent: 'test' })
  const published: string[] = []
  const observer: BridgeObserver = { published: ({ object }) => published.push(object.metadata.name) }
  await using bridge = await startBridge(kube, nats.url, { prefix: 'overtaken', observer })
  const lanesOf = (name: string) =>
    bridge.enqueued.filter(({ key }) => key === `default.${name}`).map(({ lane }) => lane)
  await until(async () => list !== undefined && watch !== undefined, { what: 'one is listed, the other watched' })

  const names = Array.from({ length: 3000 }, (_, index) => `listed-${index}`)
  list?.write(names.map((name) => line('ADDED', map(name, 7))).join(''))
  await until(async () => published.includes('listed-0'), { what: 'the list is being published' })
  const before = published.length
  watch?.write(line('ADDED', map('urgent', 11)))
  await until(async () => lanesOf('urgent').length > 0, { what: 'the other change is queued' })
  // Those under way go first: 128 of the list at a time, while the steps of this one take several turns.
  expect(published.indexOf('urgent') - before).toBeLessThan(names.length / 3)

  list?.write(line('MODIFIED', map('listed-0', 12)))
  await until(async () => lanesOf('listed-0').length > 1, {
    what: 'what was changed while it was listed is queued again',
  })
  expect([lanesOf('urgent'), lanesOf('listed-0')]).toEqual([['high'], ['low', 'high']])
  expect(bridge.relists.some(({ resource }) => resource === 'configmaps.v1')).toBe(false)
})

it('after a restart of NATS a change is queued in the high lane while everything is listed again, and the cursor waits for the list', async () => {
  await using own = await startTestNats()
  const answers = { list: [] as ServerResponse[], watch: [] as ServerResponse[] }
  await using api: ScriptedApi = await startScriptedApi(({ kind, number }, response) => {
    hold(response)
    if (kind === 'streamed list' && number === 1)
      return void response.write(line('ADDED', map('a', 7)) + line('ADDED', map('b', 8)) + end(10))
    answers[kind === 'watch' ? 'watch' : 'list'].push(response)
  })
  const prefix = 'beside'
  await using bridge = await startBridge(api.kube, own.url, { prefix, noticeRestarts: true })
  const { length: watches } = answers.watch
  const lanesOf = (name: string) =>
    bridge.enqueued.filter(({ key }) => key === `default.${name}`).map(({ lane }) => lane)
  await bridge.synced('configmaps.v1')
  await until(() => answers.watch.length > watches, { what: 'the ConfigMaps are watched' })
  const cursor = async () => {
    const { resourceVersion, covers } = (await bridge.events.cursor(configMaps)) ?? {}
    return { resourceVersion, covers: covers?.length }
  }
  await until(async () => (await cursor()).resourceVersion === '10', { what: 'the cursor is stored' })
  const before = answers.watch.length
  own.signal('SIGKILL')
  await own.restart()

  await until(() => answers.list.length > 0 && answers.watch.length > before, { what: 'both are asked for' })
  answers.list[0]?.write(line('ADDED', map('a', 7)))
  await until(() => lanesOf('a').includes('low') && lanesOf('a').length > 1, { what: 'the list is being published' })
  const found = bridge.enqueued.findLast(({ key, lane }) => key === 'default.a' && lane === 'low')
  expect(found?.cause).toBe('NATS was restarted')
  bridge.enqueued.length = 0
  answers.watch.at(-1)?.write(line('MODIFIED', map('b', 11)))
  await until(() => lanesOf('b').length > 0, { what: 'the change is queued' })
  expect(lanesOf('b')).toEqual(['high'])
  const status = () => bridge.bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1')
  expect(status()?.resourceVersion).toBe('10')

  // The list is of a state before the change.
  answers.list[0]?.write(line('ADDED', map('b', 8)) + end(10))
  await until(() => lanesOf('b').length > 1, { what: 'the list has ended' })
  const seen = await bridge.events.observe({ primary: { ref: configMaps, namespace: 'default', name: 'b' } })
  expect(seen.primary?.resourceVersion).toBe('11')
  answers.watch.at(-1)?.write(line('MODIFIED', map('b', 12)))
  await until(async () => (await cursor()).resourceVersion === '12', { what: 'the cursor follows the watch' })
  expect((await cursor()).covers).toBe(1)
  const lists = bridge.relists.filter(({ resource }) => resource === 'configmaps.v1')
  expect(lists.map(({ because }) => because)).toEqual(['initial', 'store-restarted'])
})

it('the cursor of the Reconcilers, by which others see that a bridge works, moves while another resource is listed', async () => {
  let watch: ServerResponse | undefined
  await using server = await startScriptedServer(({ url }, response) => {
    const { pathname, searchParams } = new URL(url ?? '', 'https://x')
    if (pathname === '/api/v1') return json(response, 200, { resources: [] })
    hold(response)
    if (!pathname.endsWith('/reconcilers')) return
    if (searchParams.has('sendInitialEvents')) response.write(listedReconciler('maps', { for: configMaps }) + end(10))
    else watch = response
  })
  await using kube = createKubeClient({ ...server.access, userAgent: 'test' })
  await using bridge = await startBridge(kube, nats.url, { prefix: 'lists' })
  const isListing = () => statusOf(bridge)?.phase === 'listing'
  await until(() => watch !== undefined && isListing(), { what: 'the ConfigMaps are listed' })
  watch?.write(bookmark(11))
  await until(async () => (await bridge.events.cursor(RECONCILERS))?.resourceVersion === '11', { what: 'it moves' })
  expect(isListing()).toBe(true)
})

describe('of each object that it knows, however large that is', () => {
  const BYTES = 256
  const WARM_UP = 1000
  const OBJECTS = 3000
  const LARGE_BYTES = 30 * 1024

  it(`a bridge keeps less than ${BYTES} bytes in memory`, async () => {
    let list: ServerResponse | undefined
    await using api = await startScriptedApi(({ kind }, response) => {
      hold(response)
      if (kind === 'streamed list') list = response
    })
    await using bridge = startMeasuredBridge(api.access)
    await until(async () => list !== undefined, { what: 'it lists' })
    list?.write(objects(0, WARM_UP))
    const before = await bridge.bytesInUse(WARM_UP)
    list?.write(objects(WARM_UP, OBJECTS))
    const after = await bridge.bytesInUse(WARM_UP + OBJECTS)
    expect(after.heap - before.heap).toBeLessThan(OBJECTS * BYTES)
    expect(after.outside - before.outside).toBeLessThan(OBJECTS * BYTES)
  })

  /** One in thirty is large: together five times what may be kept. */
  function objects(first: number, count: number): string {
    const numbers = Array.from({ length: count }, (_, index) => first + index)
    return numbers.map((number) => object(number, number % 30 === 0 ? LARGE_BYTES : 100)).join('')
  }

  function object(number: number, bytes: number): string {
    const name = `visitors-config-${String(number).padStart(5, '0')}`
    const one = { ...map(name, 1000 + number, { uid: randomUUID() }), data: { value: 'x'.repeat(bytes) } }
    return line('ADDED', one)
  }

  function startMeasuredBridge({ server, ca }: ScriptedApi['access']) {
    const args = [server, String(ca), nats.url, 'measured']
    const child = fork(new URL('memory-process.ts', import.meta.url), args, { execArgv: ['--expose-gc', ...LEASHED] })
    return {
      /** Resolves when the bridge has published this number of changes. */
      async bytesInUse(published: number): Promise<{ heap: number; outside: number }> {
        child.send(published)
        const [bytes] = await once(child, 'message')
        return bytes
      },
      async [Symbol.asyncDispose]() {
        child.kill('SIGKILL')
        await once(child, 'exit')
      },
    }
  }
})

const statusOf = ({ bridge }: { bridge: Bridge }) =>
  bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1')

it('of thousands of changes at once each is published, in order per object, 128 at a time, and no lag remains', async () => {
  const names = Array.from({ length: 200 }, (_, index) => `changed-${index}`)
  const versions = Array.from({ length: 3000 }, (_, index) => 11 + index)
  /** Several in a row. */
  const nameOf = (version: number) => names[Math.floor(version / 5) % names.length] ?? ''
  await using api = await startScriptedApi(({ kind }, response) => {
    const [type, objects, ending] =
      kind === 'watch'
        ? ['MODIFIED', versions.map((version) => map(nameOf(version), version)), '']
        : ['ADDED', names.map((name) => map(name, 1)), end(10)]
    response.write(objects.map((object) => line(type, object)).join('') + ending)
  })
  const stored: { name: string; version: number }[] = []
  const unconfirmed: number[] = []
  const observer: BridgeObserver = {
    seen: () => unconfirmed.push(statusOf(bridge)?.unconfirmed ?? 0),
    published({ verb, outcome, object: { metadata } }) {
      if (verb === 'modified' && outcome === 'stored')
        stored.push({ name: metadata.name, version: Number(metadata.resourceVersion) })
    },
  }
  await using bridge = await startBridge(api.kube, nats.url, { prefix: 'burst', observer })
  await until(async () => stored.length === versions.length, { what: 'all are stored' })
  const ofEach = (changes: typeof stored) => Map.groupBy(changes, ({ name }) => name)
  expect(ofEach(stored)).toEqual(ofEach(versions.map((version) => ({ name: nameOf(version), version }))))
  expect(Math.max(...unconfirmed)).toBeLessThanOrEqual(128)
  const newest = `${versions.at(-1)}`
  await until(async () => statusOf(bridge)?.resourceVersion === newest, { what: 'all are confirmed' })
  expect(statusOf(bridge)).toMatchObject({
    unconfirmed: 0,
    heldBackSince: undefined,
    latestResourceVersion: newest,
  })
  expect(api.asked.map(({ kind }) => kind)).toEqual(['streamed list', 'watch'])
})

it('a bridge that starts with a cursor asks for one watch from there, and for no list, whatever there is', async () => {
  const objects = Array.from({ length: 500 }, (_, index) => line('ADDED', map(`known-${index}`, 7)))
  const watches: ServerResponse[] = []
  await using api = await startScriptedApi(({ kind }, response) => {
    hold(response)
    if (kind === 'watch') watches.push(response)
    else response.write(objects.join('') + end(10))
  })
  {
    await using first = await startBridge(api.kube, nats.url, { prefix: 'again' })
    await first.synced('configmaps.v1')
    await until(async () => watches.length === 1, { what: 'it is watched' })
    await first.rested()
  }
  const before = api.asked.length
  await using again = await startBridge(api.kube, nats.url, { prefix: 'again' })
  await until(async () => watches.length === 2, { what: 'it is watched again' })
  watches.at(-1)?.write(line('MODIFIED', map('known-0', 11)))
  await until(async () => again.enqueued.length > 0, { what: 'the change is queued' })
  const asked = api.asked.slice(before).map(({ kind, query: { resourceVersion } }) => ({ kind, resourceVersion }))
  expect(asked).toEqual([{ kind: 'watch', resourceVersion: '10' }])
  expect(again.keysOf('maps')).toEqual(['default.known-0'])
})
