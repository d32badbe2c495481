import { trigger } from 'fairlead/events'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  acceptTriggers,
  type DeadLetters,
  deadKey,
  declareRuns,
  declareUsage,
  type EventStore,
  openDeadLetters,
  openEventStore,
  usageWriter,
  viewEvents,
  viewRuns,
  viewUsage,
} from '#events'
import { replay } from '#inspect'
import { accountsIn } from '#install'
import type { JetStream } from '#nats'
import { openQueue, type WorkQueue } from '#queue'
import { createTriggers } from '../../bridge/triggers.ts'
import { pods, reconciler } from '../bridge/objects.ts'
import { object, PODS } from '../events/objects.ts'
import { command } from '../support/command.ts'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { startFairlead } from '../support/fairlead.ts'
import { shippedAccounts } from '../support/shipped-users.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'

const PATIENCE = { leastMs: 50, what: 'it is shown' }

let deployed: DeployedNats
let bridge: JetStream
let inspect: JetStream
let events: EventStore
let queue: WorkQueue
let dead: DeadLetters
let env: Record<string, string>

beforeAll(async () => {
  deployed = await startDeployedNats({ shards: ['b'], triggers: [{ name: 'billing', reconcilers: ['at'] }] })
  bridge = await deployed.connect('fairlead-bridge', 'test')
  inspect = await deployed.connect('fairlead-inspect', 'test')
  env = await deployed.as('fairlead-inspect')
  dead = await openDeadLetters(bridge, { cluster: 'test', log })
  events = await openEventStore(bridge, { cluster: 'test', log })
  queue = await openQueue(bridge, { log })
  await declareRuns(bridge, { replicas: 1, raiseReplicas: true })
  await declareUsage(bridge, { replicas: 1, raiseReplicas: true })
  await queue.declare('at')
  await queue.enqueue('at', 'shop.a')
  await events.setCursor(PODS, undefined, { resourceVersion: '1', at: '' })
  await events.put(PODS, 'added', object('web', 1, { namespace: 'shop' }))
})
afterAll(async () => {
  await bridge?.close()
  await inspect?.close()
  await deployed?.[Symbol.asyncDispose]()
})

/** What has ever been stored, in all streams. */
const stored = () => Promise.all(['EVENTS', 'WORK', 'DEAD', 'RUNS', 'USAGE'].map((name) => bridge.lastSequence(name)))

describe('fairlead-inspect', () => {
  it.each([
    [['queue', 'ls'], 'high lane, place 1'],
    [['queue', 'show', 'at', 'shop/a'], 'queued'],
    [['events', 'get', 'pods', '-n', 'shop'], 'web'],
    [['runs', 'ls'], 'No such run is recorded.'],
    [['usage'], 'No usage is stored for this time.'],
  ])('sees what is there by fairlead %j', async (args, text) => {
    const { stdout, stderr, code } = await command(args, env)
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
    expect(stdout).toContain(text)
  })

  it('sees that there are no dead letters', async () => {
    expect(await command(['dead', 'ls', '-o', 'json'], env)).toMatchObject({ stdout: '[]\n', code: 0 })
  })

  it('sees changes as they come', async () => {
    await using tail = startFairlead(['events', 'tail', 'pods', '--since', '1h'], env)
    const shows = (name: string) => until(async () => tail.output.some((line) => line.includes(name)), PATIENCE)
    await shows('web')
    await events.put(PODS, 'added', object('later', 2, { namespace: 'shop' }))
    await shows('later')
  })
})

describe('the users for a shard, which the command prints', () => {
  it('are those of users.conf, with the permissions for its streams', async () => {
    const { stdout } = await command(['generate', 'nats-users', 'b'], {})
    expect(accountsIn(stdout)).toEqual(shippedAccounts(['', 'b']))
    expect(await command(['generate', 'nats-users', 'b.*'], {})).toMatchObject({ code: 2 })
  })

  it('have those who trigger beside them', async () => {
    const { stdout } = await command(['generate', 'nats-users', '--trigger', 'billing=at,my.own'], {})
    const reconcilers = ['at', 'my.own']
    expect(accountsIn(stdout)).toEqual(shippedAccounts([''], [{ name: 'billing', reconcilers }]))
    expect(await command(['generate', 'nats-users', '--trigger', 'at'], {})).toMatchObject({ code: 2 })
  })

  it('bridge its streams, run its keys, and look at them', async () => {
    await using dispatcher = await deployed.connect('fairlead-dispatcher', 'test')
    const prefix = 'b'
    await openDeadLetters(bridge, { prefix, cluster: 'test', log })
    await declareRuns(bridge, { prefix, replicas: 1, raiseReplicas: true })
    await declareUsage(dispatcher, { prefix })
    await usageWriter(dispatcher, prefix)('one', { period: 'day', start: '2026-01-31', rows: [] })
    expect(await collected(viewUsage(inspect, prefix).since('day', new Date('2026-01-01')))).toHaveLength(1)
    const ofShard = await openEventStore(bridge, { prefix, cluster: 'test', log })
    await ofShard.put(PODS, 'added', object('of-b', 1, { namespace: 'shop' }))
    const bridged = await openQueue(bridge, { prefix, log })
    await bridged.declare('at')
    await bridged.enqueue('at', 'shop.of-b')
    const { stdout } = await command(['--shard', 'b', 'queue', 'ls'], env)
    expect(stdout).toContain('of-b  queued')
    expect(await command(['queue', 'ls'], env)).toMatchObject({ code: 0, stdout: expect.not.stringContaining('of-b') })
    const worked = Promise.withResolvers<string>()
    const handler = async ({ key }: { key: string }) => {
      worked.resolve(key)
      return { kind: 'done' as const }
    }
    const worker = (await openQueue(dispatcher, { prefix, log })).serve({ reconciler: 'at', slots: 1, handler })
    expect(await worked.promise).toBe('shop.of-b')
    await worker.drain(1000)
  })
})

/** Tries all that would store something there, by a user whose API is in another account. */
async function tryToStore({ nc }: JetStream, subjects: readonly string[]): Promise<void> {
  for (const subject of subjects) {
    nc.publish(subject, '')
    nc.publish('work.at.high.shop.c', '', { reply: subject })
    nc.publish('FAIRLEAD.API.STREAM.INFO.WORK', '', { reply: subject })
    nc.publish('FAIRLEAD.API.DIRECT.GET.EVENTS', JSON.stringify({ batch: 9, next_by_subj: 'k8s.>' }), {
      reply: subject,
    })
    const config = { deliver_subject: subject, ack_policy: 'none' }
    for (const api of ['$JS.API', 'FAIRLEAD.API'])
      nc.publish(`${api}.CONSUMER.CREATE.EVENTS`, JSON.stringify({ stream_name: 'EVENTS', config }))
  }
}

/** The server has done what it was asked before. */
async function settled(js: JetStream): Promise<void> {
  await js.flush()
  await js.lastSequence('WORK')
  await bridge.flush()
}

const OF_OBJECTS = [
  'k8s._.v1.pods.shop._.forged',
  'cursor._',
  'dead.at.x.y',
  'runs.at.shop.a',
  'usage.day.2026-01-31.x',
]
const OF_WORK = ['work.at.high.shop.c', 'key.at.r.shop.c.x', 'done.at.x']

describe.each(['fairlead-inspect', 'fairlead-console'] as const)('%s', (user) => {
  it('stores nothing: not by a publish, not by the answer to a read, not by a consumer', async () => {
    await using js = await deployed.connect(user, 'test')
    const before = await stored()
    await tryToStore(js, [...OF_WORK, ...OF_OBJECTS])
    await settled(js)
    expect(await stored()).toEqual(before)
  })

  it.each(['WORK', 'EVENTS', 'DEAD', 'RUNS', 'USAGE'])(
    'changes nothing in %s by what it deletes or purges',
    async (stream) => {
      await using js = await deployed.connect(user, 'test')
      await expectUnchanged(js, stream, ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.MSG.DELETE', 'STREAM.UPDATE'])
    },
  )
})

async function expectUnchanged(js: JetStream, stream: string, calls: readonly string[], reader = js): Promise<void> {
  const state = async () => (await bridge.admin.streams.info(stream)).state
  const before = await state()
  for (const call of calls)
    for (const api of ['$JS.API', 'FAIRLEAD.API'])
      js.nc.publish(`${api}.${call}.${stream}`, JSON.stringify({ name: stream, seq: before.first_seq }))
  await js.flush()
  await settled(reader)
  expect(await state()).toMatchObject({ messages: before.messages, first_seq: before.first_seq })
}

/** What the console reads by. */
async function openAs(user: 'fairlead-console' | 'fairlead-console-writes') {
  const js = await deployed.connect(user, 'test')
  return {
    js,
    queue: await openQueue(js, { log, create: false }),
    dead: await openDeadLetters(js, { cluster: '', log, create: false }),
    view: viewEvents(js, { log }),
    runs: viewRuns(js),
    usage: viewUsage(js),
    [Symbol.asyncDispose]: () => js.close(),
  }
}

const collected = async <T>(items: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

const key = (name: string) => ({ reconciler: 'at', key: `shop.${name}` })

describe('a console', () => {
  it.each(['fairlead-console', 'fairlead-console-writes'] as const)('reads all that it shows as %s', async (user) => {
    await using read = await openAs(user)
    expect(await read.queue.reconcilers()).toEqual(['at'])
    expect(await read.queue.isServed('at')).toBe(false)
    expect(await read.queue.depth('at')).toBeDefined()
    expect(await read.queue.backlog('at')).toBeDefined()
    expect(await read.queue.find(key('a'))).toHaveLength(1)
    expect(await read.view.resources()).toEqual([PODS])
    expect(await read.view.quietMs(PODS, 'shop')).toBeLessThan(300_000)
    expect(await read.view.quietMs({ ...PODS, resource: 'secrets' }, 'shop')).toBeUndefined()
    expect((await collected(read.view.stored([{}]))).map(({ key: { name } }) => name)).toContain('web')
    expect(await collected(read.runs.list({}))).toEqual([])
    expect(await read.runs.end()).toBe(0)
    expect(await collected(read.usage.since('day', new Date()))).toEqual([])
    expect(await collected(read.dead.list())).toEqual([])
    const end = new AbortController()
    const changes = read.view.follow([{ ref: PODS }], await read.view.end(), end.signal)
    const next = changes[Symbol.asyncIterator]().next()
    await events.put(PODS, 'added', object(`for-${user}`, 9, { namespace: 'shop' }))
    expect((await next).value?.key.name).toBe(`for-${user}`)
    end.abort()
  })

  it('changes the queue as fairlead-console-writes, and puts back and removes a dead key', async () => {
    await using write = await openAs('fairlead-console-writes')
    await write.queue.enqueue('at', 'shop.b')
    expect(await write.queue.park(key('b'))).toBe('parked')
    expect(await write.queue.retry(key('b'))).toBe('queued')
    expect(await write.queue.purge(key('b'))).toBe('purged')
    expect(await queue.find(key('b'))).toEqual([])
    const since = new Date()
    const gone = { reason: 'unknown-reconciler', detail: 'gone' } as const
    await dead.put(deadKey({ ...key('dead'), lane: 'high', since, stream: 'WORK', ...gone }))
    const [letter] = await collected(write.dead.list())
    expect(await replay(letter!, write)).toMatchObject({ done: true })
    expect([await queue.find(key('dead')), await collected(write.dead.list())]).toMatchObject([[{}], []])
  })
})

describe('fairlead-operate', () => {
  const operate = async (...args: string[]) => command(args, await deployed.as('fairlead-operate'))
  const gone = {
    since: new Date(),
    lane: 'high',
    stream: 'WORK',
    reason: 'unknown-reconciler',
    detail: 'gone',
  } as const

  beforeAll(() => queue.enqueue('at', 'shop.c'))

  it.each([
    [['queue', 'park', 'at', 'shop/c'], 'parked'],
    [['queue', 'retry', 'at', 'shop/c'], 'queued'],
    [['queue', 'show', 'at', 'shop/c'], 'queued'],
    [['queue', 'purge', 'at', 'shop/c', '--yes'], 'purged'],
    [['events', 'get', 'pods', '-n', 'shop'], 'web'],
    [['runs', 'ls'], 'No such run is recorded.'],
    [['usage'], 'No usage is stored for this time.'],
  ])('permits fairlead %j', async (args, text) => {
    const { stdout, stderr, code } = await operate(...args)
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 })
    expect(stdout).toContain(text)
  })

  it('replays dead keys of WORK, and leaves dead messages of EVENTS where they are', async () => {
    await dead.put(deadKey({ ...key('operated'), ...gone }))
    const subject = 'k8s._.v1.pods.shop._.dead'
    const message = {
      stream: 'EVENTS',
      subject,
      sequence: 1,
      storedAt: new Date(),
      headers: {},
      data: Buffer.from('{}'),
    }
    await dead.put({ ...message, reason: 'invalid-data', detail: 'bad' })
    const before = await bridge.lastSequence('EVENTS')
    await using console = await openAs('fairlead-console')
    const { stdout, code } = await operate('dead', 'replay', '--all')
    expect(code).toBe(1)
    expect(stdout).toMatch(/^\d+ work\.at\.high\.shop\.operated: queued$/m)
    expect(stdout).toMatch(/^\d+ k8s\S+dead: left, this user of NATS may not publish to EVENTS$/m)
    expect(await queue.find(key('operated'))).toMatchObject([{}])
    expect(await collected(console.dead.list())).toMatchObject([{ subject }])
    expect(await bridge.lastSequence('EVENTS')).toBe(before)
  })
})

describe.each(['fairlead-operate', 'fairlead-console-writes'] as const)('%s', (user) => {
  it('stores nothing of objects, runs and dead letters', async () => {
    await using js = await deployed.connect(user, 'test')
    const ofObjects = () => Promise.all(['EVENTS', 'DEAD', 'RUNS', 'USAGE'].map((name) => bridge.lastSequence(name)))
    const before = await ofObjects()
    await tryToStore(js, OF_OBJECTS)
    await settled(js)
    expect(await ofObjects()).toEqual(before)
  })

  it.each([
    ['WORK', ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.UPDATE']],
    ['DEAD', ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.UPDATE']],
    ['EVENTS', ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.UPDATE', 'STREAM.MSG.DELETE']],
    ['RUNS', ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.UPDATE', 'STREAM.MSG.DELETE']],
    ['USAGE', ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.UPDATE', 'STREAM.MSG.DELETE']],
  ])('keeps %s as it is, but for single messages of WORK and DEAD', async (stream, calls) => {
    await using js = await deployed.connect(user, 'test')
    await expectUnchanged(js, stream, calls)
  })
})

describe('fairlead-trigger-billing', () => {
  /** What a bridge does about triggers of Pods. */
  async function accepting() {
    const end = new AbortController()
    for (const name of ['its-own', 'answered']) await events.put(PODS, 'added', object(name, 1, { namespace: 'shop' }))
    const at = reconciler('at', { for: pods })
    const find = (name: string) => (name === 'at' ? at : undefined)
    const take = createTriggers({ events, queue, find, isListed: () => true })
    const accepted = acceptTriggers(bridge, { root: '', log, signal: end.signal }, take)
    return {
      async [Symbol.asyncDispose]() {
        end.abort()
        await accepted
      },
    }
  }

  it('causes a run of its Reconciler, and stores nothing else: not by the subject of the answer either', async () => {
    await using _ = await accepting()
    await using js = await deployed.connect('fairlead-trigger-billing', 'test')
    const ofObjects = () => Promise.all(['EVENTS', 'DEAD', 'RUNS'].map((name) => bridge.lastSequence(name)))
    const before = await ofObjects()
    await tryToStore(js, [...OF_WORK, ...OF_OBJECTS])
    for (const reply of [...OF_WORK, ...OF_OBJECTS, '$JS.API.STREAM.PURGE.WORK', '_INBOX.bridge.x'])
      js.nc.publish('trigger.at.shop.answered', '', { reply })
    js.nc.publish('trigger.other.shop.not-its-own', '')
    const ask = () => trigger(js.nc, { reconciler: 'at', namespace: 'shop', name: 'its-own', cause: 'paid' })
    expect([await ask(), await ask()]).toEqual(['queued', 'coalesced'])
    expect(await ofObjects()).toEqual(before)
    expect(await queue.find(key('its-own'))).toMatchObject([{ state: 'queued', causes: ['trigger: paid'] }])
    expect(await queue.find(key('answered'))).toHaveLength(1)
    expect(await queue.find({ reconciler: 'other', key: 'shop.not-its-own' })).toEqual([])
    const subjects = (await bridge.admin.streams.info('WORK', { subjects_filter: '>' })).state.subjects ?? {}
    expect(Object.keys(subjects).filter((subject) => /^(?:done|key)\.at\./.test(subject))).toEqual([])
  })

  it('is told that it may not trigger another Reconciler', async () => {
    await using js = await deployed.connect('fairlead-trigger-billing', 'test')
    const other = trigger(js.nc, { reconciler: 'other', namespace: 'shop', name: 'a' })
    await expect(other).rejects.toThrow(/Permissions Violation/)
  })

  it.each(['WORK', 'EVENTS', 'DEAD', 'RUNS'])('changes nothing in %s by what it deletes or purges', async (stream) => {
    await using js = await deployed.connect('fairlead-trigger-billing', 'test')
    const calls = ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.MSG.DELETE', 'STREAM.UPDATE']
    await expectUnchanged(js, stream, calls, bridge)
  })

  it('hears no answer to another client', async () => {
    await using js = await deployed.connect('fairlead-trigger-billing', 'test')
    const read = () => bridge.lastSequence('EVENTS')
    expect(await overheard(js, ['_INBOX.>', '_INBOX.bridge.>', 'k8s.>', 'trigger.>'], read)).toEqual([])
  })
})

/** The answers to another client that this one hears. */
async function overheard(
  listener: JetStream,
  inboxes: readonly string[],
  act: () => Promise<unknown>,
): Promise<string[]> {
  const heard: string[] = []
  const subscriptions = inboxes.map((subject) =>
    listener.nc.subscribe(subject, { callback: (error, { subject: at }) => void (error ?? heard.push(at)) }),
  )
  await listener.flush()
  await act()
  await listener.flush()
  for (const subscription of subscriptions) subscription.unsubscribe()
  return heard
}

it('only a bridge hears the answers to a bridge', async () => {
  await using dispatcher = await deployed.connect('fairlead-dispatcher', 'test')
  const read = () => bridge.lastSequence('EVENTS')
  for (const listener of [dispatcher, inspect])
    expect(await overheard(listener, ['_INBOX.>', '_INBOX.bridge.>', '_INBOX.*.*.*'], read)).toEqual([])
})

it('a bridge does not hear the answers to a dispatcher', async () => {
  await using dispatcher = await deployed.connect('fairlead-dispatcher', 'test')
  const read = () => dispatcher.lastSequence('WORK')
  expect(await overheard(bridge, ['_INBOX.>', '_INBOX.dispatch.>'], read)).toEqual([])
})
