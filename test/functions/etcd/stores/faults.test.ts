import { createVerify, generateKeyPairSync, randomBytes } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openAbs, openGcs, openS3, PART_BYTES, type Store, whole } from '#functions/etcd/stores'
import { startCloudFront } from '../../../support/cloud-front.ts'
import { withEnv } from '../../../support/env.ts'
import { type Fault, startFaultyProxy } from '../../../support/faulty-proxy.ts'
import { startHttpReceiver } from '../../../support/http-receiver.ts'
import {
  ACCOUNT,
  all,
  BUCKET,
  S3_CREDENTIALS,
  startAbs,
  startGcs,
  startS3,
  type TestStore,
} from '../../../support/object-stores.ts'

const BYTES = randomBytes(PART_BYTES + 1000)
const REGION = 'us-east-1'

async function* bytes(): AsyncGenerator<Buffer> {
  for (let at = 0; at < BYTES.length; at += 65_536) yield BYTES.subarray(at, at + 65_536)
}

const arrived = (size: number): Fault => ({
  status: 308,
  body: '',
  headers: size === 0 ? {} : { range: `bytes=0-${size - 1}` },
})

/** The first request that matches meets the fault; the others go through. */
const once =
  (pattern: RegExp, fault: Fault) =>
  (request: string, nth: number): Fault | undefined =>
    pattern.test(request) && nth === 1 ? fault : undefined

/** What an error shows of an answer that is not of the service. */
const SAID =
  /^(GET|POST|PUT|LIST) \w+:\/\/backups\/k( \([\w ]+\))?: 400 (Bad Request|PARSE_ERROR)(: the answer is not one of [\w ]+: is it [\w ]+ that answers\?(; the endpoint is \S+)?)?$/

interface Provider {
  start: () => Promise<TestStore>
  open: (endpoint: string) => Promise<Store>
  part: RegExp
  last: RegExp
  /** The requests with the bytes of the object. */
  data: RegExp
}

const providers: [string, Provider][] = [
  [
    'S3',
    {
      start: startS3,
      open: (endpoint) => openS3({ bucket: BUCKET, region: REGION, endpoint, credentials: S3_CREDENTIALS }),
      part: /^PUT .*partNumber=1&/,
      last: /^POST .*uploadId=/,
      data: /^PUT .*partNumber=/,
    },
  ],
  [
    'ABS',
    {
      start: startAbs,
      open: (endpoint) =>
        openAbs({ credentials: ACCOUNT, container: BUCKET, endpoint: `${endpoint}/${ACCOUNT.account}` }),
      part: /^PUT .*comp=block&/,
      last: /^PUT .*comp=blocklist/,
      data: /^PUT .*comp=block&/,
    },
  ],
  [
    'GCS',
    {
      start: startGcs,
      open: (endpoint) => openGcs({ bucket: BUCKET, endpoint, credentials: { accessToken: 'x' } }),
      part: /^POST .*uploadType=resumable/,
      last: /^POST .*uploadType=resumable/,
      data: /^PUT .*upload_id=/,
    },
  ],
]

describe.each(providers)('%s over a network that fails', (name, { start, open, part, last, data }) => {
  let server: TestStore
  beforeAll(async () => {
    server = await start()
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  it.each<[string, RegExp, Fault]>([
    ['that is refused for a moment', part, 'busy'],
    ['whose connection is lost', part, 'cut'],
    ['whose answer is lost', part, 'lost'],
  ])('sends a part again %s, and the stream goes on', async (_, pattern, fault) => {
    await using proxy = await startFaultyProxy(new URL(server.url).origin, once(pattern, fault))
    await (await open(proxy.url)).put('part', bytes(), { metadata: {} })
    expect(proxy.requests.filter((request) => pattern.test(request)).length).toBeGreaterThan(1)
    expect((await all(whole(server.store, 'part'))).equals(BYTES)).toBe(true)
  })

  it.skipIf(name === 'GCS')('knows its own object when the answer that it is published is lost', async () => {
    await using proxy = await startFaultyProxy(new URL(server.url).origin, once(last, 'lost'))
    await (await open(proxy.url)).put('published', bytes(), { metadata: {}, ifAbsent: true })
    expect((await server.store.head('published'))?.size).toBe(BYTES.length)
  })

  it.each([1, 2])('leaves the former object when a byte of part %i is damaged on its way', async (damaged) => {
    const former = Buffer.from('former')
    await server.store.put('former', Readable.from([former]), { metadata: {} })
    let parts = 0
    await using proxy = await startFaultyProxy(new URL(server.url).origin, (request) =>
      data.test(request) && ++parts === damaged ? 'flipped' : undefined,
    )
    const put = (await open(proxy.url)).put('former', bytes(), { metadata: {} })
    await expect(put).rejects.toMatchObject({ name: 'StoreError', reason: 'refused' })
    expect(parts).toBeGreaterThanOrEqual(damaged)
    expect(await all(whole(server.store, 'former'))).toEqual(former)
  })

  it('goes on with a download where it was cut off', async () => {
    await server.store.put('download', bytes(), { metadata: {} })
    await using proxy = await startFaultyProxy(new URL(server.url).origin, once(/^GET/, 'half'))
    expect((await all(whole(await open(proxy.url), 'download'))).equals(BYTES)).toBe(true)
    expect(proxy.requests.length).toBe(2)
  })

  it('follows no redirect to another server', async () => {
    await using other = await startHttpReceiver((_, response) => response.end('{}'))
    const moved = { status: 307, body: '', headers: { location: `${other.url}/elsewhere` } }
    await using proxy = await startFaultyProxy(new URL(server.url).origin, () => moved)
    const store = await open(proxy.url)
    await expect(store.head('k')).rejects.toMatchObject({ name: 'StoreError', reason: 'refused' })
    await expect(store.put('k', bytes(), { metadata: {} })).rejects.toMatchObject({ reason: 'refused' })
    expect(other.received).toEqual([])
  })

  it.each([
    ['text', (headers: string) => `Bad request.\n${headers}`],
    ['HTML', (headers: string) => `<html><body>${headers}</body></html>`],
    ['JSON', (headers: string) => JSON.stringify({ message: 'no', request: { headers } })],
  ])('says in one line that a proxy refuses, and not what its %s repeats of the request', async (_, saying) => {
    const shown: string[] = []
    await using proxy = await startFaultyProxy(new URL(server.url).origin, (_, __, headers) => {
      shown.push(String(headers.authorization))
      return { status: 400, body: saying(JSON.stringify(headers)) }
    })
    const store = await open(proxy.url)
    const failed = [
      store.put('k', bytes(), { metadata: {} }),
      all(whole(store, 'k')),
      store.list('k')[Symbol.asyncIterator]().next(),
    ]
    for (const result of await Promise.allSettled(failed)) {
      const { reason: error } = result as { reason: Error }
      expect(error).toMatchObject({ name: 'StoreError', reason: 'refused' })
      expect(error.message).toMatch(SAID)
    }
    expect(shown.length).toBeGreaterThan(0)
    expect(shown).not.toContain('undefined')
  })

  it('says which request had no answer, and how often it was tried', async () => {
    await using proxy = await startFaultyProxy(new URL(server.url).origin, () => 'cut')
    await expect((await open(proxy.url)).head('k')).rejects.toThrow(
      /(HEAD|GET) \w+:\/\/backups\/k.*: no answer after 6 tries: /,
    )
  })
})

describe('GCS, whose parts go to a URL of their own', () => {
  it('asks what has arrived after a lost answer, sends the rest, and ends with the same bytes', async () => {
    await using server = await startGcs()
    const ranges: string[] = []
    const put = (request: string, _: number, headers: IncomingHttpHeaders): Fault | undefined => {
      if (!request.startsWith('PUT')) return undefined
      const range = String(headers['content-range'])
      const isFirst = !ranges.includes(range)
      ranges.push(range)
      // fake-gcs-server takes the question for the end of the upload: this is the answer that Google documents.
      if (range === 'bytes */*') return arrived(ranges.length > 3 ? PART_BYTES : 0)
      return isFirst ? (range.endsWith('*') ? 'busy' : 'cut') : ranges.length === 3 ? 'lost' : undefined
    }
    await using proxy = await startFaultyProxy(server.url, put)
    const store = await openGcs({ bucket: BUCKET, endpoint: proxy.url, credentials: { accessToken: 'x' } })
    expect(await store.put('resumed', bytes(), { metadata: {} })).toBe(BYTES.length)
    expect((await all(whole(server.store, 'resumed'))).equals(BYTES)).toBe(true)
    const [first, last] = [`bytes 0-${PART_BYTES - 1}/*`, `bytes ${PART_BYTES}-${BYTES.length - 1}/${BYTES.length}`]
    const question = 'bytes */*'
    expect(ranges).toEqual([first, question, first, question, last, question, last])
  })

  it('takes away what the service has stored otherwise than it was sent, unless another has replaced it', async () => {
    await using server = await startGcs()
    await server.store.put('other', bytes(), { metadata: {} })
    const described = await fetch(`${server.url}/storage/v1/b/${BUCKET}/o/other`)
    const { generation } = (await described.json()) as { generation: string }
    const stored = async (generation: string) => {
      const other = JSON.stringify({ name: 'other', size: String(BYTES.length), md5Hash: 'AAAA', generation })
      await using proxy = await startFaultyProxy(server.url, (_, __, headers) =>
        String(headers['content-range']).endsWith(`/${BYTES.length}`) ? { status: 200, body: other } : undefined,
      )
      const store = await openGcs({ bucket: BUCKET, endpoint: proxy.url, credentials: { accessToken: 'x' } })
      await expect(store.put('other', bytes(), { metadata: {} })).rejects.toThrow(/MD5 AAAA were stored/)
      return server.store.head('other')
    }
    expect(await stored('1')).toMatchObject({ size: BYTES.length })
    expect(await stored(generation)).toBe(undefined)
  })

  it.each([
    ['text', (text: string) => text, 'Bad Request'],
    ['JSON', (message: string) => JSON.stringify({ error: { message } }), 'Cannot PUT the URL'],
  ])(
    'does not show the URL of an upload that an answer in %s repeats, because it is a permission to write',
    async (_, saying, shown) => {
      await using server = await startHttpReceiver(({ method, url }, response) => {
        if (method === 'POST') response.setHeader('location', `${url}&upload_id=permission`).end('{}')
        else response.writeHead(400).end(saying(`Cannot ${method} ${url}`))
      })
      const store = await openGcs({ bucket: BUCKET, endpoint: server.url, credentials: { accessToken: 'x' } })
      await expect(store.put('k', bytes(), { metadata: {} })).rejects.toThrow(new RegExp(`: 400 ${shown}$`))
    },
  )

  it.each([
    ['text', (form: string) => `Bad request: ${form}`, '400 Bad Request'],
    ['JSON', () => '{"error":"invalid_grant","error_description":"Invalid JWT"}', '400 invalid_grant: Invalid JWT'],
  ])(
    'shows of a refusal of the token service in %s what it documents, and not the request',
    async (_, saying, shown) => {
      await using google = await startCloudFront({
        'oauth2.googleapis.com': (form, _, response) => {
          const isJson = saying(form).startsWith('{')
          response.writeHead(400, { 'content-type': isJson ? 'application/json' : 'text/plain' }).end(saying(form))
        },
      })
      using _proxy = withEnv(google.env)
      const { serviceAccount } = newServiceAccount()
      const store = await openGcs({ bucket: BUCKET, ca: google.ca, credentials: { serviceAccount } })
      await expect(store.head('k')).rejects.toThrow(
        `GET gs://backups/k (metadata): no credentials: ${shown}: is the key of the service account still valid`,
      )
    },
  )

  const newServiceAccount = () => {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const private_key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
    return { serviceAccount: { client_email: 'backup@project.example', private_key }, publicKey }
  }

  it('draws a token by the key of a service account, signed with RS256, and draws no second one', async () => {
    const { serviceAccount, publicKey } = newServiceAccount()
    const asked: string[] = []
    await using google = await startCloudFront({
      'oauth2.googleapis.com': (body, _, response) => {
        asked.push(body)
        response.setHeader('content-type', 'application/json')
        response.end(JSON.stringify({ access_token: 'drawn', expires_in: 3600 }))
      },
    })
    await using server = await startGcs()
    using _proxy = withEnv(google.env)
    const credentials = { serviceAccount }
    const store = await openGcs({ bucket: BUCKET, endpoint: server.url, ca: google.ca, credentials })
    await store.put('a', bytes(), { metadata: {} })
    await store.head('a')
    expect(asked).toHaveLength(1)
    const form = new URLSearchParams(asked[0])
    expect(form.get('grant_type')).toBe('urn:ietf:params:oauth:grant-type:jwt-bearer')
    const [head = '', claims = '', signature = ''] = form.get('assertion')?.split('.') ?? []
    const isSigned = createVerify('RSA-SHA256').update(`${head}.${claims}`).verify(publicKey, signature, 'base64url')
    expect(isSigned).toBe(true)
    expect(JSON.parse(Buffer.from(claims, 'base64url').toString())).toMatchObject({
      iss: 'backup@project.example',
      aud: 'https://oauth2.googleapis.com/token',
      scope: 'https://www.googleapis.com/auth/devstorage.read_write',
    })
  })
})
