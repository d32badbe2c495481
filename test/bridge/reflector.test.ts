import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type BridgeObserver, troubles } from '#bridge'
import { json } from '../kube/scripted-server.ts'
import { startTestNats } from '../support/servers.ts'
import { configMaps } from './objects.ts'
import {
  type Asked,
  bookmark,
  end,
  failure,
  hold,
  line,
  map,
  page,
  type Script,
  type ScriptedApiOptions,
  startScriptedApi,
} from './scripted-api.ts'
import { startBridge, stored, until } from './world.ts'

/**
 * The laws of client-go's reflector, watch-list and retry watcher (tools/cache/reflector_test.go,
 * reflector_watchlist_test.go, tools/watch/retrywatcher_test.go; their names in brackets), for what a real API server
 * cannot be made to do at will.
 */
let nats: Awaited<ReturnType<typeof startTestNats>>
let number = 0
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats?.stop())

type Scene = Awaited<ReturnType<typeof begin>>

async function begin(script: Script, observer: BridgeObserver = {}, options: ScriptedApiOptions = {}) {
  const api = await startScriptedApi(script, options)
  const bridge = await startBridge(api.kube, nats.url, { prefix: `r${++number}`, observer })
  return {
    ...bridge,
    asked: api.asked,
    count: (kind: Asked['kind']) => api.asked.filter((ask) => ask.kind === kind).length,
    watches: () => api.asked.filter(({ kind }) => kind === 'watch').map(({ query }) => query['resourceVersion']),
    status: () => bridge.bridge.status().resources.find(({ resource }) => resource === 'configmaps.v1'),
    content: async () =>
      Object.fromEntries([...(await stored(bridge.events, configMaps))].map(([key, value]) => [key.slice(8), value])),
    async [Symbol.asyncDispose]() {
      await bridge[Symbol.asyncDispose]()
      await api[Symbol.asyncDispose]()
    },
  }
}

/** Lists these as a stream, complete at version 10; the watches are the script's. */
const afterList =
  (watch: (number: number, response: ServerResponse) => void, objects = [map('a', 7)]): Script =>
  ({ kind, number }, response) => {
    if (kind === 'streamed list')
      return void response.write(objects.map((one) => line('ADDED', one)).join('') + end(10))
    if (kind === 'list') return json(response, 200, page(10, objects))
    return watch(number, response)
  }

const untilContent = (scene: Scene, wanted: Record<string, string>) =>
  until(async () => isDeepStrictEqual(await scene.content(), wanted), { what: `EVENTS has ${JSON.stringify(wanted)}` })

describe.concurrent('a list', () => {
  it('is a stream of the newest state, up to the bookmark that ends it (TestWatchList, TestWatchListResourceVersion)', async () => {
    let finish = () => {}
    await using scene = await begin(({ kind }, response) => {
      if (kind !== 'streamed list') return hold(response)
      response.write(
        line('ADDED', map('a', 30)) + bookmark(31) + bookmark(32, { 'k8s.io/initial-events-end': 'false' }),
      )
      finish = () => response.write(end(40))
      return undefined
    })
    await untilContent(scene, { a: '30' })
    expect(scene.status()).toMatchObject({ synced: false, phase: 'listing', resourceVersion: undefined })
    finish()
    await scene.synced('configmaps.v1')
    await until(async () => scene.watches().length === 1, { what: 'it is watched' })
    expect(scene.watches()).toEqual(['40'])
    expect(scene.asked[0]?.query).toMatchObject({
      sendInitialEvents: 'true',
      resourceVersionMatch: 'NotOlderThan',
      allowWatchBookmarks: 'true',
    })
    expect(scene.asked[0]?.query['resourceVersion']).toBeUndefined()
  })

  it('keeps what is changed and deleted while it streams', async () => {
    await using scene = await begin(({ kind }, response) => {
      if (kind !== 'streamed list') return hold(response)
      const lines = [line('ADDED', map('a', 1)), line('ADDED', map('b', 2)), line('MODIFIED', map('a', 8))]
      return void response.write([...lines, line('DELETED', map('b', 9)), end(10)].join(''))
    })
    await scene.synced('configmaps.v1')
    expect(await scene.content()).toEqual({ a: '8', b: 'deleted' })
  })

  it('brings nothing back whose deletion was told after it had begun', async () => {
    let go = () => {}
    await using scene = await begin(({ kind }, response) => {
      if (kind !== 'streamed list') return hold(response)
      response.flushHeaders()
      go = () => response.write(line('ADDED', map('a', 7)) + line('ADDED', map('b', 8)) + end(10))
      return undefined
    })
    await until(async () => scene.count('streamed list') === 1, { what: 'it is asked for the list' })
    await scene.events.put(configMaps, 'deleted', map('a', 7))
    go()
    await scene.synced('configmaps.v1')
    expect(await scene.content()).toEqual({ a: 'deleted', b: '8' })
  })

  it.each<[string, (response: ServerResponse) => void]>([
    ['refuses to stream', (response) => json(response, 422, failure(422, 'Invalid'))],
    ['ends the stream without the bookmark', (response) => response.end(line('ADDED', map('a', 7)))],
  ])('comes in pages from a server that %s, and stays so', async (_name, refuse) => {
    await using scene = await begin(({ kind, query, number }, response) => {
      if (kind === 'streamed list') return refuse(response)
      if (kind === 'watch') return number === 1 ? json(response, 410, failure(410, 'Expired')) : hold(response)
      const isFirst = query['continue'] === undefined
      return json(response, 200, isFirst ? page(10, [map('a', 7)], { continue: 'c' }) : page(10, [map('b', 8)]))
    })
    await until(async () => scene.watches().length === 2, { what: 'it is listed and watched again' })
    expect(await scene.content()).toEqual({ a: '7', b: '8' })
    expect([scene.count('streamed list'), scene.count('list')]).toEqual([1, 4])
    expect(scene.asked.filter(({ kind }) => kind === 'list').map(({ query }) => query['limit'])).toEqual(
      Array(4).fill('500'),
    )
  })

  it('that breaks off is repeated in pages, later', async () => {
    await using scene = await begin(({ kind }, response) => {
      if (kind === 'watch') return hold(response)
      if (kind === 'list') return json(response, 200, page(10, [map('a', 7)]))
      return void response.write(line('ADDED', map('a', 7)), () => response.destroy())
    })
    await scene.synced('configmaps.v1')
    expect([scene.count('streamed list'), scene.count('list')]).toEqual([1, 1])
  })

  it.each([429, 500, 503])('that is answered with %i is asked for again, not at once', async (code) => {
    await using scene = await begin(({ kind, number }, response) => {
      if (kind === 'watch') return hold(response)
      if (kind === 'streamed list') return json(response, code, failure(code, 'Busy'), { 'retry-after': '1' })
      return number === 1 ? json(response, code, failure(code, 'Busy')) : json(response, 200, page(10, [map('a', 7)]))
    })
    await scene.synced('configmaps.v1')
    const [first, second] = scene.asked
    expect(second!.at - first!.at).toBeGreaterThan(790)
    expect(scene.count('list')).toBe(2)
  })
})

describe.concurrent('a watch', () => {
  it('goes on after the newest version it was given, a bookmark’s too (TestReflectorResourceVersionUpdate)', async () => {
    const lines = [
      line('ADDED', map('b', 20)),
      line('MODIFIED', map('b', 30)),
      line('DELETED', map('a', 40)),
      bookmark(50),
    ]
    await using scene = await begin(
      afterList((number, response) => (number === 1 ? response.end(lines.join('')) : hold(response))),
    )
    await until(async () => scene.watches().length === 2, { what: 'it is watched again' })
    expect(scene.watches()).toEqual(['10', '50'])
    await untilContent(scene, { b: '30', a: 'deleted' })
    await until(async () => (await scene.events.cursor(configMaps))?.resourceVersion === '50', {
      what: 'the cursor is there',
    })
    expect(scene.count('streamed list')).toBe(1)
  })

  it.each<[string, (response: ServerResponse) => unknown]>([
    [
      'asks for patience (TestNoRelistOnTooManyRequests)',
      (response) => json(response, 429, failure(429, 'TooManyRequests')),
    ],
    ['has an inner error (TestRetryInternalError)', (response) => json(response, 500, failure(500, 'InternalError'))],
    ['reports one inside', (response) => response.end(line('ERROR', failure(500, 'InternalError')))],
    ['breaks the connection (TestRetryWatcher)', (response) => response.destroy()],
    ['sends what is no JSON', (response) => response.end('{oops\n')],
    ['ends in the middle of a line', (response) => response.end('{"type":"ADDED"')],
  ])('of a server that %s is asked for again from there, later each time, without a list', async (_name, act) => {
    await using scene = await begin(
      afterList((number, response) => {
        if (number > 2) return void response.write(line('MODIFIED', map('a', 21)))
        return act(response)
      }),
    )
    await untilContent(scene, { a: '21' })
    expect(scene.watches()).toEqual(['10', '10', '10'])
    expect(scene.count('streamed list') + scene.count('list')).toBe(1)
    const [first, second, third] = scene.asked.filter(({ kind }) => kind === 'watch').map(({ at }) => at)
    expect(second! - first!).toBeGreaterThan(790)
    expect(third! - second!).toBeGreaterThan(1590)
  })

  it('that ends at once is asked for again from there, without a list (VeryShortWatchError)', async () => {
    await using scene = await begin(
      afterList((number, response) =>
        number > 2 ? void response.write(line('MODIFIED', map('a', 21))) : response.end(),
      ),
    )
    await untilContent(scene, { a: '21' })
    // The pauses between them are laws of watch-state.test.ts: here a watch may take a second to open.
    expect(scene.watches()).toEqual(['10', '10', '10'])
    expect(scene.count('streamed list') + scene.count('list')).toBe(1)
  })

  it.each<[string, (response: ServerResponse) => unknown]>([
    ['gone, on opening (TestReflectorFullListIfExpired)', (response) => json(response, 410, failure(410, 'Gone'))],
    ['gone, inside', (response) => response.end(line('ERROR', failure(410, 'Expired')))],
    [
      'not there yet (TestReflectorFullListIfTooLarge)',
      (response) =>
        json(response, 504, failure(504, 'Timeout', { details: { causes: [{ reason: 'ResourceVersionTooLarge' }] } })),
    ],
  ])(
    'whose history is %s lists the newest state, and finds what was missed (TestSharedInformerWatchDisruption)',
    async (_name, act) => {
      const before = [map('a', 7), map('b', 8), map('c', 9), map('d', 6)]
      const after = [map('a', 7), map('b', 18), map('d', 16, { uid: 'another' })]
      await using scene = await begin(({ kind, number }, response) => {
        if (kind === 'watch') return number === 1 ? act(response) : hold(response)
        const objects = number === 1 && kind === 'streamed list' ? before : after
        if (kind === 'list') return json(response, 200, page(20, objects))
        return void response.write(objects.map((one) => line('ADDED', one)).join('') + end(number * 10))
      })
      const seen: string[] = []
      const stop = new AbortController()
      void (async () => {
        for await (const { verb, key, resourceVersion } of scene.events.follow({ ref: configMaps }, stop.signal))
          seen.push(`${verb} ${key.name} ${resourceVersion}`)
      })()
      await until(async () => scene.watches().length === 2, { what: 'it is watched again' })
      expect(scene.watches()).toEqual(['10', '20'])
      expect([scene.count('streamed list'), scene.count('list')]).toEqual([2, 0])
      await until(async () => seen.includes('added d 16'), { what: 'the recreation is seen' })
      stop.abort()
      expect(await scene.content()).toEqual({ a: '7', b: '18', c: 'deleted', d: '16' })
      expect(scene.enqueued.filter(({ key }) => key === 'default.a')).toHaveLength(1)
      expect(scene.relists.at(-1)).toMatchObject({ because: 'expired', deleted: 1 })
    },
  )

  it('that breaks is not opened on a server that is behind it, because it was restored: it is listed', async () => {
    const script: Script = ({ kind, number }, response) => {
      if (kind === 'watch') return number === 1 ? void response.destroy() : hold(response)
      const objects = number === 1 ? [map('a', 7), map('b', 8)] : [map('a', 5)]
      return void response.write(objects.map((one) => line('ADDED', one)).join('') + end(number === 1 ? 10 : 6))
    }
    await using scene = await begin(script, {}, { reached: () => 6 })
    await until(async () => scene.watches().length === 2, { what: 'it is watched again' })
    expect(scene.watches()).toEqual(['10', '6'])
    expect(scene.relists.at(-1)).toMatchObject({ because: 'expired', deleted: 1 })
    expect(await scene.content()).toEqual({ a: '5', b: 'deleted' })
  })

  it('takes nothing older, and nothing twice', async () => {
    const again = [line('MODIFIED', map('a', 20)), line('MODIFIED', map('a', 20)), line('MODIFIED', map('a', 15))]
    const taken: (string | undefined)[] = []
    const observer: BridgeObserver = {
      published({ ref, outcome, object: { metadata } }) {
        if (ref.resource === 'configmaps' && outcome === 'stored') taken.push(metadata.resourceVersion)
      },
    }
    const script = afterList((_, response) => void response.write(again.join('') + bookmark(30)))
    await using scene = await begin(script, observer)
    await until(async () => (await scene.events.cursor(configMaps))?.resourceVersion === '30', { what: 'all is taken' })
    expect(await scene.content()).toEqual({ a: '20' })
    expect(taken).toEqual(['7', '20'])
  })

  it('never begins without a version, and asks the server to end it within four to six minutes (TestWatchTimeout)', async () => {
    await using scene = await begin(
      afterList((number, response) => (number < 4 ? response.end(bookmark(10 + number)) : hold(response))),
    )
    await until(async () => scene.watches().length === 4, { what: 'some were opened' })
    for (const { query } of scene.asked.filter(({ kind }) => kind === 'watch')) {
      expect(Number(query['resourceVersion'])).toBeGreaterThanOrEqual(10)
      expect(Number(query['timeoutSeconds'])).toBeGreaterThanOrEqual(240)
      expect(Number(query['timeoutSeconds'])).toBeLessThan(340)
    }
    expect(new Set(scene.asked.slice(1).map(({ query }) => query['timeoutSeconds'])).size).toBeGreaterThan(1)
  })

  it.each<[string, Script]>([
    ['while it lists', (_ask, response) => hold(response)],
    ['while it watches', afterList((_, response) => hold(response))],
    ['while it waits', (_ask, response) => json(response, 503, failure(503, 'Down'))],
  ])('stops %s, and asks for nothing any more (TestReflectorStopWatch, TestRunUntil)', async (_name, script) => {
    const api = await startScriptedApi(script)
    const bridge = await startBridge(api.kube, nats.url, { prefix: `r${++number}` })
    await until(async () => api.asked.length > 0, { what: 'it has begun' })
    await bridge[Symbol.asyncDispose]()
    const asked = api.asked.length
    await sleep(50)
    expect(api.asked).toHaveLength(asked)
    await api[Symbol.asyncDispose]()
  })
})

it('a bridge that starts again does its work only once it knows of the Reconcilers, not by what a cursor says', async () => {
  let isAnswering = true
  const api = await startScriptedApi(
    afterList((_, response) => hold(response)),
    { reconcilers: () => isAnswering },
  )
  const prefix = `r${++number}`
  {
    await using first = await startBridge(api.kube, nats.url, { prefix })
    await first.synced('configmaps.v1')
    expect(troubles(first.bridge.status(), new Date())).toEqual([])
  }
  isAnswering = false
  await using again = await startBridge(api.kube, nats.url, { prefix })
  const status = () => again.bridge.status().resources[0]
  await until(async () => status()?.phase === 'listing', { what: 'its cursor is read' })
  expect(troubles(again.bridge.status(), new Date())).toEqual(['reconcilers.v1alpha1.fairlead.dev: not synced yet'])
  await api[Symbol.asyncDispose]()
})
