import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { ConflictError, type FunctionInput, placeOf, RetryAfterError, type RunLog, TerminalError } from '#contracts'
import { toHttp } from '#events'
import { type ExternalRun, reconciler, resource, toInvoke } from '#sdk'
import { type FunctionServer, serve } from '#sdk/serve'
import { silent } from '../support/silent.ts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({}),
  status: z.object({}),
})
const TOKEN = 'a-token-of-the-providers'
const ZONE = 'zone-of-the-whole-company'
const config = [
  { name: 'token', secret: { name: 'provider', key: 'token' } },
  { name: 'zone', configMap: { name: 'provider', key: 'zone' } },
]

type Act = (run: ExternalRun<typeof Shop, never, never>) => unknown
const shop = (act: Act) =>
  reconciler({
    name: 'shop',
    for: Shop,
    external: { config, read: (run) => act(run), perform: (_: { kind: 'set' }, run) => act(run) },
    reconcile: (run) => ({
      conditions: [{ type: 'Seen', status: 'True', reason: 'config' in run ? 'Given' : 'None' }],
    }),
  })

const input = {
  object: { apiVersion: 'example.com/v1', kind: 'Shop', metadata: { name: 'a', namespace: 'x' }, spec: {} },
  owned: {},
  related: {},
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
}
const READ: FunctionInput = { ...input, ask: 'read' }
const PERFORM: FunctionInput = { ...input, ask: 'perform', effect: { kind: 'set' } }
const given = { token: TOKEN, zone: ZONE }
const calling = (act: Act, asked: FunctionInput = READ, log: RunLog = silent) =>
  toInvoke(shop(act))(asked, { signal: new AbortController().signal, log, config: given })

describe('the configuration of a function', () => {
  it.each([READ, PERFORM])('is given to the calls of its external system: $ask', async (asked) => {
    expect(await calling(({ config: of }) => [of('token').length, of('zone')], asked)).toEqual([TOKEN.length, ZONE])
  })

  it('is not part of a decision, whoever passes it on', async () => {
    const context = { signal: new AbortController().signal, log: silent, config: given }
    const decided = await toInvoke(shop(() => null))({ ...input, external: null }, context)
    expect(decided.conditions).toMatchObject([{ reason: 'None' }])
  })

  it('has no value that the function does not declare', async () => {
    await expect(calling(({ config: of }) => of('other'))).rejects.toMatchObject({
      reason: 'UndeclaredConfig',
      message: expect.stringContaining('add it to "config"'),
    })
  })
})

describe('a secret value', () => {
  it.each([
    ['an error', new Error(`bad ${TOKEN}`), Error],
    ['a TerminalError', new TerminalError(`bad ${TOKEN}`, { reason: 'Bad' }), TerminalError],
    ['a RetryAfterError', new RetryAfterError(`bad ${TOKEN}`, { afterSeconds: 7, reason: 'Bad' }), RetryAfterError],
    ['a ConflictError', new ConflictError(`bad ${TOKEN}`), ConflictError],
  ])('is in no error, and its consequence stays: %s', async (_, error, type) => {
    Object.assign(error, { request: { headers: { authorization: `Bearer ${TOKEN}` } } })
    error.cause = new Error(`because of ${Buffer.from(TOKEN).toString('base64')}`)
    const thrown = await calling(() => {
      throw error
    }).then(
      () => undefined,
      (one: Error) => one,
    )
    expect(thrown).toBeInstanceOf(type)
    expect(thrown).toMatchObject({
      message: 'bad [confidential]',
      ...('reason' in error && { reason: 'Bad' }),
      ...('afterSeconds' in error && { afterSeconds: 7 }),
      cause: { message: 'because of [confidential]' },
    })
    expect(`${thrown?.stack}${JSON.stringify(thrown)}`).not.toContain(TOKEN)
    expect(placeOf(thrown)).toMatch(/^\w+ at test\/sdk\/config\.test\.ts:/)
  })

  it('that is a word of the path, the Reconciler or the object hides neither the place nor names', async () => {
    const call = toInvoke(
      shop(({ config: of }) => {
        throw new Error(`config-a of reconciler shop and Shop x/config-a: no user ${of('token')}`)
      }),
    )
    const object = { ...input.object, metadata: { name: 'config-a', namespace: 'x' } }
    const context = { signal: new AbortController().signal, log: silent, config: { token: 'config', zone: ZONE } }
    const thrown = await call({ ...READ, object }, context).catch((error: unknown) => error)
    expect(placeOf(thrown)).toMatch(/^Error at test\/sdk\/config\.test\.ts:\d+:\d+$/)
    expect(thrown).toMatchObject({
      message: 'config-a of reconciler shop and Shop x/config-a: no user [confidential]',
      stack: expect.stringContaining(import.meta.filename),
    })
  })

  it('is in no line, in a message, a field, the name of one, or an error', async () => {
    const lines: unknown[] = []
    const tell = (fields: object, message: string) => void lines.push({ fields, message })
    const log: RunLog = { debug: tell, info: tell, warn: tell, error: tell }
    await calling(
      ({ config: of, log: own }) => {
        own.info({ deep: [{ [of('token')]: of('token') }], zone: of('zone') }, `uses ${of('token')}`)
        own.error({ err: new Error(`bad ${of('token')}`) }, 'failed')
      },
      READ,
      log,
    )
    expect(lines).toMatchObject([
      { message: 'uses [confidential]', fields: { zone: ZONE } },
      { message: 'failed', fields: { err: { message: 'bad [confidential]' } } },
    ])
    expect(JSON.stringify(lines)).not.toContain(TOKEN)
  })

  it.each([READ, PERFORM])('is in no answer, and what is no secret may be: $ask', async (asked) => {
    await expect(calling(({ config: of }) => ({ used: `Bearer ${of('token')}` }), asked)).rejects.toMatchObject({
      reason: 'SecretReturned',
      message: `what "${asked.ask}" returned has the secret value of config "token": leave it out`,
    })
    await expect(calling(({ config: of }) => btoa(of('token')), asked)).rejects.toThrow('config "token"')
    expect(await calling(({ config: of }) => of('zone'), asked)).toBe(ZONE)
  })
})

describe('a function over HTTP', () => {
  let server: FunctionServer | undefined
  let folder = ''
  afterEach(async () => {
    await server?.stop(0)
    await rm(folder, { recursive: true, force: true })
  })
  const ask = async (port: number) => {
    const event = { specversion: '1.0' as const, id: '1', source: '/d', datacontenttype: 'application/json' }
    const { headers, body } = toHttp({ ...event, type: 'dev.fairlead.read', data: READ })
    const response = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', headers, body: Buffer.from(body) })
    const { 'retry-after': retryAfter } = Object.fromEntries(response.headers)
    return { status: response.status, retryAfter, ...((await response.json()) as object) }
  }

  it('has the values of the files in its pod, as they are now, and names one that is missing', async () => {
    folder = await mkdtemp(join(tmpdir(), 'fl-config-'))
    const put = async (name: string, text: string) => {
      await writeFile(join(folder, `.${name}`), text)
      await rename(join(folder, `.${name}`), join(folder, name))
    }
    const one = shop(({ config: of }) => [of('token').slice(0, 5), of('zone')])
    server = await serve(one, { port: 0, host: '127.0.0.1', log: silent, config: folder })
    const { port } = server
    const missing = (name: string, source: string) => ({
      status: 429,
      retryAfter: '60',
      reason: 'ConfigMissing',
      message: `config "${name}": the file ${join(folder, name)} is missing or empty: it has the key ${source} in the namespace of the pod`,
    })
    await put('zone', ZONE)
    expect(await ask(port)).toMatchObject(missing('token', 'token of the Secret provider'))
    await put('token', 'first-of-all-tokens')
    expect(await ask(port)).toMatchObject({ status: 200, external: ['first', ZONE] })
    await put('token', 'other-of-all-tokens')
    expect(await ask(port)).toMatchObject({ status: 200, external: ['other', ZONE] })
    await rm(join(folder, 'zone'))
    expect(await ask(port)).toMatchObject(missing('zone', 'zone of the ConfigMap provider'))
  })
})
