import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { openEventStore } from '#events'
import { connectJetStream, copyStream } from '#nats'
import type { Entry } from '#queue'
import { RECONCILERS } from '#spec'
import { command } from '../support/command.ts'
import { connectTo } from '../support/jetstream.ts'
import { silent } from '../support/silent.ts'
import {
  DONE,
  entriesOf,
  fence,
  freshPrefix,
  gate,
  inMs,
  keysNamed,
  until,
  useShippedNats,
  useTestNats,
  World,
} from './support.ts'

const small = useTestNats()
const cluster = useShippedNats('fairlead-dispatcher', { replicas: 3 })

/** More than the server reads ahead: the copy gets to later messages only when these are stored. */
const FILLERS = 96
const FILLER_BYTES = 2 ** 16
const PATIENCE_MS = 120_000

/** A process shows times by its own estimate of the server's clock. */
const withoutTimes = (entry: Entry) => ({ ...entry, since: undefined, until: undefined })

/** Connections as the process has them that copies: to a server that asks for nothing, and as a bridge. */
async function connections() {
  const from = await connectTo(small.nats().url, 'from')
  const nats = cluster.nats()
  const to = await connectTo(nats.as(nats.url, 'fairlead-bridge'), 'to')
  const stop = async () => void (await Promise.all([from.close(), to.close()]))
  return { from, to, [Symbol.asyncDispose]: stop }
}

it('law 3: every timer fires once on three servers, also one that is due while the copy is made', async () => {
  await using js = await connections()
  const prefix = freshPrefix()
  const stream = `${prefix}_WORK`
  await using before = await small.open(prefix)
  for (let number = 0; number < FILLERS; number++)
    await js.from.publish(`${prefix}.key._.filler${number}`, randomBytes(FILLER_BYTES), {})
  const during = keysNamed('during', 20)
  const after = keysNamed('after', 20)
  const world = new World()
  const due = Promise.withResolvers<Date>()
  const first = world.serve(
    before.queue,
    async ({ key }) => {
      if (world.runsOf(key) > 1) return DONE
      if (key === 'n.parked') return { kind: 'terminal', message: 'wrong' }
      if (key === 'n.failed') return { kind: 'error', message: 'not yet', retryAt: { afterMs: 3_600_000 } }
      return { kind: 'requeue', at: during.includes(key) ? await due.promise : inMs(8000) }
    },
    64,
  )
  for (const key of [...after, 'n.parked', 'n.failed', ...during]) await world.change(before.queue, key)
  await until(() => expect(new Set(world.starts).size).toBe(42))
  due.resolve(inMs(4000))
  await until(async () =>
    expect((await entriesOf(before.queue)).filter(({ state }) => state === 'running')).toEqual([]),
  )
  // No run of a timer that has fired meanwhile is handed back, to run once more.
  await first.drain(PATIENCE_MS)
  const fired = async () => (await js.from.count(stream, `${prefix}.work.>`)).count
  const isKept = ({ key }: { key: string }) => key === 'n.parked' || key === 'n.failed'
  const keptIn = ({ queue }: typeof before) =>
    until(async () => (await entriesOf(queue)).filter(isKept).map(withoutTimes))
  const kept = await keptIn(before)
  expect(kept.map(({ state }) => state).sort()).toEqual(['parked', 'waiting'])
  const notYet = during.filter((key) => world.runsOf(key) === 1)
  let parts = 0
  // The server stores these firings behind what it has begun to send.
  const onPart = async () => {
    if (parts++ === 0) await until(async () => (await fired()) >= notYet.length)
  }
  const options = { replicas: 3, patienceMs: PATIENCE_MS, onPart } as const
  expect(await copyStream(js.from, js.to, stream, options)).toMatchObject({ result: 'copied' })
  expect(parts).toBeGreaterThan(8)

  await using now = await cluster.open(prefix)
  expect(await keptIn(now)).toEqual(kept)
  const second = world.serve(now.queue)
  const runs = () => [...during, ...after].map((key) => world.runsOf(key))
  await until(() => expect(Math.min(...runs())).toBe(2))
  await fence(now)
  expect(new Set(runs())).toEqual(new Set([2]))
  await until(async () => expect((await entriesOf(now.queue)).map(withoutTimes)).toEqual(kept))
  expect(world.overlaps).toEqual([])
  await second.drain(1000)
  expect(await copyStream(js.from, js.to, stream, options)).toEqual({ result: 'was copied before' })
})

it('a copy takes the place of no other stream', async () => {
  await using js = await connections()
  const prefix = freshPrefix()
  await using before = await small.open(prefix)
  await using now = await cluster.open(prefix)
  const world = new World()
  await world.change(before.queue, 'n.old')
  await world.change(now.queue, 'n.new')
  const options = { replicas: 3, patienceMs: PATIENCE_MS } as const
  await expect(copyStream(js.from, js.to, `${prefix}_WORK`, options)).rejects.toThrow('is there already')
  expect((await entriesOf(now.queue)).map(({ key }) => key)).toEqual(['n.new'])
  const worker = world.serve(now.queue, () => DONE)
  await until(() => expect(world.starts).toEqual(['n.new']))
  await worker.drain(1000)
})

it('a copy is whole although timers fire in the old server, and in the way as soon as a process has used that server', async () => {
  await using js = await connections()
  const prefix = freshPrefix()
  const stream = `${prefix}_WORK`
  const options = { replicas: 3, patienceMs: PATIENCE_MS } as const
  const copy = () => copyStream(js.from, js.to, stream, options)
  {
    await using before = await small.open(prefix)
    const world = new World()
    const worker = world.serve(before.queue, () => ({ kind: 'requeue', at: inMs(4000) }))
    await world.change(before.queue, 'n.timer')
    await until(async () => expect((await entriesOf(before.queue)).map(({ state }) => state)).toEqual(['waiting']))
    await worker.drain(1000)
  }
  expect(await copy()).toMatchObject({ result: 'copied' })
  await small.nats().restart()
  await until(async () => expect((await js.from.count(stream, `${prefix}.work.>`)).count).toBe(1))
  expect(await copy()).toEqual({ result: 'was copied before' })
  await using again = await small.open(prefix)
  await new World().change(again.queue, 'n.later')
  await expect(copy()).rejects.toThrow('is a copy of an earlier state')
})

it('a copy of EVENTS is in the way as soon as a cursor has moved in the old server', async () => {
  await using js = await connections()
  const prefix = freshPrefix()
  const events = await openEventStore(js.from, { prefix, cluster: 'test', log: silent })
  const copy = () => copyStream(js.from, js.to, events.stream, { replicas: 3, patienceMs: PATIENCE_MS })
  const move = (resourceVersion: string) =>
    events.setCursor(RECONCILERS, undefined, { resourceVersion, at: '2026-01-01T00:00:00Z' })
  await move('1')
  expect(await copy()).toMatchObject({ result: 'copied' })
  expect(await copy()).toEqual({ result: 'was copied before' })
  await move('1')
  await expect(copy()).rejects.toThrow('delete the volumes of the new servers, and begin again')
})

it('a copy ends with an error when the old server does, and the next attempt says what to do', async () => {
  await using js = await connections()
  // It waits no longer than a process does for answers that do not come.
  await using from = await connectJetStream({ servers: small.nats().url, name: 'from' })
  const prefix = freshPrefix()
  await using before = await small.open(prefix)
  for (let number = 0; number < FILLERS; number++)
    await js.from.publish(`${prefix}.key._.filler${number}`, randomBytes(FILLER_BYTES), {})
  const dropped = gate()
  from.onDisconnect(dropped.open)
  let parts = 0
  const onPart = () => {
    if (parts++ === 0) small.nats().signal('SIGKILL')
    return dropped.opened
  }
  const options = { replicas: 3, patienceMs: PATIENCE_MS } as const
  const copy = copyStream(from, js.to, before.queue.stream, { ...options, onPart })
  await expect(copy).rejects.toThrow('the connection to NATS dropped before its end')
  await small.nats().restart()
  const next = () => copyStream(from, js.to, before.queue.stream, options)
  await until(() => expect(next()).rejects.toThrow('is no whole copy: delete the volumes of the new servers'))
})

it('copy-streams ends with an error if the server has none of the streams', async () => {
  const env = { NATS_URL: cluster.nats().url, FAIRLEAD_PREFIX: freshPrefix(), LOG_LEVEL: 'error' }
  const { code, stderr } = await command(['copy-streams', '--from', small.nats().url], env)
  expect(stderr).toMatch(/--from is 127.0.0.1:\d+, which has none of the streams \w+_EVENTS, .*FAIRLEAD_PREFIX/)
  expect(code).toBe(2)
})
