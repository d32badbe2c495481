import { once } from 'node:events'
import { createServer, type IncomingMessage, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import pino from 'pino'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { createConsole, type Data, type ShownCluster } from '#console'
import type { Access } from '#console/access'

let server: Server
let base: string
/** What has reached each cluster. */
let published: string[]
let recorded: string[]

const shown = (name: string): ShownCluster => {
  const row = { ...ROW, name: `only-in-${name}` }
  const data: Data = {
    of: () => data,
    natsAway: async () => undefined,
    kubeAway: async () => (name === 'west' ? 'connection refused' : undefined),
    reconcilers: async () => [RECONCILER],
    served: async () => undefined,
    queues: async () => ['site'],
    queue: async () => ({ rows: [row], isCut: false }),
    recentRuns: async () => [],
    target: async () => ({ ref: SITES, kind: 'Site', namespace: 'shop', name: 'a' }),
    situation: async () => ({ object: {} }),
    counts: async () => new Map(),
    unready: async () => ({ objects: [], isCut: false }),
    events: { latest: async () => [], close: () => undefined },
    letters: async () => [],
    usage: async () => [],
    forget: () => undefined,
  } as unknown as Data
  return {
    name,
    labels: { tier: name },
    data,
    abilities: { writes: true, publish: async () => `${published.push(name)}` },
    record: async () => void recorded.push(name),
  }
}

const ROW = {
  reconciler: 'site',
  namespace: 'shop',
  state: 'queued',
  lane: 'high',
  since: '2026-11-23T00:00:00.000Z',
  attempt: 0,
  position: 1,
  positionInNamespace: 1,
}
const SITES = { group: 'test.fairlead.dev', version: 'v1', resource: 'sites' }
const RECONCILER = {
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'Reconciler',
  metadata: { name: 'site' },
  spec: { for: { ...SITES, kind: 'Site' }, owns: [], invoke: { pull: {} } },
}

async function serve(...clusters: readonly [ShownCluster, ...ShownCluster[]]): Promise<void> {
  const access: Access = { authenticate: async () => ({ name: 'ann', groups: [] }), may: async () => true }
  server = createServer(createConsole({ clusters, access, log: pino({ level: 'silent' }) }))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
beforeEach(() => {
  published = []
  recorded = []
})
afterEach(async () => {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

const page = async (path: string) => {
  const response = await fetch(`${base}${path}`, { redirect: 'manual' })
  return { status: response.status, to: response.headers.get('location'), text: await response.text() }
}
const publishFrom = (path: string) =>
  fetch(`${base}${path}/act`, {
    method: 'POST',
    headers: { 'x-fairlead-write': '1' },
    body: JSON.stringify({ act: 'publish', object: ['sites', 'shop', 'a'] }),
  })
/** Sends the address as it is. */
const raw = async (port: number, path: string) => {
  const sent = request({ host: '127.0.0.1', port, path }).end()
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  return { status: response.statusCode, text: await text(response) }
}
const addresses = (text: string) => [...text.matchAll(/ (?:href|action|data-rows)="([^"]*)"/g)].map(([, to = '']) => to)
const PAGES = ['/', '/queue', '/runs', '/events', '/usage', '/dead']

it('the first page lists the clusters, their labels, and which of them does not answer', async () => {
  await serve(shown('east'), shown('west'))
  expect(await page('/')).toMatchObject({ status: 303, to: '/clusters' })
  const { text } = await page('/clusters')
  expect(addresses(text)).toEqual(expect.arrayContaining(['/clusters/east/', '/clusters/west/']))
  expect(text).toMatch(/east[^]*tier=east[^]*answers[^]*west[^]*tier=west[^]*away[^]*connection refused/)
})

it('each page of a cluster names it, shows it alone, and leads to no page of another one', async () => {
  await serve(shown('east'), shown('west'))
  for (const path of PAGES) {
    const { text } = await page(`/clusters/east${path}`)
    expect(text).toContain('<a href="/clusters" title="Choose another cluster">cluster east</a>')
    expect(text).toMatch(/<title>.* – east – Fairlead<\/title>/)
    expect(text).not.toContain('west')
    for (const to of addresses(text).filter((one) => one.startsWith('/')))
      expect(to).toMatch(/^\/clusters\/east\/|^\/clusters$|^\/assets\//)
  }
  expect((await page('/clusters/east/queue')).text).toContain('only-in-east')
  const { html } = JSON.parse((await page('/clusters/west/queue/rows?to=9')).text)
  expect(html).toContain('only-in-west')
  expect(html).toContain('href="/clusters/west/objects/')
  expect(await page('/clusters/west/objects?object=sites/a&namespace=shop')).toMatchObject({
    to: '/clusters/west/objects/sites/shop/a',
  })
})

it('an open page follows its own cluster', async () => {
  await serve(shown('east'), shown('west'))
  const { text } = await page('/clusters/west/queue')
  expect(text).toContain('data-path="/clusters/west" data-live="/queue"')
  const { body } = await fetch(`${base}/clusters/west/live?page=%2F`)
  const { value = '' } = (await body?.pipeThrough(new TextDecoderStream()).getReader().read()) ?? {}
  const links = addresses(Object.values(JSON.parse(value.replace(/^data: /, ''))).join(''))
  expect(links).not.toEqual([])
  for (const to of links) expect(to).toMatch(/^\/clusters\/west\//)
})

it('a write reaches the cluster of its page, and is reported there', async () => {
  await serve(shown('east'), shown('west'))
  expect((await publishFrom('/clusters/west')).status).toBe(200)
  expect([published, recorded]).toEqual([['west'], ['west']])
  for (const nowhere of ['', '/clusters', '/clusters/north']) expect((await publishFrom(nowhere)).status).toBe(404)
  expect([published, recorded]).toEqual([['west'], ['west']])
})

it('a name that is not listed has no page', async () => {
  await serve(shown('east'), shown('west'))
  for (const path of ['/queue', '/clusters/north', '/clusters/north/queue', '/clusters/east%2Fqueue'])
    expect((await page(path)).status).toBe(404)
  expect((await page('/clusters/north/live?page=%2F')).status).toBe(404)
})

it('a page that is still open when the console of another cluster has its port shows and changes nothing of that one', async () => {
  await serve(shown('west'))
  expect(await page('/')).toMatchObject({ status: 303, to: '/clusters/west/' })
  expect((await page('/clusters/west/queue')).text).toContain('only-in-west')
  for (const path of ['/clusters/east', '']) {
    expect((await page(`${path}/live?page=%2Fqueue`)).status).toBe(404)
    expect((await page(`${path}/queue/rows?to=9`)).text).not.toContain('only-in-west')
    expect((await publishFrom(path)).status).toBe(404)
  }
  expect([published, recorded]).toEqual([[], []])
})

it('the pages of a cluster without a name begin at /', async () => {
  const { name: _, ...unnamed } = shown('east')
  await serve(unnamed)
  const { text } = await page('/queue')
  expect(text).not.toContain('<p class="cluster">')
  expect(addresses(text)).toContain('/runs')
  expect((await page('/clusters')).status).toBe(404)
})

it('text in an object becomes no address, and the name of an object no way out of its cluster', async () => {
  const hostile = 'x" href="/act" action="/clusters/west/act'
  const east = shown('east')
  const row = { ...ROW, name: hostile, error: ' href="/queue"' }
  Object.assign(east.data, { queue: async () => ({ rows: [row], isCut: false }) })
  await serve(east, shown('west'))
  const { text } = await page('/clusters/east/queue')
  expect(text).toContain('x&quot; href=&quot;/act&quot;')
  for (const to of addresses(text).filter((one) => one.startsWith('/')))
    expect(to).toMatch(/^\/clusters\/east\/|^\/clusters$|^\/assets\//)
  const { port } = server.address() as AddressInfo
  for (const [way, status] of [
    ['/clusters/east/..%2fwest/queue', 404],
    ['/clusters/east/%2e%2e%2fwest/queue', 404],
    ['/clusters//west/queue', 404],
    ['/clusters/east//clusters/west/queue', 404],
    ['/clusters/east/clusters/west/queue', 404],
    ['/clusters/east/live?page=%2Fclusters%2Fwest%2Fqueue', 404],
  ] as const) {
    const answer = await raw(port, way)
    expect([way, answer.status]).toEqual([way, status])
    expect(answer.text).not.toContain('only-in-west')
  }
})
