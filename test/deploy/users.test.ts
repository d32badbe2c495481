import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type DeadLetters, declareRuns, type EventStore, openDeadLetters, openEventStore } from '#events'
import type { JetStream } from '#jetstream'
import { openQueue, type WorkQueue } from '#queue'
import { object, PODS } from '../events/objects.ts'
import { command } from '../support/command.ts'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { startFairlead } from '../support/fairlead.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'

const PATIENCE = { leastMs: 50, timeoutMs: 20_000, what: 'it is shown' }

let deployed: DeployedNats
let bridge: JetStream
let inspect: JetStream
let events: EventStore
let queue: WorkQueue
let dead: DeadLetters
let env: Record<string, string>

beforeAll(async () => {
  deployed = await startDeployedNats()
  bridge = await deployed.connect('fairlead-bridge', 'test')
  inspect = await deployed.connect('fairlead-inspect', 'test')
  env = await deployed.as('fairlead-inspect')
  dead = await openDeadLetters(bridge, { cluster: 'test', log })
  events = await openEventStore(bridge, { cluster: 'test', log })
  queue = await openQueue(bridge, { log })
  await declareRuns(bridge, { replicas: 1, raiseReplicas: true })
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
const stored = () => Promise.all([events.stream, queue.stream, dead.stream].map((name) => bridge.lastSequence(name)))

describe('fairlead-inspect', () => {
  it.each([
    [['queue', 'ls'], 'high lane, place 1'],
    [['queue', 'show', 'at', 'shop/a'], 'queued'],
    [['events', 'get', 'pods', '-n', 'shop'], 'web'],
    [['runs', 'ls'], 'No such run is recorded.'],
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

  it('stores nothing: not by a publish, not by the answer to a read, not by a consumer', async () => {
    const before = await stored()
    const { nc } = inspect
    nc.publish('work.at.high.shop.b', '')
    for (const subject of ['work.at.high.shop.c', 'k8s._.v1.pods.shop._.forged', 'dead.at.x.y']) {
      nc.publish('FAIRLEAD.API.STREAM.INFO.WORK', '', { reply: subject })
      nc.publish('FAIRLEAD.API.DIRECT.GET.EVENTS', JSON.stringify({ batch: 9, next_by_subj: 'k8s.>' }), {
        reply: subject,
      })
    }
    const config = { deliver_subject: 'work.at.high.shop.d', ack_policy: 'none' }
    for (const api of ['$JS.API', 'FAIRLEAD.API'])
      nc.publish(`${api}.CONSUMER.CREATE.EVENTS`, JSON.stringify({ stream_name: 'EVENTS', config }))
    await inspect.flush()
    // The server has answered what it was asked before.
    await inspect.lastSequence('WORK')
    await bridge.flush()
    expect(await stored()).toEqual(before)
  })

  it.each(['queue', 'events'] as const)('changes nothing in %s by what it deletes or purges', async (name) => {
    const messages = async () => (await bridge.admin.streams.info(stream)).state.messages
    const stream = name === 'queue' ? queue.stream : events.stream
    const before = await messages()
    for (const call of ['STREAM.PURGE', 'STREAM.DELETE', 'STREAM.MSG.DELETE'])
      for (const api of ['$JS.API', 'FAIRLEAD.API'])
        inspect.nc.publish(`${api}.${call}.${stream}`, JSON.stringify({ seq: 1 }))
    await inspect.flush()
    await inspect.lastSequence(stream)
    expect(await messages()).toBe(before)
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
