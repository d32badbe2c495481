import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { readFunctionAccess } from '../../cli/process/functions.ts'

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-access-'))
})
afterAll(() => rm(dir, { recursive: true }))

async function read(content: unknown) {
  const path = join(dir, 'access.yaml')
  await writeFile(path, typeof content === 'string' ? content : stringify(content))
  return readFunctionAccess(path)
}
const origin = 'https://shops.example.com:8443'

it('credentials of functions are read from the file that the variable names', async () => {
  expect(await readFunctionAccess(undefined)).toEqual([])
  const entry = { origin, reconcilers: ['shops'], caFile: '/ca', tokenFile: '/t', certFile: '/c', keyFile: '/k' }
  expect(await read([entry, { origin: 'http://carts', tokenFile: '/t' }])).toEqual([
    entry,
    { origin: 'http://carts', tokenFile: '/t' },
  ])
})

it.each([
  ['a path', [{ origin: `${origin}/run` }], '0.origin: give scheme, host and port alone'],
  ['a password', [{ origin: 'https://u:p@shops' }], '0.origin: give scheme, host and port alone'],
  ['another scheme', [{ origin: 'ftp://shops' }], '0.origin'],
  ['a certificate without its key', [{ origin, certFile: '/c' }], '0: certFile and keyFile belong together'],
  [
    'an authority for http',
    [{ origin: 'http://shops', caFile: '/c' }],
    '0: caFile and certFile need an https:// origin',
  ],
  ['a field that nobody knows', [{ origin, token: 's3cret' }], '0: Unrecognized key: "token"'],
  ['no list', { origin }, 'the file: '],
  ['no YAML', '{', 'FAIRLEAD_FUNCTION_ACCESS is "'],
])('a file with %s is refused with its path', async (_, content, message) => {
  await expect(read(content)).rejects.toMatchObject({ name: 'UsageError', message: expect.stringContaining(message) })
  await expect(read(content)).rejects.not.toThrow('s3cret')
})

it('a file that is not there is refused', async () => {
  await expect(readFunctionAccess('/nope')).rejects.toThrow('FAIRLEAD_FUNCTION_ACCESS is "/nope"')
})
