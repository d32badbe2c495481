import { expect, it } from 'vitest'
import { parseServiceAccount, readProfile } from '#functions/etcd/stores'
import { forEachAtMost } from '#primitives'
import { sharedKey } from '../../../../functions/etcd/stores/abs.ts'
import { partsOf } from '../../../../functions/etcd/stores/parts.ts'
import { signed } from '../../../../functions/etcd/stores/s3.ts'

// The example of "Signature Calculations for the Authorization Header" in the S3 API reference.
it('signs as AWS documents it', () => {
  const url = new URL('https://examplebucket.s3.amazonaws.com/test.txt')
  const credentials = {
    accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
    secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
  }
  const request = { method: 'GET', url, headers: { range: 'bytes=0-9' } }
  const { authorization } = signed(request, 'us-east-1', credentials, new Date('2013-05-24T00:00:00Z'))
  expect(authorization).toMatch(/Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41$/)
})

it('sends the token of a session, and signs it', () => {
  const credentials = { accessKeyId: 'a', secretAccessKey: 'b', sessionToken: 'c' }
  const request = { method: 'GET', url: new URL('https://s3.example/b/k'), headers: {} }
  const headers = signed(request, 'eu-central-1', credentials, new Date(0))
  expect(headers['x-amz-security-token']).toBe('c')
  expect(headers['authorization']).toContain('SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,')
})

it('reads the profile default of both files, whatever else is in them', () => {
  const credentials =
    '# mine\n[other]\naws_access_key_id=no\n[default]\r\naws_access_key_id = id\r\naws_secret_access_key=se=cret\naws_session_token = t\n'
  const config = '[profile other]\nregion = nowhere\n[default]\noutput = json\nregion = eu-west-3\n'
  expect(readProfile({ credentials, config })).toEqual({
    region: 'eu-west-3',
    credentials: { accessKeyId: 'id', secretAccessKey: 'se=cret', sessionToken: 't' },
  })
})

it('says what a profile lacks, without a value of it', () => {
  const credentials = '[default]\naws_access_key_id = visible\n'
  expect(() => readProfile({ credentials })).toThrow(/no aws_secret_access_key in its section \[default\]/)
  expect(() => readProfile({ credentials })).not.toThrow(/visible/)
})

it('says what the key of a service account lacks, without a value of it', () => {
  expect(() => parseServiceAccount('{')).toThrow('the file credentials.json is not JSON')
  expect(() => parseServiceAccount('{"type":"authorized_user"}')).toThrow('give the key of a service account')
  expect(() => parseServiceAccount('{"private_key":"visible"}')).toThrow(/lacks client_email/)
})

it('signs the empty body of a request of ABS as no length', () => {
  const account = { account: 'a', key: Buffer.from('k').toString('base64') }
  const url = new URL('https://a.blob.core.windows.net/c/b?comp=block&blockid=x')
  const sign = (body?: Uint8Array) => sharedKey({ method: 'PUT', url, headers: {}, body }, account)['authorization']
  expect(sign(new Uint8Array())).toBe(sign())
  expect(sign(new Uint8Array(1))).not.toBe(sign())
})

const cut = async (sizes: number[], size: number) => {
  const parts: [number, number, number, boolean][] = []
  const source = async function* () {
    for (const length of sizes) yield new Uint8Array(length)
  }
  for await (const { number, offset, bytes, isLast, release } of partsOf(source(), size)) {
    parts.push([number, offset, bytes.length, isLast])
    release()
  }
  return parts
}

it.each<[number[], [number, number, number, boolean][]]>([
  [[], [[1, 0, 0, true]]],
  [[4], [[1, 0, 4, true]]],
  [[3, 1], [[1, 0, 4, true]]],
  [
    [5],
    [
      [1, 0, 4, false],
      [2, 4, 1, true],
    ],
  ],
  [
    [2, 7],
    [
      [1, 0, 4, false],
      [2, 4, 4, false],
      [3, 8, 1, true],
    ],
  ],
])('cuts %j into parts of 4, the last of which is known to be it', async (sizes, parts) => {
  expect(await cut(sizes, 4)).toEqual(parts)
})

it('has no more parts in memory than are under way, however long the stream is', async () => {
  const source = async function* () {
    for (let n = 0; n < 100; n++) yield new Uint8Array(4)
  }
  const memory = new Set<ArrayBufferLike>()
  await forEachAtMost(3, partsOf(source(), 4), async ({ bytes, release }) => {
    memory.add(bytes.buffer)
    await new Promise((resolve) => setImmediate(resolve))
    release()
  })
  expect(memory.size).toBe(3)
})

it('uses the memory of parts that are released again', async () => {
  const source = async function* () {
    for (let n = 0; n < 10; n++) yield new Uint8Array(4)
  }
  const memory = new Set<ArrayBufferLike>()
  for await (const { bytes, release } of partsOf(source(), 4)) {
    memory.add(bytes.buffer)
    release()
  }
  expect(memory.size).toBe(1)
})
