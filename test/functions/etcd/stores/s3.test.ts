import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openS3 } from '#functions/etcd/stores'
import { withEnv } from '../../../support/env.ts'
import { startFaultyProxy } from '../../../support/faulty-proxy.ts'
import { BUCKET, S3_CREDENTIALS, startS3, type TestStore } from '../../../support/object-stores.ts'

const base = { bucket: BUCKET, region: 'us-east-1', credentials: S3_CREDENTIALS }
const none = { metadata: {} }

async function* text(content: string): AsyncGenerator<Buffer> {
  yield Buffer.from(content)
}

describe('S3', () => {
  let server: TestStore
  beforeAll(async () => {
    server = await startS3()
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  it('takes an answer of 200 that is an error for what it is', async () => {
    const body = '<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>'
    await using proxy = await startFaultyProxy(server.url, (request) =>
      /^POST .*uploadId=/.test(request) ? { status: 200, body } : undefined,
    )
    const store = await openS3({ ...base, endpoint: proxy.url })
    await expect(store.put('internal', text('x'), none)).rejects.toThrow(
      'InternalError We encountered an internal error.',
    )
    expect(await server.store.head('internal')).toBe(undefined)
    expect(proxy.requests.some((request) => request.startsWith('DELETE'))).toBe(true)
  })

  it.each<[string, object, RegExp]>([
    [
      'a wrong secret',
      { credentials: { ...S3_CREDENTIALS, secretAccessKey: 'wrong-secret' } },
      /SignatureDoesNotMatch.*correct aws_access_key_id and aws_secret_access_key/,
    ],
    ['a bucket that is missing', { bucket: 'nowhere' }, /NoSuchBucket.*create the bucket nowhere/],
    ['another region', { region: 'eu-west-1' }, /us-east-1/],
  ])('says what to do about %s, and no secret', async (_, wrong, message) => {
    const store = await openS3({ ...base, endpoint: server.url, ...wrong })
    const error = await store.put('k', text('x'), none).then(
      () => undefined,
      (error: unknown) => error,
    )
    expect(String(error)).toMatch(message)
    expect(String(error)).not.toMatch(/wrong-secret|secret-of-tests/)
  })

  it('says what to do about a key that AWS does not know', async () => {
    const body = '<Error><Code>InvalidAccessKeyId</Code><Message>The key &quot;X&quot; is unknown.</Message></Error>'
    await using proxy = await startFaultyProxy(server.url, () => ({ status: 403, body }))
    const store = await openS3({ ...base, endpoint: proxy.url })
    await expect(store.delete('k')).rejects.toThrow(
      '403 InvalidAccessKeyId The key "X" is unknown.: correct aws_access_key_id',
    )
  })

  it('says that a missing object is answered with 403 without the right to list', async () => {
    await using proxy = await startFaultyProxy(server.url, () => ({ status: 403, body: '' }))
    const store = await openS3({ ...base, endpoint: proxy.url })
    await expect(store.head('k')).rejects.toThrow(
      's3:ListBucket on the bucket, without which a missing object is answered with 403',
    )
  })
})

it.each<[string, object, string]>([
  ['AWS', {}, 'CONNECT backups.s3.us-east-1.amazonaws.com:443'],
  ['AWS in China', { region: 'cn-north-1' }, 'CONNECT backups.s3.cn-north-1.amazonaws.com.cn:443'],
  ['a path', { pathStyle: true }, 'CONNECT s3.us-east-1.amazonaws.com:443'],
  ['a bucket with dots', { bucket: 'a.b' }, 'CONNECT s3.us-east-1.amazonaws.com:443'],
  ['an endpoint', { endpoint: 'http://minio:9000' }, 'HEAD http://backups.minio:9000/k'],
  [
    'an endpoint with a path',
    { endpoint: 'http://minio:9000/x/', pathStyle: true },
    'HEAD http://minio:9000/x/backups/k',
  ],
  ['an address', { endpoint: 'http://[::1]:9000' }, 'HEAD http://[::1]:9000/backups/k'],
])('finds a bucket of %s, through the proxy of the environment', async (_, options, asked) => {
  const requests: string[] = []
  const proxy = createServer(({ method, url }, response) => {
    requests.push(`${method} ${url}`)
    response.writeHead(404).end()
  }).on('connect', ({ url }: IncomingMessage, socket) => {
    requests.push(`CONNECT ${url}`)
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
  using _env = withEnv({
    http_proxy: url,
    https_proxy: url,
    HTTP_PROXY: url,
    HTTPS_PROXY: url,
    no_proxy: '',
    NO_PROXY: '',
  })
  const store = await openS3({ ...base, ...options })
  await store.head('k').catch(() => undefined)
  expect(new Set(requests)).toEqual(new Set([asked]))
  proxy.closeAllConnections()
  await new Promise((resolve) => proxy.close(resolve))
})
