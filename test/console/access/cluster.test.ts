import type { IncomingMessage } from 'node:http'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { type Action, type ClusterAccess, createClusterAccess, type Person, type Refusal } from '#console/access'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, loadKubeConfig, type RequestReport, resourcePath } from '#kube'
import type { SharedServers } from '../../support/setup.ts'
import { until } from '../../support/wait.ts'
import { ACCOUNTS, endingAt, grant as grantIn, RBAC, tokenOf as tokenIn } from './accounts.ts'

const SHOP = 'console-shop'
const OTHER = 'console-other'
const AUDIENCE = 'fairlead-console'
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
const PATIENCE = { leastMs: 250, what: 'the API server says so' }

let kubeconfig: string
let admin: KubeClient
let away: Switch
let kube: KubeClient
let requests: RequestReport[]
let clock: { ms: number; date: Date }
let lines: { fields: object; message: string }[]

/** The way to the API server, which can be cut. */
interface Switch {
  server: Server
  url: string
  isCut: boolean
  sockets: Set<Socket>
}

async function startSwitch(target: string): Promise<Switch> {
  const { hostname, port } = new URL(target)
  const sockets = new Set<Socket>()
  const server = createServer((incoming) => {
    if (away.isCut) return void incoming.destroy()
    const onward = connect(Number(port), hostname)
    for (const [from, to] of [
      [incoming, onward],
      [onward, incoming],
    ] as const) {
      sockets.add(from)
      from.pipe(to)
      from.on('error', () => to.destroy()).on('close', () => (sockets.delete(from), to.destroy()))
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port: own } = server.address() as { port: number }
  return { server, url: `https://127.0.0.1:${own}`, isCut: false, sockets }
}

function cut(): void {
  away.isCut = true
  for (const socket of away.sockets) socket.destroy()
}

beforeAll(async () => {
  const answer = await fetch(inject('sharedServers'))
  kubeconfig = ((await answer.json()) as SharedServers).kubeconfig
  const access = await loadKubeConfig({ paths: [kubeconfig] })
  admin = createKubeClient({ ...access, userAgent: 'test' })
  away = await startSwitch(access.server)
  kube = createKubeClient({
    ...access,
    server: away.url,
    userAgent: 'test',
    onRequest: (request) => requests.push(request),
  })
  for (const name of [SHOP, OTHER]) await admin.create('/api/v1/namespaces', { metadata: { name } })
  for (const name of ['stranger', 'reader', 'lister', 'one', 'writer'])
    await admin.create(resourcePath(ACCOUNTS, SHOP), { metadata: { name } })
  await grant('reader', ['get'])
  await grant('lister', ['list'])
  await grant('one', ['get'], ['single'])
  await grant('writer', ['update'])
})
afterAll(async () => {
  cut()
  away.server.close()
  await kube?.close()
  await admin?.close()
})
beforeEach(() => {
  away.isCut = false
  requests = []
  lines = []
  clock = { ms: 0, date: new Date() }
})

/** ConfigMaps of the shop, for the account of that name. */
const grant = (name: string, verbs: string[], resourceNames?: string[]): Promise<void> =>
  grantIn(admin, SHOP, name, {
    apiGroups: [''],
    resources: ['configmaps'],
    verbs,
    ...(resourceNames && { resourceNames }),
  })

const tokenOf = (name: string, audiences?: string[]): Promise<string> => tokenIn(admin, SHOP, name, audiences)

const expiredTokenOf = async (name: string): Promise<string> =>
  endingAt(await tokenOf(name), Date.now() / 1000 - 3600, kubeconfig)

const open = (options: { audiences?: string[]; date?: () => Date } = {}): ClusterAccess => {
  const line = (fields: object, message: string) => void lines.push({ fields, message })
  return createClusterAccess({
    kube,
    hosts: ['console.example.com'],
    audiences: [],
    instance: 'test',
    log: { debug: line, info: line, warn: line, error: line },
    now: () => clock.ms,
    date: () => clock.date,
    ...options,
  })
}

const authenticated = (
  access: ClusterAccess,
  token: string | undefined,
  remoteAddress = '10.0.0.1',
): Promise<Person | Refusal> =>
  access.authenticate({
    socket: { remoteAddress },
    headers: { host: 'console.example.com', ...(token !== undefined && { authorization: `Bearer ${token}` }) },
  } as IncomingMessage)

async function personOf(access: ClusterAccess, name: string): Promise<Person> {
  const person = await authenticated(access, await tokenOf(name, undefined))
  expect(person).toMatchObject({ name: `system:serviceaccount:${SHOP}:${name}` })
  return person as Person
}

const configMap = (verb: string, namespace?: string, name?: string) => ({
  verb,
  group: '',
  resource: 'configmaps',
  ...(namespace !== undefined && { namespace }),
  ...(name !== undefined && { name }),
})

const sent = (resource: string) => requests.filter(({ path }) => path.endsWith(`/${resource}`)).length

describe('who sends a request', () => {
  it('is the person of its token, with groups, and is asked of the API server once in ten seconds', async () => {
    const access = open()
    const token = await tokenOf('reader')
    const people = await Promise.all([authenticated(access, token), authenticated(access, token)])
    expect(people[0]).toMatchObject({
      name: `system:serviceaccount:${SHOP}:reader`,
      groups: expect.arrayContaining(['system:authenticated', `system:serviceaccounts:${SHOP}`]),
    })
    expect(people[1]).toEqual(people[0])
    clock.ms = 9999
    await authenticated(access, token)
    expect(sent('tokenreviews')).toBe(1)
    clock.ms = 10_000
    await authenticated(access, token)
    expect(sent('tokenreviews')).toBe(2)
  })

  it('has to be said by a token', async () => {
    expect(await authenticated(open(), undefined)).toEqual({
      status: 401,
      message: 'there is no token: the console needs Authorization: Bearer TOKEN',
    })
    expect(requests).toEqual([])
  })

  it.each([
    ['is no token', async () => 'hello', /the API server does not accept the token/],
    [
      'is signed by another one',
      async () => `${(await tokenOf('reader')).slice(0, -9)}AAAAAAAAA`,
      /does not accept the token/,
    ],
    ['has expired', () => expiredTokenOf('reader'), /the token has expired: sign in again/],
    [
      'has expired, by the clock of the API server',
      () => expiredTokenOf('reader'),
      /does not accept the token/,
      () => new Date(0),
    ],
    ['is for something else', () => tokenOf('reader', ['vault']), /does not accept the token/],
  ])('is nobody where the token %s', async (_, token, message, date?: () => Date) => {
    const refusal = await authenticated(open(date && { date }), await token())
    expect(refusal).toEqual({ status: 401, message: expect.stringMatching(message) })
  })

  it('is the person of a token for the console, where only such tokens count', async () => {
    const access = open({ audiences: [AUDIENCE] })
    expect(await authenticated(access, await tokenOf('reader', [AUDIENCE]))).toMatchObject({
      groups: expect.anything(),
    })
    expect(await authenticated(access, await tokenOf('reader'))).toEqual({
      status: 401,
      message: expect.stringMatching(
        /^the token is for https:\/\/kubernetes\.default.*, and has to be for fairlead-console$/,
      ),
    })
    const forBoth = await tokenOf('reader', ['vault', AUDIENCE])
    expect(await authenticated(access, forBoth)).toMatchObject({ groups: expect.anything() })
  })

  it('is nobody ten seconds after the ServiceAccount of the token is gone', async () => {
    const access = open()
    await admin.create(resourcePath(ACCOUNTS, SHOP), { metadata: { name: 'leaver' } })
    const token = await tokenOf('leaver')
    expect(await authenticated(access, token)).toMatchObject({ groups: expect.anything() })
    await admin.delete(resourcePath(ACCOUNTS, SHOP, 'leaver'))
    // The API server has its accounts in a cache.
    await until(async () => {
      clock.ms += 10_000
      return 'status' in (await authenticated(access, token))
    }, PATIENCE)
    expect(await authenticated(access, token)).toMatchObject({ status: 401 })
  })

  it('is refused where the API server is away, and known again when it is back', async () => {
    const access = open()
    const token = await tokenOf('reader')
    cut()
    expect(await authenticated(access, token)).toEqual({
      status: 403,
      message: 'it cannot be checked who you are: the API server does not answer; try again',
    })
    away.isCut = false
    expect(await authenticated(access, token)).toMatchObject({ groups: expect.anything() })
  })

  it('is asked for a bounded number of times, whoever sends tokens', async () => {
    const access = open()
    const refusals = await Promise.all(Array.from({ length: 150 }, (_, index) => authenticated(access, `t${index}`)))
    expect(sent('tokenreviews')).toBe(100)
    expect(refusals.at(-1)).toEqual({
      status: 503,
      message: 'too many tokens are being checked: try again in a second',
    })
  })

  it('is known, and may be a newcomer, whatever tokens another address sends', async () => {
    const access = open()
    const [known, newcomer] = [await tokenOf('reader'), await tokenOf('lister')]
    expect(await authenticated(access, known)).toMatchObject({ groups: expect.anything() })
    clock.ms += 10_000
    const flood = Array.from({ length: 150 }, (_, index) => authenticated(access, `t${index}`, '10.0.0.66'))
    expect((await Promise.all(flood)).at(-1)).toMatchObject({ status: 503 })
    expect(await authenticated(access, 'another', '10.0.0.66')).toMatchObject({ status: 503 })
    // The known person even behind the same proxy.
    expect(await authenticated(access, known, '10.0.0.66')).toMatchObject({ groups: expect.anything() })
    expect(await authenticated(access, newcomer)).toMatchObject({ groups: expect.anything() })
  })

  it('is asked for a bounded number of times, however many addresses send tokens', async () => {
    const access = open()
    const all = Array.from({ length: 700 }, (_, index) => authenticated(access, `a${index}`, `10.0.1.${index % 20}`))
    await Promise.all(all)
    expect(sent('tokenreviews')).toBe(500)
  })
})

describe('what a person may see', () => {
  it('is nothing without rights', async () => {
    const access = open()
    const stranger = await personOf(access, 'stranger')
    for (const action of [configMap('get', SHOP, 'a'), configMap('list', SHOP), configMap('list'), configMap('get')])
      expect(await access.may(stranger, action)).toBe(false)
  })

  it('is what the namespace has, with get there, and nothing beyond it', async () => {
    const access = open()
    const reader = await personOf(access, 'reader')
    expect(await access.may(reader, configMap('get', SHOP, 'a'))).toBe(true)
    expect(await access.may(reader, configMap('get', OTHER, 'a'))).toBe(false)
    expect(await access.may(reader, configMap('list', SHOP))).toBe(false)
    expect(await access.may(reader, { ...configMap('get', SHOP, 'a'), resource: 'secrets' })).toBe(false)
    expect(await access.may(reader, configMap('update', SHOP, 'a'))).toBe(false)
    expect(await access.may(reader, { ...configMap('get', SHOP, 'a'), resource: 'configmaps/status' })).toBe(false)
  })

  it('is a single object where a right names it', async () => {
    const access = open()
    const one = await personOf(access, 'one')
    expect(await access.may(one, configMap('get', SHOP, 'single'))).toBe(true)
    expect(await access.may(one, configMap('get', SHOP, 'other'))).toBe(false)
  })

  it.each(['reader', 'lister'])('is asked for a few times for a list of 10,000 objects (%s)', async (name) => {
    const access = open()
    const person = await personOf(access, name)
    let seen = 0
    for (let index = 0; index < 10_000; index++)
      if (await access.may(person, configMap('get', SHOP, `object-${index}`))) seen++
    expect(seen).toBe(10_000)
    expect(sent('subjectaccessreviews')).toBeLessThanOrEqual(4)
  })

  it('is asked for 230 times at most for 10,000 objects at once that a person may not see', async () => {
    const access = open()
    const stranger = await personOf(access, 'stranger')
    const rows = Array.from({ length: 10_000 }, (_, index) => configMap('get', SHOP, `object-${index}`))
    const unchecked = new Set<Action>()
    const seen = await Promise.all(rows.map((row) => access.may(stranger, row, () => unchecked.add(row))))
    expect(seen.filter(Boolean)).toEqual([])
    expect(sent('subjectaccessreviews')).toBeLessThanOrEqual(230)
    expect(unchecked.size).toBeGreaterThanOrEqual(10_000 - 230)
    expect(lines).toContainEqual(expect.objectContaining({ message: expect.stringContaining('the rest is denied') }))
  })

  it('lasts no longer than ten seconds after the right is gone', async () => {
    const access = open()
    await admin.create(resourcePath(ACCOUNTS, SHOP), { metadata: { name: 'former' } })
    await grant('former', ['get'])
    const former = await personOf(access, 'former')
    const action = configMap('get', SHOP, 'a')
    await until(async () => {
      clock.ms += 10_000
      return access.may(former, action)
    }, PATIENCE)
    await admin.delete(resourcePath(RBAC('rolebindings'), SHOP, 'former'))
    clock.ms += 9999
    expect(await access.may(former, action)).toBe(true)
    await until(async () => {
      clock.ms += 10_000
      return !(await access.may(former, action))
    }, PATIENCE)
  })

  it('is nothing, and says why, where the API server is away; what is known counts for its seconds', async () => {
    const access = open()
    const reader = await personOf(access, 'reader')
    const action = configMap('get', SHOP, 'a')
    expect(await access.may(reader, action)).toBe(true)
    cut()
    expect(await access.may(reader, action)).toBe(true)
    clock.ms = 10_000
    await expect(access.may(reader, action)).rejects.toThrow(
      'it cannot be checked what you may see and do: the API server does not answer; try again',
    )
    await expect(access.may(reader, action)).rejects.toMatchObject({ name: 'AccessUnknownError' })
  })
})

describe('a write', () => {
  it('is refused without the right to it, and allowed with it', async () => {
    const access = open()
    const [reader, writer] = [await personOf(access, 'reader'), await personOf(access, 'writer')]
    const action = configMap('update', SHOP, 'a')
    expect([await access.may(reader, action), await access.may(writer, action)]).toEqual([false, true])
  })

  const reported = async (name: string): Promise<KubeObject[]> => {
    const found: KubeObject[] = []
    for await (const { items } of admin.list(resourcePath(EVENTS, SHOP))) found.push(...items)
    return found.filter((event) => (event['regarding'] as { name: string }).name === name)
  }

  it('is told by a line of the log and by an Event on the object, with the person', async () => {
    const access = open()
    const writer = await personOf(access, 'writer')
    const { metadata } = await admin.create(resourcePath(CONFIG_MAPS, SHOP), { metadata: { name: 'changed' } })
    const about = { apiVersion: 'v1', kind: 'ConfigMap', namespace: SHOP, name: 'changed' }
    await access.record(writer, 'retry of website shop/changed', about)
    await access.flush()
    expect(lines).toEqual([
      {
        fields: { person: writer.name, groups: writer.groups, what: 'retry of website shop/changed', object: about },
        message: 'write by the console',
      },
    ])
    expect(await reported('changed')).toMatchObject([
      {
        type: 'Normal',
        reason: 'ChangedByConsole',
        action: 'Console',
        note: `retry of website shop/changed, by system:serviceaccount:${SHOP}:writer in the console`,
        reportingController: 'fairlead.dev/console',
        regarding: { apiVersion: 'v1', kind: 'ConfigMap', name: 'changed', namespace: SHOP, uid: metadata.uid },
      },
    ])
  })

  it('is told where the object is gone, and where the API server is away', async () => {
    const access = open()
    const writer = await personOf(access, 'writer')
    const about = { apiVersion: 'v1', kind: 'ConfigMap', namespace: SHOP, name: 'gone' }
    await access.record(writer, 'purge', about)
    await access.flush()
    expect(await reported('gone')).toHaveLength(1)
    lines = []
    cut()
    await access.record(writer, 'purge', { ...about, kind: 'Secret' })
    await access.flush()
    expect(lines.map(({ message }) => message)).toEqual([
      'write by the console',
      'an Event of the console is without the UID',
      'Event not written',
    ])
  })
})
