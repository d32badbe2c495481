import type { ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Registry } from 'prom-client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type BridgeStatus, troubles } from '#bridge'
import type { Nats } from '#lab'
import { readConfig } from '../../cli/process/config.ts'
import { openStreams } from '../../cli/process/connections.ts'
import { createLogger } from '../../cli/process/logging.ts'
import { serveMetrics } from '../../cli/process/metrics.ts'
import { bridgeGauges } from '../../cli/process/run-metrics.ts'
import { createNatsHealth, createRuntime } from '../../cli/process/runtime.ts'
import { bookmark, end, failure, hold, line, map, startScriptedApi } from '../bridge/scripted-api.ts'
import { startBridge, until } from '../bridge/world.ts'
import { json } from '../kube/scripted-server.ts'
import { startTestNats } from '../support/servers.ts'

let nats: Nats & AsyncDisposable
let number = 0
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats?.stop())

/** A bridge whose list of ConfigMaps is complete at version 10, and whose watches the script plays. */
async function begin(
  watch: (number: number, response: ServerResponse, from: number) => unknown,
  { silenceSeconds, now = () => new Date() }: { silenceSeconds?: number; now?: () => Date } = {},
) {
  const api = await startScriptedApi(({ kind, number, query }, response) => {
    if (kind === 'watch') return void watch(number, response, Number(query['resourceVersion']))
    return void response.write(line('ADDED', map('a', 7)) + end(10))
  })
  const bridge = await startBridge(api.kube, nats.url, { prefix: `h${++number}`, silenceSeconds, now })
  const status = () => bridge.bridge.status()
  let seconds = 0
  const later = () => new Date(now().getTime() + seconds * 1000)
  const listening = await listen({ status, troubles: () => troubles(status(), later()) })
  return {
    ...listening,
    asked: api.asked,
    status: () => status().resources.find(({ resource }) => resource === 'configmaps.v1')!,
    gauge: async (name: string) => {
      const { text } = await listening.get('/metrics')
      const found = text.match(`fairlead_bridge_${name}{resource="configmaps.v1",namespace=""} (.*)`)
      return Number(found?.[1])
    },
    /** Returns the answer of /readyz after this number of seconds. */
    readyIn: async (later: number) => {
      seconds = later
      return listening.get('/readyz')
    },
    synced: () => bridge.synced('configmaps.v1'),
    async [Symbol.asyncDispose]() {
      await listening[Symbol.asyncDispose]()
      await bridge[Symbol.asyncDispose]()
      await api[Symbol.asyncDispose]()
    },
  }
}

async function listen(health: { status: () => BridgeStatus | undefined; troubles: () => string[] }) {
  const registry = new Registry()
  bridgeGauges(registry, health.status)
  const server = await serveMetrics('127.0.0.1:0', registry, health)
  const { port } = server.address() as AddressInfo
  return {
    async get(path: string) {
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: 'close' } })
      return { code: answer.status, text: await answer.text() }
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** However long a busy machine takes, no time has passed. */
const stopped = () => {
  const at = new Date()
  return { now: () => at }
}

const OK = { code: 200, text: 'ok\n' }
const namesConfigMaps = (trouble: string) => ({
  code: 503,
  text: expect.stringMatching(new RegExp(`configmaps.v1: ${trouble}`)),
})

describe.concurrent('a bridge is not ready', () => {
  it.each<[string, (response: ServerResponse) => unknown, string]>([
    ['refuses its watch', (response) => json(response, 503, failure(503, 'Down')), 'Down'],
    ['breaks it off as soon as it is open', (response) => response.end(line('ERROR', failure(500, 'Inner'))), 'Inner'],
  ])('while the API server %s', async (_name, act, why) => {
    await using scene = await begin((_, response) => act(response), stopped())
    await scene.synced()
    const watches = () => scene.asked.filter(({ kind }) => kind === 'watch').length
    await until(async () => scene.status().failingSince !== undefined, { what: 'the watch has failed' })
    const { failingSince } = scene.status()
    await until(async () => watches() >= 2 && scene.status().phase === 'waiting', { what: 'it has failed again' })
    expect(scene.status().failingSince).toEqual(failingSince)
    expect(await scene.gauge('watching')).toBe(0)
    expect(await scene.readyIn(0)).toEqual(OK)
    expect(await scene.readyIn(40)).toEqual(namesConfigMaps(`the watch fails since \\d+ s: .*${why}`))
    expect(await scene.get('/healthz')).toEqual(OK)
  })

  it('when a watch that was silent is asked for anew, and the API server does not answer', async () => {
    await using scene = await begin((number, response) => number === 1 && hold(response), {
      silenceSeconds: 1.1,
      ...stopped(),
    })
    await scene.synced()
    await until(async () => scene.asked.length > 2, { what: 'it is asked for anew' })
    expect(scene.asked.map(({ kind, query }) => [kind, query['resourceVersion']]).slice(1)).toEqual([
      ['watch', '10'],
      ['watch', '10'],
    ])
    expect(scene.status()).toMatchObject({ open: false, failingSince: undefined, unansweredSince: expect.any(Date) })
    expect(await scene.gauge('watching')).toBe(0)
    expect(await scene.readyIn(20)).toEqual(OK)
    expect(await scene.readyIn(31)).toEqual(namesConfigMaps('the API server has not answered'))
  })
})

it('a dispatcher alone is not ready while NATS does not answer', async () => {
  await using api = await startScriptedApi((_, response) => hold(response))
  const config = readConfig({ NATS_URL: nats.url, FAIRLEAD_PREFIX: 'hd', LOG_LEVEL: 'silent' })
  const log = await createLogger(config)
  await using streams = await openStreams(config, api.kube, 'dispatch', log)
  let seconds = 0
  const runtime = createRuntime({
    kube: api.kube,
    streams,
    parts: { bridge: false, dispatch: true },
    functions: [],
    apiConcurrency: 1,
    log,
    now: () => new Date(Date.now() + seconds * 1000),
  })
  await using listening = await listen({ status: () => undefined, troubles: () => runtime.troubles() })
  expect(await listening.get('/readyz')).toEqual(OK)
  seconds = 31
  expect(await listening.get('/readyz')).toEqual({
    code: 503,
    text: expect.stringMatching(/^NATS has not answered since 20\d\d-.*Z\n$/),
  })
  const stop = new AbortController()
  const running = runtime.run(stop.signal, 1000)
  await until(async () => (await listening.get('/readyz')).code === 200, { what: 'it has answered' })
  stop.abort()
  await running
})

it('a question that NATS does not answer is no sign of life', async () => {
  let time = 0
  const stop = new AbortController()
  const natsHealth = createNatsHealth(
    () => Promise.reject(new Error('no answer')),
    () => new Date(time),
  )
  const running = natsHealth.run(stop.signal, 0)
  time = 31_000
  stop.abort()
  await running
  expect(natsHealth.troubles()).toEqual(['NATS has not answered since 1970-01-01T00:00:00.000Z'])
})

it('a bridge whose change NATS does not confirm lags, is not ready, and gets on by itself', async () => {
  // A connection to NATS that is lost on a busy machine opens the watch anew, so each watch gets what it has not seen.
  const changes: { version: number; text: string }[] = []
  let opened: ServerResponse | undefined
  await using scene = await begin((_, response, from) => {
    hold(response)
    opened = response
    for (const { version, text } of changes) if (version > from) response.write(text)
  })
  const send = (version: number, text: string) => {
    changes.push({ version, text })
    opened?.write(text)
  }
  await scene.synced()
  await until(async () => scene.status().open, { what: 'it is watched' })
  expect([await scene.gauge('lag_seconds'), await scene.gauge('lag_resource_versions')]).toEqual([0, 0])
  expect(await scene.gauge('watching')).toBe(1)
  const { heardAt } = scene.status()
  send(11, bookmark(11))
  await until(async () => scene.status().heardAt! > heardAt!, { what: 'a bookmark is heard' })
  expect(await scene.readyIn(60)).toEqual(OK)
  expect(await scene.readyIn(95)).toEqual(namesConfigMaps('the API server has sent nothing for \\d+ s'))
  nats.signal('SIGSTOP')
  try {
    send(21, line('MODIFIED', map('a', 21)))
    await until(async () => scene.status().heldBackSince !== undefined, { what: 'it is held back' })
    await until(async () => (await scene.gauge('lag_seconds')) > 0, { what: 'it lags' })
    expect(await scene.gauge('lag_resource_versions')).toBe(10)
    expect(await scene.readyIn(0)).toEqual(OK)
    expect(await scene.readyIn(40)).toEqual(namesConfigMaps('a change is not confirmed by NATS since \\d+ s'))
    expect(await scene.get('/healthz')).toEqual(OK)
  } finally {
    nats.signal('SIGCONT')
  }
  await until(async () => (await scene.get('/readyz')).code === 200, { what: 'it is ready again' })
  expect([await scene.gauge('lag_seconds'), await scene.gauge('lag_resource_versions')]).toEqual([0, 0])
})
