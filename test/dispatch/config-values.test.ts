import { expect, it } from 'vitest'
import type { ConfigValue } from '#spec'
import { Gate } from '../../dispatch/gate.ts'
import { ConfigValues } from '../../dispatch/run/config-values.ts'
import { ApiError } from '../../kube/errors.ts'

const DECLARED: ConfigValue[] = [
  { name: 'token', secret: { name: 'provider', key: 'token' } },
  { name: 'user', secret: { name: 'provider', key: 'user' } },
  { name: 'cloud', audience: 'cloud.test' },
]
const SECRET = '/api/v1/namespaces/team/secrets/provider'
const TOKEN = '/api/v1/namespaces/team/serviceaccounts/shop/token'
const status = (code: number) => new ApiError('GET', { apiVersion: 'v1', kind: 'Status', code, message: `${code}` })
const signal = new AbortController().signal

/** The values on answers of an API server and on a clock that the test sets. */
function scene() {
  const asked: string[] = []
  const state = { seconds: 0, token: 'one', error: undefined as Error | undefined }
  const answer = (path: string, body: object) => {
    asked.push(path)
    if (state.error) return Promise.reject(state.error)
    return Promise.resolve(body as never)
  }
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const now = () => new Date(state.seconds * 1000)
  const kube = {
    get: (path: string) => answer(path, { data: { token: base64(state.token), user: base64('shop') } }),
    create: (path: string) => {
      const expirationTimestamp = new Date((state.seconds + 3600) * 1000).toISOString()
      return answer(path, { status: { token: `made at ${state.seconds}`, expirationTimestamp } })
    },
  }
  const account = { name: 'shop', namespace: 'team' }
  const values = new ConfigValues({ reconciler: 'shop', kube, gate: new Gate(4), now }, DECLARED, account)
  return { state, asked, values, read: () => values.values(signal) }
}

it('all runs share one request for each Secret and each token, and an answer is ten seconds old at most', async () => {
  const { state, asked, read } = scene()
  const all = await Promise.all(Array.from({ length: 100 }, read))
  expect(new Set(all.map((one) => JSON.stringify(one)))).toEqual(
    new Set([JSON.stringify({ token: 'one', user: 'shop', cloud: 'made at 0' })]),
  )
  expect(asked).toEqual([SECRET, TOKEN])
  state.token = 'two'
  state.seconds = 9.9
  expect((await read())['token']).toBe('one')
  state.seconds = 10
  expect((await read())['token']).toBe('two')
  expect(asked).toEqual([SECRET, TOKEN, SECRET])
})

it('a token is made again after half of its life', async () => {
  const { state, asked, read } = scene()
  await read()
  state.seconds = 1799
  expect((await read())['cloud']).toBe('made at 0')
  state.seconds = 1810
  expect((await read())['cloud']).toBe('made at 1810')
  expect(asked.filter((path) => path === TOKEN)).toHaveLength(2)
})

it.each([
  [404, 'config "token": there is no Secret team/provider: create it'],
  [403, 'config "token": GET: 403 (403): install the function again, or allow it'],
])('what is missing (%i) is missing for all runs of ten seconds', async (code, message) => {
  const { state, asked, read } = scene()
  state.error = status(code)
  for (const _ of Array(3)) await expect(read()).rejects.toMatchObject({ reason: 'ConfigMissing', message })
  expect(asked).toEqual([SECRET, TOKEN])
  state.error = undefined
  state.seconds = 10
  expect((await read())['token']).toBe('one')
})

it('an API server that fails is asked again by the next run, and is not called a missing value', async () => {
  const { state, read } = scene()
  state.error = status(503)
  await expect(read()).rejects.toBe(state.error)
  state.error = undefined
  expect((await read())['token']).toBe('one')
})

it('a run that is aborted takes the answer from no other', async () => {
  const { values, read } = scene()
  const abort = new AbortController()
  const gone = values.values(abort.signal)
  const other = read()
  abort.abort(new Error('the lease is lost'))
  await expect(gone).rejects.toThrow('the lease is lost')
  expect((await other)['token']).toBe('one')
})
