import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { fromHttp, objectEvent, toHttp } from '#events'
import { ConflictError, type Reconciler, RetryAfterError, type Run, reconciler, resource, TerminalError } from '#sdk'
import { type FunctionServer, type ServeFunctionOptions, serve } from '#sdk/serve'
import { silent as log } from '../support/silent.ts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ size: z.number() }),
  status: z.object({ phase: z.string() }),
})
const object = (name: string) => ({
  apiVersion: 'example.com/v1',
  kind: 'Shop',
  metadata: { name, namespace: 'x', uid: 'u', resourceVersion: '1' },
  spec: { size: 3 },
})
let server: FunctionServer | undefined
afterEach(async () => {
  await server?.stop(0)
  server = undefined
})

async function serving(
  reconcile: (run: Run<typeof Shop, never, never>) => unknown,
  options: Partial<ServeFunctionOptions> = {},
): Promise<string> {
  const shops = reconciler({ name: 'shops', for: Shop, reconcile: reconcile as Reconciler['reconcile'] as never })
  server = await serve(shops, { port: 0, host: '127.0.0.1', log, ...options })
  return `http://127.0.0.1:${server.port}`
}
const run = (input: object) => ({
  specversion: '1.0',
  id: '1',
  source: '/d',
  type: 'dev.fairlead.reconcile',
  datacontenttype: 'application/json',
  data: input,
})
const asked = {
  object: object('a'),
  owned: {},
  related: {},
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
}
async function post(url: string, event: Parameters<typeof toHttp>[0], mode: 'binary' | 'structured' = 'binary') {
  const { headers, body } = toHttp(event, mode)
  return fetch(url, { method: 'POST', headers, body: Buffer.from(body) })
}
async function outcomeOf(response: Response) {
  const body = new Uint8Array(await response.arrayBuffer())
  return fromHttp({ headers: Object.fromEntries(response.headers), body })
}

describe('a function over HTTP', () => {
  it.each(['binary', 'structured'] as const)('answers a run in %s mode with its outcome', async (mode) => {
    const url = await serving(() => ({ status: { phase: 'OPEN' }, requeueAfter: 5 }))
    const response = await post(url, run(asked), mode)
    expect(response.status).toBe(200)
    expect(await outcomeOf(response)).toMatchObject({
      type: 'dev.fairlead.outcome',
      data: { status: { phase: 'OPEN' }, requeueAfterSeconds: 5 },
    })
  })

  it('knows what was refused, and that nothing was where the request does not say', async () => {
    const url = await serving(({ refused }: Run<typeof Shop, never, never>) => ({
      status: {
        phase: refused(Shop)
          .map(({ reason }) => reason)
          .join(),
      },
    }))
    const refused = { 'Shop.v1.example.com': [{ name: 'a', namespace: 'x', reason: 'Forbidden', message: 'no' }] }
    const phaseOf = async (input: object) => (await outcomeOf(await post(url, run(input)))).data
    expect(await phaseOf({ ...asked, refused })).toEqual({ status: { phase: 'Forbidden' } })
    expect(await phaseOf(asked)).toEqual({ status: { phase: '' } })
  })

  it('answers 204 where there is nothing to do', async () => {
    const url = await serving(() => undefined)
    expect((await post(url, run(asked))).status).toBe(204)
    expect((await post(url, run({ ...asked, object: null }))).status).toBe(204)
  })

  it('signs each answer with its name, so that no proxy is taken for it', async () => {
    const url = await serving(() => undefined, { revision: 'shops-00002' })
    const answers = [await post(url, run(asked)), await post(url, run({})), await fetch(`${url}/elsewhere`)]
    expect(answers.map(({ status, headers }) => [status, headers.get('fairlead-function')])).toEqual([
      [204, 'shops'],
      [422, 'shops'],
      [404, 'shops'],
    ])
    expect(answers.map(({ headers }) => headers.get('fairlead-revision'))).toEqual(Array(3).fill('shops-00002'))
  })

  it('runs nothing for the Reconciler of another function', async () => {
    let calls = 0
    const url = await serving(() => void calls++)
    const source = 'https://c/apis/fairlead.dev/v1alpha1/reconcilers/'
    const other = await post(url, { ...run(asked), source: `${source}carts` })
    expect([other.status, await other.json(), calls]).toEqual([
      421,
      { reason: 'OtherFunction', message: 'this is shops, not carts: give the URL of carts in spec.invoke.http.url' },
      0,
    ])
    expect((await post(url, { ...run(asked), source: `${source}shops` })).status).toBe(204)
    expect(calls).toBe(1)
  })

  it.each([
    ['added', 'dev.fairlead.resource.added', 200],
    ['update, as Knative’s ApiServerSource says', 'dev.knative.apiserver.resource.update', 200],
    ['deleted', 'dev.fairlead.resource.deleted', 204],
    ['delete', 'dev.knative.apiserver.resource.delete', 204],
  ])('answers the event of an object alone: %s', async (_, type, status) => {
    const url = await serving(() => ({ status: { phase: 'OPEN' } }))
    const ref = { group: 'example.com', version: 'v1', resource: 'shops' }
    const event = objectEvent({ cluster: 'c', ref, verb: 'added', object: object('a'), now: new Date(0) })
    expect((await post(url, { ...event, type })).status).toBe(status)
  })

  it.each([
    ['a terminal error', new TerminalError('too small', { reason: 'TooSmall' }), 422, 'TooSmall', null],
    ['a time to try again', new RetryAfterError('busy', { afterSeconds: 1.2, reason: 'Busy' }), 429, 'Busy', '2'],
    ['moved state', new ConflictError('moved'), 409, 'Conflict', null],
    ['anything else', new Error('oops'), 500, undefined, null],
  ])('says with its status what a failure leads to: %s', async (_, error, status, reason, retryAfter) => {
    const url = await serving(() => {
      throw error
    })
    const response = await post(url, run(asked))
    expect([response.status, response.headers.get('retry-after')]).toEqual([status, retryAfter])
    const place = expect.stringMatching(
      new RegExp(String.raw`^${error.constructor.name} at test/sdk/serve\.test\.ts:\d+:\d+$`),
    )
    expect(await response.json()).toEqual({ ...(reason && { reason }), message: error.message, place })
  })

  it.each([
    ['no event', {}, '{}', 400],
    ['a broken event', { 'ce-specversion': '1.0' }, '{}', 400],
    ['a batch', { 'content-type': 'application/cloudevents-batch+json' }, '[]', 415],
    ['another type', toHttp({ ...run(asked), type: 'x' }).headers, JSON.stringify(asked), 422],
    ['a run without an object', toHttp(run({})).headers, '{}', 422],
    [
      'another kind',
      toHttp({ ...run({}), type: 'dev.fairlead.resource.added' }).headers,
      '{"kind":"Pod","metadata":{"name":"a"}}',
      422,
    ],
    [
      'a reference',
      { ...toHttp({ ...run({}), type: 'dev.fairlead.resource.added' }).headers, 'ce-dataref': '/x' },
      JSON.stringify(object('a')),
      422,
    ],
    [
      'an object that its schema refuses',
      toHttp(run({})).headers,
      JSON.stringify({ ...asked, object: { ...object('a'), spec: { size: 'x' } } }),
      422,
    ],
  ])('refuses %s', async (_, headers, body, status) => {
    const url = await serving(() => ({ status: { phase: 'OPEN' } }))
    expect((await fetch(url, { method: 'POST', headers, body })).status).toBe(status)
  })

  it('gives each line of a run the fields that it has in a dispatcher: its key, its try and its trace ID', async () => {
    const lines: object[] = []
    const note = (fields: object, message: string) => lines.push({ ...fields, message })
    const url = await serving(
      ({ log: own, object: { spec } }) => {
        own.info({ size: spec.size }, 'grows')
        throw new Error('no route')
      },
      { log: { debug: note, info: note, warn: note, error: note } },
    )
    const { headers, body } = toHttp(run({ ...asked, attempt: 2 }))
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    await fetch(url, { method: 'POST', headers: { ...headers, traceparent }, body: Buffer.from(body) })
    const fields = { reconciler: 'shops', key: 'x/a', attempt: 2, traceId: '4bf92f3577b34da6a3ce929d0e0e4736' }
    expect(lines).toMatchObject([
      { ...fields, size: 3, message: 'grows' },
      { ...fields, message: 'the function failed' },
    ])
  })

  it('is for POST to / alone, and says that it lives and is ready', async () => {
    const url = await serving(() => undefined)
    const [get, elsewhere, live, ready] = await Promise.all(
      ['/', '/other', '/health/liveness', '/health/readiness'].map((path) => fetch(url + path)),
    )
    expect([get?.status, get?.headers.get('allow'), elsewhere?.status]).toEqual([405, 'POST', 404])
    expect([live?.status, ready?.status]).toEqual([200, 200])
  })

  it('refuses what is too large before it has read it, however it comes', async () => {
    const url = await serving(() => undefined)
    const announced = ['Content-Length: 1000000000', '', 'x'.repeat(100)]
    const chunked = ['Transfer-Encoding: chunked', '', (2 ** 25 + 1).toString(16), 'x'.repeat(2 ** 25 + 1), '']
    for (const lines of [announced, chunked]) {
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      socket.write(['POST / HTTP/1.1', 'Host: x', ...lines].join('\r\n'))
      let said = ''
      for await (const chunk of socket) said += String(chunk)
      expect(said).toMatch(/^HTTP\/1\.1 413 [^]*larger than 33554432 bytes/)
    }
  })

  it('lets requests under way end at a stop, and takes no more', async () => {
    const begun = Promise.withResolvers<void>()
    const release = Promise.withResolvers<void>()
    const url = await serving(async () => {
      begun.resolve()
      await release.promise
      return { status: { phase: 'OPEN' } }
    })
    const response = post(url, run(asked))
    await begun.promise
    const stopped = server?.stop(60_000)
    await expect(fetch(url)).rejects.toThrow('fetch failed')
    release.resolve()
    expect((await response).status).toBe(200)
    await stopped
  })

  it('cuts off at the end of its grace what has not ended, and tells the function', async () => {
    const begun = Promise.withResolvers<AbortSignal>()
    const url = await serving(({ signal }) => {
      begun.resolve(signal)
      return new Promise(() => {})
    })
    const response = post(url, run(asked))
    const signal = await begun.promise
    const [, cut] = await Promise.allSettled([server?.stop(1), response])
    expect([cut.status, signal.aborted]).toEqual(['rejected', true])
  })

  it('tells the function when its caller has gone', async () => {
    const begun = Promise.withResolvers<AbortSignal>()
    const url = await serving(({ signal }) => {
      begun.resolve(signal)
      return new Promise(() => {})
    })
    const caller = new AbortController()
    const { headers, body } = toHttp(run(asked))
    const response = fetch(url, { method: 'POST', headers, body: Buffer.from(body), signal: caller.signal })
    const signal = await begun.promise
    caller.abort()
    await expect(response).rejects.toThrow(/abort/i)
    await new Promise((resolve) => (signal.aborted ? resolve(undefined) : signal.addEventListener('abort', resolve)))
  })
})

describe('a function with an external system over HTTP', () => {
  const users = reconciler({
    name: 'shops',
    for: Shop,
    external: {
      read: ({ object: { metadata } }) => [metadata.name],
      perform: ({ kind }: { kind: 'add' | 'drop' }) => (kind === 'add' ? { id: 7 } : undefined),
    },
    reconcile: ({ external }) => ({ status: { phase: external.join() } }),
  })
  const answerTo = async (type: string, data: object) => {
    server = await serve(users, { port: 0, host: '127.0.0.1', log })
    return post(`http://127.0.0.1:${server.port}`, { ...run(data), type })
  }

  it.each([
    ['dev.fairlead.read', asked, 'dev.fairlead.external', { external: ['a'] }],
    ['dev.fairlead.perform', { ...asked, effect: { kind: 'add' } }, 'dev.fairlead.result', { result: { id: 7 } }],
    ['dev.fairlead.reconcile', { ...asked, external: ['b'] }, 'dev.fairlead.outcome', { status: { phase: 'b' } }],
  ])('answers %s', async (type, data, answered, expected) => {
    expect(await outcomeOf(await answerTo(type, data))).toMatchObject({ type: answered, data: expected })
  })

  it('answers an effect without a result with 204', async () => {
    expect((await answerTo('dev.fairlead.perform', { ...asked, effect: { kind: 'drop' } })).status).toBe(204)
  })

  it('does not decide without the state of its system, and is asked again later', async () => {
    const response = await answerTo('dev.fairlead.reconcile', asked)
    expect([response.status, ((await response.json()) as { message: string }).message]).toEqual([
      500,
      expect.stringContaining('install it again'),
    ])
  })

  it('refuses an effect without a kind', async () => {
    expect((await answerTo('dev.fairlead.perform', asked)).status).toBe(422)
  })
})
