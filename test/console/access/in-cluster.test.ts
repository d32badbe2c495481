import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { get, request } from 'node:https'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { declareRuns, type EventStore, keyOf, openDeadLetters, openEventStore } from '#events'
import { functionRbac } from '#install'
import { resourcePath } from '#kube'
import type { JetStream } from '#nats'
import { openQueue, type WorkQueue } from '#queue'
import { RECONCILERS, reconcilerSpec } from '#spec'
import { consoleRbac, consoleWritesRbac } from '../../../cli/install/rbac.ts'
import { freePorts } from '../../../packages/lab/ports.ts'
import { startFixture, WIDGETS } from '../../dispatch/fixture.ts'
import { kubeconfigOf } from '../../support/account.ts'
import { type DeployedNats, startDeployedNats } from '../../support/deployed-nats.ts'
import { type FairleadProcess, startFairlead } from '../../support/fairlead.ts'
import type { SharedServers } from '../../support/setup.ts'
import { silent as log } from '../../support/silent.ts'
import { until } from '../../support/wait.ts'
import { ACCOUNTS, endingAt, grant, RBAC, tokenOf } from './accounts.ts'

const [SHOP, OTHER] = ['console-team', 'console-rest']
const SYSTEM = 'fairlead-system'
const NAME = 'console-fn'
const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
const PATIENCE = { leastMs: 100 }

const stack = new AsyncDisposableStack()
let fixture: Awaited<ReturnType<typeof startFixture>>
let nats: DeployedNats
let bridge: JetStream
let events: EventStore
let queue: WorkQueue
let kubeconfig: string
let ca: Buffer
let reads: Console
let writes: Console

interface Console {
  process: FairleadProcess
  port: number
  health: number
}

async function startConsole(user: string, more: Record<string, string> = {}): Promise<Console> {
  const env = await nats.as(user)
  const [health = 0] = await freePorts(1)
  const process = startFairlead(['console', '--in-cluster', '127.0.0.1:0', '--listen', `127.0.0.1:${health}`], {
    ...env,
    KUBECONFIG: kubeconfig,
    FAIRLEAD_CONSOLE_CERT: env['NATS_CERT']!,
    FAIRLEAD_CONSOLE_KEY: env['NATS_KEY']!,
    ...more,
  })
  stack.use(process)
  const { url } = await process.logged(({ msg }) => msg === 'the console is open')
  return { process, port: Number(new URL(String(url)).port), health }
}

beforeAll(async () => {
  fixture = stack.use(await startFixture())
  nats = stack.use(await startDeployedNats())
  const servers = (await (await fetch(inject('sharedServers'))).json()) as SharedServers
  const { kube } = fixture
  bridge = stack.use(await nats.connect('fairlead-bridge', 'test'))
  await openDeadLetters(bridge, { cluster: 'test', log })
  events = await openEventStore(bridge, { cluster: 'test', log })
  queue = await openQueue(bridge, { log })
  await declareRuns(bridge, { replicas: 1, raiseReplicas: true })
  await queue.declare(NAME)

  const spec = { for: WIDGETS, invoke: { pull: {} } }
  const reconciler = { apiVersion: 'fairlead.dev/v1alpha1', kind: 'Reconciler', spec }
  await events.setCursor(WIDGETS, undefined, { resourceVersion: '1', at: '' })
  const metadata = { name: NAME, uid: 'uid', resourceVersion: '1' }
  await events.put(RECONCILERS, 'added', { ...reconciler, metadata })

  for (const name of [SHOP, OTHER]) {
    await kube.create('/api/v1/namespaces', { metadata: { name } })
    const path = resourcePath(WIDGETS, name)
    const object = { apiVersion: 'test.fairlead.dev/v1', kind: 'Widget', metadata: { name: `of-${name}` }, spec: {} }
    await events.put(WIDGETS, 'added', await kube.create(path, object))
    await queue.enqueue(NAME, keyOf(name, `of-${name}`))
  }
  const system = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: SYSTEM } }
  await kube.apply(`/api/v1/namespaces/${SYSTEM}`, system, { fieldManager: 'test' })
  await installed([
    ...consoleRbac(),
    ...consoleWritesRbac(),
    ...functionRbac({ metadata, spec: reconcilerSpec.parse(spec) }),
  ])
  kubeconfig = await kubeconfigOf(kube, servers.kubeconfig, { namespace: SYSTEM, name: 'fairlead-console' })
  for (const name of ['stranger', 'reader', 'operator'])
    await kube.create(resourcePath(ACCOUNTS, SHOP), { metadata: { name } })
  for (const name of ['reader', 'operator'])
    await grant(kube, SHOP, name, { apiGroups: [WIDGETS.group], resources: ['widgets'], verbs: ['get', 'list'] })
  await bound('fairlead-console-operator', { name: 'operator', namespace: SHOP })

  const user = await nats.as('fairlead-console')
  ca = await readFile(user['NATS_CA']!)
  ;[reads, writes] = await Promise.all([
    startConsole('fairlead-console', { FAIRLEAD_CONSOLE_HOSTS: 'console.example.com' }),
    startConsole('fairlead-console-writes', { FAIRLEAD_CONSOLE_WRITES: 'true' }),
  ])
})
afterAll(() => stack.disposeAsync())

/** No controller fills in aggregated roles here: the account is bound to those that add to them. */
async function installed(objects: KubeObject[]): Promise<void> {
  const resources: Record<string, string> = { ClusterRole: 'clusterroles', ServiceAccount: 'serviceaccounts' }
  for (const object of objects) {
    const { namespace, name, labels } = object.metadata
    const resource = resources[object.kind]
    if (resource === undefined || name === `fairlead-${NAME}`) continue
    const ref = object.kind === 'ServiceAccount' ? ACCOUNTS : RBAC(resource)
    await fixture.kube.apply(resourcePath(ref, namespace, name), object, { fieldManager: 'test', force: true })
    const adds = labels?.['fairlead.dev/aggregate-to-console']
    if (adds !== undefined) await bound(name, { name: 'fairlead-console', namespace: SYSTEM })
  }
}

async function bound(role: string, account: { name: string; namespace: string }): Promise<void> {
  await fixture.kube.create(resourcePath(RBAC('clusterrolebindings')), {
    metadata: { name: `test-${role}` },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
    subjects: [{ kind: 'ServiceAccount', ...account }],
  })
}

const token = (name: string) => tokenOf(fixture.kube, SHOP, name)

interface Asked {
  token?: string
  headers?: Record<string, string>
  body?: object
}

const optionsOf = ({ port }: Console, { token: given, headers, body }: Asked) => ({
  host: '127.0.0.1',
  port,
  ca,
  servername: port === reads.port ? 'fairlead-console' : 'fairlead-console-writes',
  method: body === undefined ? 'GET' : 'POST',
  headers: { host: 'localhost', ...(given !== undefined && { authorization: `Bearer ${given}` }), ...headers },
})

async function asked(console: Console, path: string, what: Asked = {}): Promise<{ status: number; text: string }> {
  const sent = request({ ...optionsOf(console, what), path, agent: false })
  sent.end(what.body && JSON.stringify(what.body))
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  let text = ''
  for await (const chunk of answer) text += String(chunk)
  return { status: answer.statusCode ?? 0, text }
}

async function streamed(console: Console, path: string, given: string): Promise<IncomingMessage> {
  const sent = get({ ...optionsOf(console, { token: given }), path, agent: false })
  const [stream] = (await once(sent, 'response')) as [IncomingMessage]
  return stream
}

async function heardTwice(stream: IncomingMessage): Promise<void> {
  let heard = 0
  await new Promise<void>((resolve) => stream.on('data', () => ++heard === 2 && resolve()))
}

/** Those that it has sent to the API server. */
async function requestsOf({ health }: Console): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${health}/metrics`)).text()
  const counts = text.matchAll(/^rest_client_requests_total\{.*\} (\d+)$/gm)
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
}

/** Those that clients have sent to it. */
async function messagesToNats(): Promise<number> {
  const answer = await fetch(`${nats.nats.monitoringUrls[0]}/varz`)
  return ((await answer.json()) as { in_msgs: number }).in_msgs
}

const ROWS = '/queue/rows?from=0&to=100'
const keyOfRow = (namespace: string) => [NAME, namespace, `of-${namespace}`]
const stateOf = async (namespace: string) => {
  const [entry] = await queue.find({ reconciler: NAME, key: keyOf(namespace, `of-${namespace}`) })
  return entry?.state
}

describe('a console in a cluster', () => {
  it('is well, and lets in nobody without a token, by another name, or from another page', async () => {
    expect((await fetch(`http://127.0.0.1:${reads.health}/readyz`)).status).toBe(200)
    expect(await asked(reads, '/')).toMatchObject({ status: 401, text: expect.stringContaining('There is no token') })
    const reader = await token('reader')
    const by = (headers: Record<string, string>) => asked(reads, '/', { token: reader, headers })
    expect((await by({ host: 'console.example.com' })).status).toBe(200)
    expect((await by({ host: 'evil.example.com' })).status).toBe(403)
    expect((await by({ origin: 'https://evil.example.com' })).status).toBe(403)
    expect((await asked(reads, '/', { headers: { 'x-forwarded-user': 'admin' } })).status).toBe(401)
  })

  it('has no way in by a token in the address', async () => {
    const { status, text } = await asked(reads, `/?token=${await token('reader')}`)
    expect(status).toBe(401)
    expect(text).not.toContain('<form')
  })

  it('shows a person the objects that the person may see, and nothing of others', async () => {
    const reader = await token('reader')
    const rows = await asked(reads, ROWS, { token: reader })
    expect(rows.text).toContain(`of-${SHOP}`)
    expect(rows.text).not.toContain(`of-${OTHER}`)
    const page = (namespace: string) => asked(reads, `/objects/widget/${namespace}/of-${namespace}`, { token: reader })
    expect((await page(SHOP)).status).toBe(200)
    expect((await page(OTHER)).status).toBe(404)
    expect(JSON.parse((await asked(reads, ROWS, { token: await token('stranger') })).text)).toMatchObject({ total: 0 })
  })

  it('asks the API server and NATS a bounded number of times a second, however many tabs are open', async () => {
    const reader = await token('reader')
    const pages = ['/', '/queue', '/runs', '/events', `/objects/widget/${SHOP}/of-${SHOP}`]
    const began = performance.now()
    const before = await Promise.all([requestsOf(reads), messagesToNats()])
    const open = (tab: number) => `/live?page=${encodeURIComponent(pages[tab % pages.length]!)}`
    const tabs = await Promise.all(Array.from({ length: 20 }, (_, tab) => streamed(reads, open(tab), reader)))
    // Each tab has shown the page, and has received a later update.
    await Promise.all(tabs.map((tab) => heardTwice(tab)))
    const after = await Promise.all([requestsOf(reads), messagesToNats()])
    const seconds = (performance.now() - began) / 1000
    for (const tab of tabs) tab.destroy()
    const [requests = 0, messages = 0] = after.map((count, index) => count - before[index]!)
    expect(requests).toBeLessThanOrEqual(50 + 15 * seconds)
    expect(messages).toBeLessThanOrEqual(100 + 100 * seconds)
  })

  it('ends the stream of a person whose token ends', async () => {
    const reader = await token('reader')
    const endingIn = (seconds: number) => endingAt(reader, Date.now() / 1000 + seconds, kubeconfig)
    let short = await endingIn(3)
    let stream = await streamed(reads, '/live?page=/queue', short)
    // The stream may have ended before this check on a busy machine.
    for (let seconds = 10; stream.statusCode === 401; seconds *= 3) {
      short = await endingIn(seconds)
      stream = await streamed(reads, '/live?page=/queue', short)
    }
    expect(stream.statusCode).toBe(200)
    stream.resume()
    await once(stream, 'end')
    expect(await asked(reads, '/live?page=/queue', { token: short })).toEqual({
      status: 401,
      text: expect.stringContaining('the token has expired'),
    })
  })
})

describe('a write in a cluster', () => {
  const park = (where: Console, name: string, headers: Record<string, string> = { 'x-fairlead-write': '1' }) =>
    token(name).then((given) =>
      asked(where, '/act', { token: given, headers, body: { act: 'park', keys: [keyOfRow(SHOP)] } }),
    )

  it.each<[string, () => Promise<{ status: number; text: string }>, number, string]>([
    ['without its header', () => park(writes, 'operator', {}), 403, 'a write needs the header'],
    [
      'from another page',
      () => park(writes, 'operator', { 'x-fairlead-write': '1', origin: 'https://evil.example.com' }),
      403,
      'may not use this console',
    ],
    ['by a person without the right', () => park(writes, 'reader'), 200, 'you may not update reconcilers/queue'],
    ['where writes are off', () => park(reads, 'operator'), 200, 'this console only reads'],
  ])('is refused %s', async (_, act, status, text) => {
    expect(await act()).toEqual({ status, text: expect.stringContaining(text) })
    expect(await stateOf(SHOP)).toBe('queued')
  })

  it('is done for a person with the right, and recorded by a line of the log and an Event on the object', async () => {
    expect(await park(writes, 'operator')).toMatchObject({
      status: 200,
      text: expect.stringContaining('"isDone":true'),
    })
    expect(await stateOf(SHOP)).toBe('parked')
    const person = `system:serviceaccount:${SHOP}:operator`
    const line = await writes.process.logged(({ msg }) => msg === 'write by the console')
    expect(line).toMatchObject({ person, object: { kind: 'Widget', namespace: SHOP, name: `of-${SHOP}` } })
    const widget = await fixture.kube.get(resourcePath(WIDGETS, SHOP, `of-${SHOP}`))
    const event = await until(async () => {
      for await (const { items } of fixture.kube.list(resourcePath(EVENTS, SHOP)))
        for (const item of items) if ((item['regarding'] as { uid?: string }).uid === widget.metadata.uid) return item
      return false
    }, PATIENCE)
    expect(event).toMatchObject({ reason: 'ChangedByConsole', note: expect.stringContaining(`by ${person}`) })
  })
})
