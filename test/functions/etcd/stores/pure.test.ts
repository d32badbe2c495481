import { get } from 'node:http'
import { expect, it } from 'vitest'
import { PARTS_UNDER_WAY, parseServiceAccount, readProfile } from '#functions/etcd/stores'
import { agentsOf, textOf } from '../../../../functions/etcd/stores/connection.ts'
import { partsOf, sendParts } from '../../../../functions/etcd/stores/parts.ts'
import { startHttpReceiver } from '../../../support/http-receiver.ts'

it('closes a connection that is silent', async () => {
  await using deaf = await startHttpReceiver(() => {})
  const { http } = agentsOf(undefined, 20)
  const failed = new Promise<Error>((resolve) => get(deaf.url, { agent: http }).on('error', resolve))
  expect(await failed).toMatchObject({ code: 'ETIMEDOUT', message: 'silent for 0.02 s' })
})

it('lets a connection that is used again be silent as long as a new one, whatever the server says about its idle time', async () => {
  await using server = await startHttpReceiver((_, response) => response.setHeader('keep-alive', 'timeout=5').end())
  const { http } = agentsOf(undefined, 60_000)
  const silences: [boolean, number | undefined][] = []
  for (let n = 0; n < 2; n++)
    await new Promise<void>((resolve, reject) => {
      const request = get(server.url, { agent: http }, (answer) => answer.resume().on('close', resolve))
      request.on('error', reject)
      request.on('socket', ({ timeout }) => silences.push([request.reusedSocket, timeout]))
    })
  http.destroy()
  expect(silences).toEqual([
    [false, 60_000],
    [true, 60_000],
  ])
})

it('shows no URL of an error, because that of an upload is a permission to write', () => {
  const url = 'https://storage.example.com/upload?upload_id=secret'
  const errors = [`request to ${url} failed, reason: socket hang up`, `could not reach ${url} now`]
  expect(errors.map((text) => textOf(new Error(text)))).toEqual(['socket hang up', 'could not reach the URL now'])
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
  const size = await sendParts(
    source(),
    undefined,
    async ({ bytes }) => {
      memory.add(bytes.buffer)
      await new Promise((resolve) => setImmediate(resolve))
    },
    4,
  )
  expect([size, memory.size]).toEqual([400, PARTS_UNDER_WAY])
})

it('stops the other parts when one fails, and does not wait for a source that is silent', async () => {
  const source = async function* () {
    yield new Uint8Array(9)
    await new Promise(() => {})
  }
  const aborted: unknown[] = []
  const sent = sendParts(
    source(),
    undefined,
    async ({ number }, signal) => {
      if (number === 2) throw new Error('refused')
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
      aborted.push((signal.reason as Error).message)
    },
    4,
  )
  await expect(sent).rejects.toThrow('refused')
  expect(aborted).toEqual(['refused'])
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
