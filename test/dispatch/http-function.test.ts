import { createServer, type Server } from 'node:http'
import { type AddressInfo, createServer as createConnectionServer } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import type { RunInput } from '#contracts'
import { fromHttp } from '#events'
import { type ReconcilerSpec, reconcilerSpec } from '#spec'
import { type HttpFunction, httpFunction } from '../../dispatch/http/http-function.ts'
import { freePorts } from '../../packages/lab/ports.ts'
import { startHttpReceiver } from '../support/http-receiver.ts'
import { silent as log } from '../support/silent.ts'
import { widget } from './objects.ts'

const spec: ReconcilerSpec = reconcilerSpec.parse({
  for: { group: 'test.fairlead.dev', version: 'v1', resource: 'widgets', kind: 'Widget' },
  invoke: { http: { url: 'http://unused' } },
})
const input: RunInput = {
  object: widget(),
  owned: {},
  related: {},
  attempt: 2,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
}
/** Its answer ends with the connection. */
async function startUnmeasured(body: string): Promise<{ url: string } & AsyncDisposable> {
  const server = createConnectionServer((socket) => {
    socket.once('data', () => socket.end(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n${body}`))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())),
  }
}

const signed = { 'fairlead-function': 'w' }
const open: HttpFunction[] = []
afterEach(() => {
  for (const one of open.splice(0)) one.close()
})

function at(url: string): HttpFunction & { call: (signal?: AbortSignal) => Promise<unknown> } {
  const made = httpFunction({ name: 'w', spec, url, cluster: 'c1', now: () => new Date(0), random: () => 0.5 })
  open.push(made)
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  const call = (signal = new AbortController().signal) => made.invoke(input, { signal, log, traceparent })
  return { ...made, call }
}

describe('calling a function over HTTP', () => {
  it('sends what a run knows as a CloudEvent, and takes the outcome', async () => {
    await using server = await startHttpReceiver((_, response) =>
      response.setHeader('content-type', 'application/json').end('{"status":{"phase":"DONE"}}'),
    )
    expect(await at(`${server.url}/?x=1`).call()).toEqual({ status: { phase: 'DONE' } })
    const [request] = server.received
    expect(request).toMatchObject({ method: 'POST', url: '/?x=1' })
    expect(request?.headers).toMatchObject({ prefer: 'reply', 'content-type': 'application/json' })
    expect(request?.headers['traceparent']).toMatch(/^00-/)
    expect(fromHttp(request!)).toMatchObject({
      type: 'dev.fairlead.reconcile',
      source: 'https://c1/apis/fairlead.dev/v1alpha1/reconcilers/w',
      subject: '/apis/test.fairlead.dev/v1/namespaces/default/widgets/w',
      partitionkey: 'test.fairlead.dev/widgets/default/w',
      traceparent: request?.headers['traceparent'],
      data: input,
    })
  })

  it('gives each call an id of its own, and keeps its connection', async () => {
    const sockets = new Set<unknown>()
    await using server = await startHttpReceiver((_, response) => {
      sockets.add(response.socket)
      response.writeHead(204, signed).end()
    })
    const called = at(server.url)
    for (let n = 0; n < 3; n++) await called.call()
    expect(new Set(server.received.map(({ headers }) => headers['ce-id'])).size).toBe(3)
    expect(sockets.size).toBe(1)
  })

  it('calls once more where a kept connection had ended just then', async () => {
    let calls = 0
    await using server = await startHttpReceiver((_, response) => {
      if (++calls === 2) response.socket?.resetAndDestroy()
      else response.writeHead(204, signed).end()
    })
    const called = at(server.url)
    await called.call()
    expect(await called.call()).toEqual({})
    expect(calls).toBe(3)
  })

  it('takes a function that nobody serves for away, with longer and longer pauses until it answers', async () => {
    const [nobody = 0] = await freePorts(1)
    const called = at(`http://127.0.0.1:${nobody}`)
    const pauses: (number | undefined)[] = []
    for (let n = 0; n < 4; n++)
      pauses.push((await called.call().catch((error: { afterSeconds: number }) => error.afterSeconds)) as number)
    expect(pauses.map((pause) => Math.round((pause ?? 0) * 100) / 100)).toEqual(
      [0.25, 0.5, 1, 2].map((s) => expect.closeTo(s, 0)),
    )
    await expect(called.call()).rejects.toMatchObject({
      name: 'FunctionError',
      isAway: true,
      message: expect.stringContaining('ECONNREFUSED'),
    })
    await using server = await startHttpReceiver((_, response) => response.writeHead(204, signed).end(), nobody)
    expect(await called.call()).toEqual({})
    await server[Symbol.asyncDispose]()
    await expect(called.call()).rejects.toMatchObject({ isAway: true, afterSeconds: expect.closeTo(0.25, 1) })
  })

  it.each([502, 503, 504])('counts %d only where others were answered meanwhile', async (code) => {
    const release: (() => void)[] = []
    await using server = await startHttpReceiver((_, response) => {
      if (server.received.length === 2) response.writeHead(204, signed).end()
      else release.push(() => response.writeHead(code).end())
    })
    const called = at(server.url)
    const first = called.call().catch((error: unknown) => error)
    while (release.length < 1) await new Promise(setImmediate)
    await called.call()
    release[0]?.()
    expect(await first).toMatchObject({ name: 'FunctionError', isAway: false })
    const alone = called.call().catch((error: unknown) => error)
    while (release.length < 2) await new Promise(setImmediate)
    release[1]?.()
    expect(await alone).toMatchObject({ name: 'FunctionError', isAway: true, afterSeconds: expect.closeTo(0.25, 1) })
  })

  it('takes an answer that breaks off for away', async () => {
    await using server = await startHttpReceiver((_, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('{"sta', () => response.socket?.resetAndDestroy())
    })
    await expect(at(server.url).call()).rejects.toMatchObject({ isAway: true })
  })

  it.each(['', '{"status":{"pha'])(
    'takes %j for away where nobody has said how long the answer is: its server may have been killed in it',
    async (part) => {
      await using server = await startUnmeasured(part)
      await expect(at(server.url).call()).rejects.toMatchObject({ name: 'FunctionError', isAway: true })
    },
  )

  it('takes an answer of a length that nobody has said when it is whole', async () => {
    await using server = await startUnmeasured('{"status":{"phase":"DONE"}}')
    expect(await at(server.url).call()).toEqual({ status: { phase: 'DONE' } })
  })

  it('stops at once when the run is over, with its reason', async () => {
    const arrived = Promise.withResolvers<Server>()
    const server = createServer(() => arrived.resolve(server)).listen(0, '127.0.0.1')
    await new Promise((resolve) => server.once('listening', resolve))
    const over = new AbortController()
    const called = at(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).call(over.signal)
    await arrived.promise
    over.abort(new Error('the lease is over'))
    await expect(called).rejects.toThrow('the lease is over')
    server.closeAllConnections()
    server.close()
  })
})

it('sends an effect on a connection of its own, because it must not be repeated where a kept one has just ended', async () => {
  const connections: unknown[] = []
  const http = createServer((_, response) => {
    response.setHeader('fairlead-function', 'w').end('{"external":[],"result":1}')
  })
  http.on('connection', (socket) => connections.push(socket))
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const { invoke } = at(`http://127.0.0.1:${(http.address() as AddressInfo).port}`)
  const context = { signal: new AbortController().signal, log }
  const { external: _, ask: __, ...run } = input
  const counts: number[] = []
  for (const asked of ['read', 'read', 'perform', 'perform', 'read'] as const) {
    await invoke(asked === 'read' ? { ...run, ask: asked } : { ...run, ask: asked, effect: { kind: 'add' } }, context)
    counts.push(connections.length)
  }
  expect(counts).toEqual([1, 1, 2, 3, 3])
  http.closeAllConnections()
  await new Promise((resolve) => http.close(resolve))
})
