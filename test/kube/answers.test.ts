import { describe, expect, it } from 'vitest'
import {
  ApiAnswerError,
  ApiConnectionError,
  ApiError,
  createKubeClient,
  isExpired,
  isRetriable,
  isUnauthorized,
  type KubeClient,
  type RequestReport,
} from '#kube'
import { json, startScriptedServer } from './scripted-server.ts'

const PODS = '/api/v1/pods'
const status = (code: number, reason: string, more: object = {}) => ({ kind: 'Status', code, reason, ...more })
const client = (access: Parameters<typeof createKubeClient>[0] | object): KubeClient =>
  createKubeClient({ userAgent: 'test/1', ...access } as Parameters<typeof createKubeClient>[0])
const errorOf = async (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'no error',
    (error) => error,
  )

describe('a failure of the API server', () => {
  it('has its reason, message, details and the time it asks to wait', async () => {
    const body = status(429, 'TooManyRequests', { message: 'slow down', details: { retryAfterSeconds: 9, name: 'x' } })
    await using server = await startScriptedServer((_, response) => json(response, 429, body))
    await using kube = client(server.access)
    const error = await errorOf(kube.get(PODS))
    expect(error).toBeInstanceOf(ApiError)
    expect(error).toMatchObject({ code: 429, reason: 'TooManyRequests', retryAfterSeconds: 9, details: { name: 'x' } })
    expect(String(error)).toBe('ApiError: GET /api/v1/pods: slow down (429)')
    expect(isRetriable(error)).toBe(true)
  })

  it.each([
    [{ 'retry-after': '7' }, 7],
    [{ 'retry-after': 'Sat, 21 Nov 2026 10:00:30 GMT', date: 'Sat, 21 Nov 2026 10:00:00 GMT' }, 30],
    [{ 'retry-after': 'soon' }, undefined],
    [{ 'retry-after': '86400' }, 300],
  ])('is retried when the header asks for it: %j', async (headers, seconds) => {
    await using server = await startScriptedServer((_, response) => json(response, 503, {}, headers))
    await using kube = client(server.access)
    expect(await errorOf(kube.get(PODS))).toMatchObject({ code: 503, retryAfterSeconds: seconds })
  })

  it('is told in the words of a proxy that answered instead of the API server', async () => {
    await using server = await startScriptedServer((_, response) => response.writeHead(502).end('<h1>Bad gateway'))
    await using kube = client(server.access)
    const error = await errorOf(kube.get(PODS))
    expect(error).toMatchObject({ code: 502, reason: '', message: expect.stringContaining('<h1>Bad gateway') })
    expect(isRetriable(error)).toBe(true)
  })
})

describe('an answer that no API server gives', () => {
  it('is an error when it is not JSON', async () => {
    await using server = await startScriptedServer((_, response) => response.end('<h1>Log in</h1>'))
    await using kube = client(server.access)
    const error = await errorOf(kube.get(PODS))
    expect(error).toBeInstanceOf(ApiAnswerError)
    expect(String(error)).toContain('GET /api/v1/pods: the answer (200) is not JSON: <h1>Log in</h1>')
  })

  it('is an error when it breaks off, and a write may have taken effect', async () => {
    await using server = await startScriptedServer((_, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('{"a":')
      setImmediate(() => response.destroy())
    })
    await using kube = client(server.access)
    expect(await errorOf(kube.create(PODS, {}))).toMatchObject({ name: 'ApiConnectionError', wasSent: true })
    expect(await errorOf(kube.get(PODS))).toMatchObject({ name: 'ApiConnectionError', wasSent: true })
  })

  it('is an error when it is no list', async () => {
    await using server = await startScriptedServer((_, response) => json(response, 200, { kind: 'Pod' }))
    await using kube = client(server.access)
    expect(String(await errorOf(kube.list(PODS).next()))).toContain('a list was asked for, the answer is a Pod')
  })
})

describe('a list whose snapshot has been compacted between two pages', () => {
  it('says that it is expired, or goes on with a newer one', async () => {
    await using server = await startScriptedServer((request, response) =>
      request.url?.includes('continue=more')
        ? json(response, 410, status(410, 'Expired', { message: 'too old', metadata: { continue: 'other' } }))
        : request.url?.includes('continue=other')
          ? json(response, 200, { kind: 'PodList', metadata: { resourceVersion: '7' }, items: [] })
          : json(response, 200, { kind: 'PodList', metadata: { resourceVersion: '5', continue: 'more' }, items: null }),
    )
    await using kube = client(server.access)
    const pages = kube.list(PODS, { resourceVersion: '4', limit: 2 })
    expect((await pages.next()).value).toEqual({ items: [], resourceVersion: '5' })
    expect(isExpired(await errorOf(pages.next()))).toBe(true)
    expect(server.requests[1]?.url).toBe('/api/v1/pods?limit=2&continue=more')
    const mixed = await Array.fromAsync(kube.list(PODS, { limit: 2, mayMix: true }))
    expect(mixed.map(({ resourceVersion }) => resourceVersion)).toEqual(['5', '7'])
  })
})

describe('a server that does not answer', () => {
  it('is given up at the deadline, with its address, and a write may have taken effect', async () => {
    await using server = await startScriptedServer(() => {})
    await using kube = client({ ...server.access, timeoutMs: 2000 })
    const error = await errorOf(kube.create(PODS, {}))
    expect(error).toBeInstanceOf(ApiConnectionError)
    expect(error).toMatchObject({ server: kube.host, wasSent: true })
    expect(String(error)).toContain(`no whole answer from ${kube.host} within 2 s`)
  })

  it('is left at once when the caller aborts, with the reason of the caller', async () => {
    const abort = new AbortController()
    await using server = await startScriptedServer(() => abort.abort('enough'))
    await using kube = client(server.access)
    expect(await errorOf(kube.get(PODS, { signal: abort.signal }))).toBe('enough')
    expect(await errorOf(kube.get(PODS, { signal: abort.signal }))).toBe('enough')
    expect(server.requests).toHaveLength(1)
  })

  it('is named with what to look at when nothing listens there', async () => {
    let access: object
    {
      await using server = await startScriptedServer(() => {})
      access = server.access
    }
    await using kube = client(access)
    const error = await errorOf(kube.create(PODS, {}))
    expect(error).toMatchObject({ wasSent: false, cause: { code: 'ECONNREFUSED' } })
    expect(String(error)).toContain(`nothing listens at ${kube.host}; is the API server running`)
  })

  it('is not trusted without its authority', async () => {
    await using server = await startScriptedServer((_, response) => json(response, 200, {}))
    await using kube = client({ ...server.access, ca: undefined })
    expect(String(await errorOf(kube.get(PODS)))).toContain('not signed by the certificate authority given for it')
    await using trusting = client({ ...server.access, ca: undefined, insecure: true })
    expect(await trusting.get(PODS)).toEqual({})
    await using other = client({ ...server.access, serverName: 'elsewhere' })
    expect(String(await errorOf(other.get(PODS)))).toContain('is for another name')
  })
})

describe('a token that the server rejects', () => {
  const guard = (good: string) =>
    startScriptedServer((request, response) =>
      request.headers.authorization === `Bearer ${good}`
        ? json(response, 200, { got: request.headers.authorization })
        : json(response, 401, status(401, 'Unauthorized')),
    )

  it('is renewed once, and the request sent again', async () => {
    await using server = await guard('new')
    const reports: RequestReport[] = []
    const rejections: (string | undefined)[] = []
    const token = async (rejected?: string) => {
      rejections.push(rejected)
      return rejected === 'old' ? 'new' : 'old'
    }
    await using kube = client({ ...server.access, token, onRequest: (report: RequestReport) => reports.push(report) })
    expect(await kube.get(PODS)).toEqual({ got: 'Bearer new' })
    expect(rejections).toEqual([undefined, 'old'])
    expect(reports.map(({ code, method, host }) => [code, method, host])).toEqual([
      ['401', 'GET', kube.host],
      ['200', 'GET', kube.host],
    ])
  })

  it('is an error that says what to do when there is no other', async () => {
    await using server = await guard('new')
    await using kube = client({ ...server.access, token: async () => 'old', origin: 'context lab of /x/config' })
    const error = await errorOf(kube.get(PODS))
    expect(isUnauthorized(error)).toBe(true)
    expect(String(error)).toContain('does not accept the credentials of context lab of /x/config; renew them')
    expect(server.requests).toHaveLength(1)
  })

  it('does not hold back an abort while a plugin is asked for it', async () => {
    await using server = await guard('new')
    await using kube = client({ ...server.access, token: () => new Promise(() => {}) })
    expect(await errorOf(kube.get(PODS, { signal: AbortSignal.timeout(20) }))).toMatchObject({ name: 'TimeoutError' })
  })
})

describe('a request', () => {
  it('carries the user agent, its query escaped, its headers, and keeps to the path of the server', async () => {
    await using server = await startScriptedServer((_, response) => json(response, 200, {}))
    await using kube = client({ ...server.access, server: `${server.access.server}/k8s/clusters/c-1/` })
    const query = { labelSelector: 'a in (b, c)', none: undefined }
    await kube.request({ method: 'GET', path: PODS, query, headers: { 'impersonate-user': 'ann' } })
    expect(server.requests[0]?.url).toBe('/k8s/clusters/c-1/api/v1/pods?labelSelector=a+in+%28b%2C+c%29')
    expect(server.requests[0]?.headers).toMatchObject({ 'user-agent': 'test/1', 'impersonate-user': 'ann' })
  })

  it('gives text as it is, and the error of a Status even then', async () => {
    await using server = await startScriptedServer((request, response) =>
      request.url === '/log?tailLines=1' ? response.end('YAY ä\n') : json(response, 404, status(404, 'NotFound')),
    )
    await using kube = client(server.access)
    expect(await kube.text('/log', { query: { tailLines: 1 } })).toBe('YAY ä\n')
    expect(await errorOf(kube.text('/none'))).toMatchObject({ code: 404, reason: 'NotFound' })
  })

  it('shares one connection with those before it', async () => {
    await using server = await startScriptedServer((_, response) => json(response, 200, {}))
    await using kube = client(server.access)
    for (let i = 0; i < 5; i++) await kube.create(PODS, { text: 'ä€𝄞' })
    expect(await server.connections()).toBe(1)
  })

  it('goes out again when the kept connection had just been closed, if it only reads', async () => {
    let answered = 0
    await using server = await startScriptedServer((request, response) => {
      if (++answered === 2) return request.socket.destroy()
      return json(response, 200, { answered })
    })
    await using kube = client(server.access)
    await kube.get(PODS)
    expect(await kube.get(PODS)).toEqual({ answered: 3 })
    answered = 1
    expect(await errorOf(kube.create(PODS, {}))).toMatchObject({ wasSent: true })
  })
})
