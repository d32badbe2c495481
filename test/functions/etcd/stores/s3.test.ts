import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { S3Store } from '#functions/etcd/stores'
import { issueFrom, newAuthority } from '#pki'
import { baseOf } from '../../../../functions/etcd/stores/s3.ts'
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
    const store = new S3Store({ ...base, endpoint: proxy.url })
    await expect(store.put('internal', text('x'), none)).rejects.toThrow('200 InternalError We encountered')
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
    const store = new S3Store({ ...base, endpoint: server.url, ...wrong })
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
    const store = new S3Store({ ...base, endpoint: proxy.url })
    await expect(store.delete('k')).rejects.toThrow(
      '403 InvalidAccessKeyId The key "X" is unknown.: correct aws_access_key_id',
    )
  })

  it('says that a missing object is answered with 403 without the right to list', async () => {
    await using proxy = await startFaultyProxy(server.url, () => ({ status: 403, body: '' }))
    const store = new S3Store({ ...base, endpoint: proxy.url })
    await expect(store.head('k')).rejects.toThrow(
      's3:ListBucket on the bucket, without which a missing object is answered with 403',
    )
  })
})

it('trusts the authority of an endpoint that it is given, and no other', async () => {
  const validity = { now: new Date(), days: 1 }
  const authority = newAuthority({ cn: 'test' }, validity)
  const { certificate, privateKey } = issueFrom(authority, { subject: { cn: 's3' }, sans: ['127.0.0.1'] }, validity)
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' })
  await using server = await startS3({
    tls: async (dir) => {
      const files = [join(dir, 'tls.crt'), join(dir, 'tls.key')] as const
      await Promise.all([writeFile(files[0], certificate), writeFile(files[1], key)])
      return ['--cert', files[0], '--key', files[1]]
    },
  })
  const trusting = new S3Store({ ...base, endpoint: server.url, ca: authority.certificate })
  await trusting.put('k', text('x'), none)
  expect((await trusting.head('k'))?.size).toBe(1)
  await expect(new S3Store({ ...base, endpoint: server.url }).head('k')).rejects.toThrow(/certificate/)
})

it.each<[string, object, string]>([
  ['AWS', {}, 'https://backups.s3.us-east-1.amazonaws.com/'],
  ['AWS in China', { region: 'cn-north-1' }, 'https://backups.s3.cn-north-1.amazonaws.com.cn/'],
  ['a path', { pathStyle: true }, 'https://s3.us-east-1.amazonaws.com/backups'],
  ['a bucket with dots', { bucket: 'a.b' }, 'https://s3.us-east-1.amazonaws.com/a.b'],
  ['an endpoint', { endpoint: 'http://minio:9000' }, 'http://backups.minio:9000/'],
  ['an endpoint with a path', { endpoint: 'http://minio:9000/x/', pathStyle: true }, 'http://minio:9000/x/backups'],
  ['an address', { endpoint: 'http://[::1]:9000' }, 'http://[::1]:9000/backups'],
])('finds a bucket of %s', (_, options, url) => {
  expect(baseOf({ ...base, ...options }).href).toBe(url)
})
