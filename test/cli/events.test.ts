import { execFile, spawnSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { KubeObject } from '#contracts'
import { type EventStore, fromHttp, fromNats, openEventStore } from '#events'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { JetStream } from '#nats'
import { clusterId } from '#process/kube'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { startHttpReceiver } from '../support/http-receiver.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestCluster } from '../support/servers.ts'
import { silent } from '../support/silent.ts'

const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const SECRETS = { group: '', version: 'v1', resource: 'secrets' }
const WIDGETS = { group: 'test.example.com', version: 'v1', resource: 'widgets' }

let cluster: Awaited<ReturnType<typeof startTestCluster>>
let kube: KubeClient
let js: JetStream
let events: EventStore
let env: Record<string, string>
let config: KubeObject

const widget = (name: string, resourceVersion: number, namespace = 'ns'): KubeObject => ({
  apiVersion: 'test.example.com/v1',
  kind: 'Widget',
  metadata: { name, namespace, uid: `uid-${name}`, resourceVersion: String(resourceVersion) },
  status: { phase: 'READY' },
})

beforeAll(async () => {
  cluster = await startTestCluster({ nats: true })
  env = {
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: cluster.nats?.url ?? '',
    LOG_LEVEL: 'warn',
  }
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  js = await connectTo(env['NATS_URL'] ?? '')
  events = await openEventStore(js, { cluster: await clusterId(kube), log: silent })
  for (const ref of [WIDGETS, CONFIG_MAPS]) await events.setCursor(ref, undefined, { resourceVersion: '1', at: '' })
  await events.put(WIDGETS, 'added', widget('a', 1), { origin: 'some/ns.a/nonce' })
  await events.put(WIDGETS, 'modified', widget('b', 2, 'other'))
  await events.put(WIDGETS, 'deleted', widget('c', 3))
  config = await kube.create(resourcePath(CONFIG_MAPS, 'default'), {
    metadata: { name: 'shop' },
    data: { greeting: `it's "quoted" \\ and new\nline` },
  })
})
afterAll(async () => {
  await js?.close()
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
})

const lines = (text: string) => text.trim().split('\n')
/** Without a cluster: looking takes NATS alone. */
const look = (...args: string[]) => fairlead(['events', ...args], { KUBECONFIG: '/nowhere' })

describe('events get', () => {
  it('shows the last event of each object, in a line for people', async () => {
    const { stdout, code } = await look('get', 'widgets')
    expect(lines(stdout)).toEqual([
      expect.stringMatching(
        /Z {2}added {5}widgets\.v1\.test\.example\.com {2}ns\/a {2}version 1 {2}READY {2}written by some$/,
      ),
      expect.stringContaining('modified  widgets.v1.test.example.com  other/b  version 2'),
      expect.stringContaining('deleted   widgets.v1.test.example.com  ns/c  version 3'),
    ])
    expect(code).toBe(0)
  })

  it.each([
    [['Widget', 'a'], ['a']],
    [
      ['widget', '-n', 'ns'],
      ['a', 'c'],
    ],
    [
      ['widgets.test.example.com,configmaps', '--type', 'deleted,modified'],
      ['b', 'c'],
    ],
    [['--since', '1h', '-n', 'other'], ['b']],
    [['widgets'], ['a', 'b', 'c']],
    [['--since', '2999-01-01T00:00:00Z'], []],
  ])('%j finds %j', async (args, names) => {
    const { stdout, stderr, code } = await look('get', ...args, '-o', 'json')
    expect({ stderr, code }).toEqual({ stderr: names.length > 0 ? '' : 'EVENTS has no such event\n', code: 0 })
    const found = stdout.trim() === '' ? [] : lines(stdout).map((line) => (JSON.parse(line) as { name: string }).name)
    expect(found).toEqual(names)
  })

  it('shows the CloudEvent', async () => {
    const { stdout } = await look('get', 'widgets', 'a', '-o', 'event')
    expect(JSON.parse(stdout)).toMatchObject({
      specversion: '1.0',
      id: 'uid-a:1:added',
      data: { status: { phase: 'READY' } },
    })
  })

  it.each([
    [['get', 'nothing'], 2, 'no bridge watches nothing; they watch configmaps.v1, widgets.v1.test.example.com'],
    [['get', 'widgets', 'nobody'], 1, 'EVENTS has no such event of nobody'],
    [['get', '--type', 'bogus'], 2, 'is none of added, modified, deleted, moved'],
    [['tail', '--since', 'yesterday'], 2, 'how long ago'],
    [['replay', '--to', 'ftp://x'], 2, 'nats:SUBJECT'],
    [['replay'], 2, '--to'],
  ])('%j ends with %d', async (args, code, message) => {
    const ended = await look(...args)
    expect(ended).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(message) })
  })

  it('ends with 4 where no bridge has ever run', async () => {
    const { code, stderr } = await fairlead(['--prefix', 'elsewhere', 'events', 'get'], env)
    expect({ code, stderr }).toEqual({
      code: 4,
      stderr: expect.stringContaining('there is no stream elsewhere_EVENTS'),
    })
  })

  it('is silent when its reader has seen enough', async () => {
    const command = `node cli/bin.js events get | head -1`
    const { stdout, stderr } = await promisify(execFile)('bash', ['-o', 'pipefail', '-c', command], {
      env: { ...process.env, ...env },
    })
    expect([lines(stdout).length, stderr]).toEqual([1, ''])
  })
})

describe('events tail', () => {
  it('shows what changes from now on, until it is told to end', async () => {
    await using tail = startFairlead(['events', 'tail', 'widgets', '-n', 'tailed', '-o', 'json'], {
      ...env,
      LOG_LEVEL: 'debug',
    })
    await tail.logged(({ msg }) => msg === 'following; Ctrl-C ends')
    await events.put(WIDGETS, 'added', widget('elsewhere', 4, 'away'))
    await events.put(WIDGETS, 'added', widget('x', 5, 'tailed'))
    // A version that is overwritten before anybody has read it is left out.
    while (tail.output.length < 1) await sleep(20)
    await events.put(WIDGETS, 'modified', widget('x', 6, 'tailed'))
    while (tail.output.length < 2) await sleep(20)
    tail.kill('SIGINT')
    expect((await tail.exited).code).toBe(0)
    expect(tail.output.map((line) => JSON.parse(line) as object)).toMatchObject([
      { name: 'x', verb: 'added', resourceVersion: '5' },
      { name: 'x', verb: 'modified', resourceVersion: '6' },
    ])
    expect(tail.logs.filter(({ level }) => level === 'warn')).toEqual([])
  })

  it('says that NATS is gone, and goes on when it is back', async () => {
    await using tail = startFairlead(['events', 'tail', 'widgets', '-n', 'again', '-o', 'json'], {
      ...env,
      LOG_LEVEL: 'debug',
    })
    await tail.logged(({ msg }) => msg === 'following; Ctrl-C ends')
    await cluster.restart('nats')
    await tail.logged(({ level, msg }) => level === 'warn' && msg.startsWith('NATS is gone'))
    await events.put(WIDGETS, 'added', widget('y', 7, 'again'))
    while (tail.output.length < 1) await sleep(20)
    expect(JSON.parse(tail.output[0] ?? '')).toMatchObject({ name: 'y', resourceVersion: '7' })
    await tail.logged(({ level, msg }) => level === 'info' && msg === 'NATS is back')
  })
})

describe('events replay', () => {
  it.each(['binary', 'structured'] as const)(
    'sends over HTTP in %s mode, oldest first, and repeats what may pass',
    async (mode) => {
      await using server = await receiver([503, 429])
      const { stdout, code } = await look('replay', 'widgets', '-n', 'ns', '--to', server.url, '--mode', mode)
      expect({ stdout, code }).toEqual({ stdout: `2 events sent to ${server.url}\n`, code: 0 })
      const ids = server.received.map((request) => fromHttp(request).id)
      expect(ids).toEqual(['uid-a:1:added', 'uid-a:1:added', 'uid-a:1:added', 'uid-c:3:deleted'])
    },
  )

  it('ends with 1 at what is refused, and says which and why', async () => {
    await using server = await receiver([400])
    const { code, stderr } = await look('replay', 'widgets', 'a', '--to', server.url)
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('uid-a:1:added: 400 Bad Request no') })
  })

  it('sends nothing into the streams of Fairlead itself', async () => {
    const { code, stderr } = await look('replay', 'widgets', '--to', 'nats:k8s.x')
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('own stream EVENTS') })
  })

  it('forwards to a stream in structured mode, as Knative’s channel wants it, each event once', async () => {
    await js.admin.streams.add({ name: 'CHANNEL', subjects: ['channel.>'] })
    for (const _ of [1, 2]) {
      const { code } = await look('replay', 'widgets', 'a', '--to', 'nats:channel.x', '--mode', 'structured')
      expect(code).toBe(0)
    }
    const { state } = await js.admin.streams.info('CHANNEL')
    expect(state.messages).toBe(1)
    const message = await js.lastOf('CHANNEL', 'channel.x')
    expect(message?.headers['content-type']).toMatch(/^application\/cloudevents\+json/)
    expect(fromNats(message!).id).toBe('uid-a:1:added')
  })
})

describe('publish', () => {
  it('makes the very event that the bridge makes', async () => {
    const { stdout } = await fairlead(['publish', 'cm', 'shop', '--dry-run'], env)
    await events.put(CONFIG_MAPS, 'added', config)
    const { primary } = await events.observe({ primary: { ref: CONFIG_MAPS, namespace: 'default', name: 'shop' } })
    const printed = JSON.parse(stdout) as Record<string, unknown>
    expect(printed['data']).toEqual(primary?.object)
    const [stored] = await collect(js, 'k8s._.v1.configmaps.default._.shop')
    expect({ ...printed, time: '' }).toEqual({ ...stored, time: '' })
  })

  it('knows an object that was changed after the second in which it was created', async () => {
    const path = resourcePath(CONFIG_MAPS, 'default', 'edited')
    const { metadata } = await kube.create(resourcePath(CONFIG_MAPS, 'default'), {
      metadata: { name: 'edited' },
      data: { at: '' },
    })
    const changedAt = async (): Promise<unknown> => {
      await kube.patch(path, { data: { at: String(Math.random()) } }, 'merge')
      const changed = await kube.get<KubeObject>(path)
      return (changed.metadata['managedFields'] as { time: string }[]).at(-1)?.time
    }
    await vi.waitUntil(async () => (await changedAt()) !== metadata.creationTimestamp, { timeout: 60_000 })
    const { stdout } = await fairlead(['publish', 'cm', 'edited', '--dry-run'], env)
    expect(JSON.parse(stdout)).toMatchObject({ type: 'dev.fairlead.resource.modified' })
  })

  it('stores it where the bridge would, once', async () => {
    const again = await fairlead(['publish', 'configmap', 'shop'], env)
    expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('was there already in EVENTS') })
  })

  it('tells of the end of an object that is there whoever asks, but never EVENTS', async () => {
    const refused = await fairlead(['publish', 'cm', 'shop', '--type', 'deleted'], env)
    expect(refused).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('ConfigMap default/shop') })
    const { primary } = await events.observe({ primary: { ref: CONFIG_MAPS, namespace: 'default', name: 'shop' } })
    expect(primary?.object).toMatchObject({ data: config['data'] })
    await using server = await receiver([])
    const sent = await fairlead(['publish', 'cm', 'shop', '--type', 'deleted', '--to', server.url], env)
    expect(sent).toMatchObject({ code: 0, stdout: expect.stringContaining(':deleted to') })
  })

  it('never shows the values of a Secret', async () => {
    await kube.create(resourcePath(SECRETS, 'default'), {
      metadata: { name: 'key' },
      stringData: { password: 'hunter2-hunter2' },
    })
    const { stdout } = await fairlead(['publish', 'secret', 'key', '--dry-run'], env)
    expect(JSON.parse(stdout)).toMatchObject({ dataref: '/api/v1/namespaces/default/secrets/key' })
    expect(stdout).not.toContain(Buffer.from('hunter2-hunter2').toString('base64'))
  })

  it('makes of a manifest what the API server would make of it', async () => {
    const manifest = 'apiVersion: v1\nkind: Service\nmetadata: { name: web }\nspec: { ports: [{ port: 80 }] }\n---\n'
    const { stdout } = await withInput(manifest, ['publish', '-f', '-', '-n', 'default', '--dry-run'])
    expect(JSON.parse(stdout)).toMatchObject({
      subject: '/api/v1/namespaces/default/services/web',
      data: { spec: { ports: [{ port: 80, protocol: 'TCP', targetPort: 80 }], type: 'ClusterIP' } },
    })
  })

  it('prints a command that sends it, without any server, whatever is in it', async ({ skip }) => {
    skip(spawnSync('curl', ['--version']).error !== undefined, 'curl is not on this machine')
    await using server = await receiver([])
    const options = ['publish', '-f', '-', '--offline', '--to', server.url, '--curl']
    const { stdout } = await withInput(JSON.stringify(config), options, { KUBECONFIG: '/nowhere' })
    await promisify(execFile)('bash', ['-c', stdout])
    const [event] = server.received.map((request) => fromHttp(request))
    expect(event).toMatchObject({
      subject: '/api/v1/namespaces/default/configmaps/shop',
      type: 'dev.fairlead.resource.added',
    })
    expect(event?.data).toMatchObject({ data: config['data'] })
  })

  it('sends to a function and says what that answered', async () => {
    await using server = await receiver([])
    const { stdout, code } = await fairlead(['publish', 'cm', 'shop', '--to', server.url], env)
    expect({ stdout, code }).toEqual({ stdout: expect.stringContaining(`to ${server.url}: 200 OK`), code: 0 })
  })

  it.each([
    [['publish'], 2, 'KIND and NAME'],
    [['publish', 'pod'], 2, 'KIND and NAME'],
    [['publish', 'zebra', 'x'], 2, 'no resource "zebra"'],
    [['publish', 'cm', 'nope'], 2, 'there is no ConfigMap nope in namespace default'],
    [['publish', '-f', '/nowhere'], 2, 'there is no such file'],
    [['publish', 'cm', 'shop', '--offline'], 2, 'give --file'],
    [['publish', 'cm', 'shop', '--curl', '--to', 'nats:x'], 2, 'curl speaks no NATS'],
    [['publish', 'cm', 'shop', '--to', 'http://127.0.0.1:1'], 1, 'did not take event'],
  ])('%j ends with %d', async (args, code, message) => {
    const ended = await fairlead(args, env)
    expect(ended).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(message) })
  })

  it.each([
    ['a: [b', 'neither YAML nor JSON'],
    ['', 'has no object'],
    ['hello', 'needs apiVersion, kind and metadata.name'],
    ['apiVersion: x.io/v1\nkind: Nope\nmetadata: { name: x }', 'install its definition'],
    ['apiVersion: v1\nkind: ConfigMap\nmetadata: { name: x }', 'EVENTS has only what the API server has'],
  ])('says what is wrong with the input %j', async (input, message) => {
    const ended = await withInput(input, ['publish', '-f', '-'])
    expect(ended).toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
  })
})

const fairlead = (args: string[], more: Record<string, string> = {}) => command(args, { ...env, ...more })

async function withInput(input: string, args: string[], more: Record<string, string> = {}) {
  const file = join(cluster.dir, 'input')
  await writeFile(file, input)
  return fairlead(
    args.map((arg) => (arg === '-' ? file : arg)),
    more,
  )
}

/** First answers with these codes, then with 200. */
const receiver = (codes: number[]) =>
  startHttpReceiver((_, response) => response.writeHead(codes.shift() ?? 200, { 'retry-after': '0' }).end('no'))

async function collect(from: JetStream, subject: string) {
  const message = await from.lastOf('EVENTS', subject)
  return message ? [fromNats(message)] : []
}
