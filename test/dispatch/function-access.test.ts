import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import type { RunInput } from '#contracts'
import { reconcilerSpec, shownUrl } from '#spec'
import { accessTo, type FunctionAccess, httpFunction } from '../../dispatch/http/http-function.ts'
import { createPki, type Pki } from '../../packages/lab/pki.ts'
import { silent as log } from '../support/silent.ts'

const input: RunInput = { object: null, owned: {}, related: {}, attempt: 0, now: '', finalizing: false }
const spec = reconcilerSpec.parse({
  for: { group: 'test.fairlead.dev', version: 'v1', resource: 'widgets', kind: 'Widget' },
  invoke: { http: { url: 'http://unused' } },
})
let dir: string
let pki: Pki
let server: Server
let origin: string
let files: { certFile: string; keyFile: string }
/** The caller and the header of each call. */
const calls: [string | undefined, string | undefined][] = []

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-access-'))
  pki = await createPki(join(dir, 'pki'))
  const own = await pki.issue('server', { cn: 'server' }, ['127.0.0.1'])
  files = await pki.issue('dispatcher', { cn: 'dispatcher' })
  const [cert, key] = await Promise.all([own.certFile, own.keyFile].map((file) => readFile(file)))
  const tls = { cert, key, ca: pki.caPem, requestCert: true, rejectUnauthorized: true } as const
  server = createServer(tls, (request, response) => {
    const { CN } = (request.socket as TLSSocket).getPeerCertificate().subject
    calls.push([String(CN), request.headers.authorization])
    request.resume()
    response.writeHead(204, { 'fairlead-function': 'w' }).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(async () => {
  server?.closeAllConnections()
  server?.close()
  await rm(dir, { recursive: true })
})
afterEach(() => {
  vi.useRealTimers()
  calls.length = 0
})

async function tokenFile(token: string): Promise<string> {
  const file = join(dir, 'token')
  await writeFile(file, `${token}\n`)
  return file
}

function calling(access: Omit<FunctionAccess, 'origin'> | undefined) {
  const to = access && { origin, ...access }
  const options = { name: 'w', spec, url: origin, access: to, cluster: 'c', now: () => new Date(0), random: () => 0.5 }
  const one = httpFunction(options)
  const call = () => one.invoke(input, { signal: new AbortController().signal, log })
  return { call, [Symbol.dispose]: () => one.close() }
}

describe('a function over HTTPS', () => {
  it('is called with the certificate and the token of its origin, and known by its authority', async () => {
    using one = calling({ caFile: pki.caFile, ...files, tokenFile: await tokenFile('t0ken') })
    expect(await one.call()).toEqual({})
    expect(calls).toEqual([['dispatcher', 'Bearer t0ken']])
  })

  it('gets a renewed token ten seconds later at the latest', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    using one = calling({ caFile: pki.caFile, ...files, tokenFile: await tokenFile('first') })
    await one.call()
    await tokenFile('second')
    vi.advanceTimersByTime(10_000)
    await one.call()
    expect(calls.map(([, token]) => token)).toEqual(['Bearer first', 'Bearer second'])
  })

  it.each([
    ['without its authority', () => ({ ...files })],
    ['without a certificate', () => ({ caFile: pki.caFile })],
    ['with no credentials at all', () => undefined],
  ])('is not reached %s, which is nobody’s failed run', async (_, access) => {
    using one = calling(access())
    await expect(one.call()).rejects.toMatchObject({ name: 'FunctionError', isAway: true })
    expect(calls).toEqual([])
  })

  it('is not called where a file is missing, empty or no certificate; the file is named, and read again', async () => {
    const missing = join(dir, 'missing')
    using one = calling({ caFile: pki.caFile, ...files, tokenFile: missing })
    await expect(one.call()).rejects.toMatchObject({ isAway: true, message: expect.stringContaining(missing) })
    await writeFile(missing, '')
    await expect(one.call()).rejects.toMatchObject({ isAway: true, message: expect.stringContaining('is empty') })
    await writeFile(missing, 'there')
    await one.call()
    using other = calling({ caFile: pki.caFile, certFile: missing, keyFile: missing })
    await expect(other.call()).rejects.toMatchObject({ isAway: true })
    expect(calls).toEqual([['dispatcher', 'Bearer there']])
  })
})

it.each([
  ['https://a.example.com/x', 'w', 0],
  ['https://a.example.com:443', 'w', 0],
  ['https://a.example.com', 'v', 2],
  ['https://a.example.com:8443', 'w', undefined],
  ['http://a.example.com', 'w', undefined],
  ['https://a.example.com.evil.net', 'w', undefined],
  ['https://a.example.com@evil.net', 'w', undefined],
  ['https://b.example.com', 'v', undefined],
])('credentials for calls to %s of Reconciler %s', (url, reconciler, index) => {
  const all = [
    { origin: 'https://a.example.com', reconcilers: ['w'] },
    { origin: 'https://b.example.com', reconcilers: ['w'] },
    { origin: 'https://a.example.com' },
  ]
  expect(accessTo(all, url, reconciler)).toBe(index === undefined ? undefined : all[index])
})

it.each([
  ['https://user:s3cret@shops.example.com:8443/run?token=s3cret#s3cret', 'https://shops.example.com:8443/run'],
  ['http://s3cret@shops', 'http://shops/'],
  ['user:s3cret@shops', '…@shops'],
  ['ftp://user:s3@cret@shops/?token=s3cret', '…@shops/…'],
  ['shops:8080', 'shops:8080'],
])('%s is shown as %s', (url, shown) => expect(shownUrl(url)).toBe(shown))
