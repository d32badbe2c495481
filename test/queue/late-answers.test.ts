import { setTimeout as pause } from 'node:timers/promises'
import { expect, it, vi } from 'vitest'
import type { JetStream } from '#nats'
import type { Lease, QueueOptions } from '#queue'
import { RunPermits } from '../../streams/queue/run-rate.ts'
import { Names } from '../../streams/queue/wire.ts'
import { startLossyProxy } from '../support/lossy-proxy.ts'
import {
  DONE,
  entriesOf,
  FN,
  freshPrefix,
  keysNamed,
  LEASE_MS,
  openTestQueue,
  PATIENT,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useTestNats,
  World,
} from './support.ts'

const { nats, open } = useTestNats()

const KEYS = keysNamed('k', 30)
/** Each key is taken so often in vain that a process would be blamed for it twice. */
const TAKEN_IN_VAIN = 2 * KEYS.length

it('keys that are taken in vain, because NATS answers late, are no suspects, and run when it answers', async () => {
  await using proxy = await startLossyProxy(nats().url)
  await using steady = await open('late', SHORT)
  await using late = await openTestQueue(proxy.url, 'late', SHORT)
  const world = new World()
  // A request and its answer together take longer than a lease.
  proxy.delay(LEASE_MS * 0.6)
  const worker = world.serve(late.queue, () => DONE, KEYS.length)
  for (const key of KEYS) await world.change(steady.queue, key)
  const inVain = () => late.logged.filter((line) => line.includes('lease nearly over'))
  await until(() => expect(inVain().length).toBeGreaterThan(TAKEN_IN_VAIN))
  expect(world.starts).toEqual([])
  proxy.delay(0)
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  await until(async () => expect(await entriesOf(steady.queue)).toEqual([]))
  expect(world.leases.filter(({ suspect }) => suspect)).toEqual([])
  expect(late.logged.filter((line) => line.startsWith('run cut short again'))).toEqual([])
  await worker.drain(1000)
})

/** More than a NATS takes of a process within a lease when all these keys are taken at a time. */
const MANY = keysNamed('m', 600)
const BYTES_PER_SECOND = 150_000

it('keys that are taken late, because too many are taken at a time, are taken fewer at a time, and all run', async () => {
  const prefix = freshPrefix()
  await using proxy = await startLossyProxy(nats().url)
  await using steady = await open(prefix, SHORT)
  await using late = await openTestQueue(proxy.url, prefix, SHORT)
  const world = new World()
  for (const key of MANY) await world.change(steady.queue, key)
  proxy.narrow(BYTES_PER_SECOND)
  const worker = world.serve(late.queue, () => DONE, MANY.length)
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  expect(late.logged.filter((line) => line.startsWith('keys are taken late')).length).toBeGreaterThan(0)
  expect(late.logged.filter((line) => line.includes('lease nearly over')).length).toBeLessThan(MANY.length)
  proxy.narrow(Number.POSITIVE_INFINITY)
  await worker.drain(1000)
})

/** The token of a key whose lease has ended, as the server makes it from the record. */
async function endedLease(js: JetStream, prefix: string, headers: Record<string, string>): Promise<void> {
  await js.publish(new Names(prefix).token(FN, 'high', 'n.a'), '', { 'Fairlead-State': 'running', ...headers })
}

it.each([
  ['grows with', 'a run had begun', '1', 3200, 'its process was lost again, during 6 runs in a row'],
  ['is the shortest after', 'no run had begun', '', 100, 'its lease was lost in vain'],
])('the wait of a suspect %s a lease under which %s', async (_, __, begun, seconds, error) => {
  const prefix = freshPrefix()
  const onLost = vi.fn<(reconciler: string) => void>()
  await using test = await open(prefix, { observer: { onLost } })
  const suspect = { 'Fairlead-Suspect': '1', 'Fairlead-Cuts': '5', 'Fairlead-Begun': begun }
  await endedLease(test.js, prefix, suspect)
  const backoff = { initialSeconds: 100, maxSeconds: 10_000, jitter: 0 }
  const worker = test.queue.serve({ reconciler: FN, slots: 1, backoff, handler: () => Promise.resolve(DONE) })
  await until(async () => expect(await entriesOf(test.queue)).toMatchObject([{ state: 'waiting', error }]))
  const [entry] = await entriesOf(test.queue)
  const waitsMs = entry?.state === 'waiting' ? +entry.until - +entry.since : 0
  // What a loaded machine adds is seconds.
  expect(Math.round(waitsMs / 100_000) * 100).toBe(seconds)
  expect(onLost).toHaveBeenCalledTimes(Number(begun))
  await worker.drain(1000)
})

/** Calls `then` before the record of a run says for the first time that it begins. */
function beforeFirstNote(then: () => void): QueueOptions['onIo'] {
  let isFirst = true
  return (io) => {
    if (io.do !== 'publish' || io.message.role !== 'record' || !io.message.record.begun || !isFirst) return
    isFirst = false
    then()
  }
}

it('a run of a key that was cut short does not begin if the answer to its note comes when the lease is over', async () => {
  const prefix = freshPrefix()
  await using proxy = await startLossyProxy(nats().url)
  await using steady = await open(prefix, SHORT)
  // The note reaches the server in time.
  const onIo = beforeFirstNote(() => proxy.delay(LEASE_MS * 0.6))
  await using late = await openTestQueue(proxy.url, prefix, { ...SHORT, onIo })
  const world = new World()
  await endedLease(steady.js, prefix, {})
  const outside: string[] = []
  world.versions.set('n.a', 1)
  const worker = world.serve(late.queue, (lease) => {
    proxy.delay(0)
    if (isOver(lease)) outside.push(lease.owner)
    return DONE
  })
  const slow = setTimeout(() => proxy.delay(0), LEASE_MS * 2)
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  clearTimeout(slow)
  await until(async () => expect(await statesOf(steady.queue)).toEqual([]))
  expect(outside).toEqual([])
  // No function was called in the lease that ended meanwhile.
  expect(world.leases.filter(({ suspect }) => suspect)).toEqual([])
  await worker.drain(1000)
})

it('a run does not begin if its lease ends while it waits for another permit of its rate', async () => {
  const prefix = freshPrefix()
  await using proxy = await startLossyProxy(nats().url)
  await using steady = await open(prefix, SHORT)
  await using late = await openTestQueue(proxy.url, prefix, SHORT)
  const exchange = vi.spyOn(RunPermits.prototype, 'inTime').mockImplementationOnce(async (permit) => {
    proxy.delay(LEASE_MS * 2)
    await pause(LEASE_MS)
    return { ...permit, until: Number.POSITIVE_INFINITY }
  })
  const giveBack = vi.spyOn(RunPermits.prototype, 'giveBack')
  const outside: string[] = []
  const handler = (lease: Lease) => {
    if (isOver(lease)) outside.push(lease.owner)
    return Promise.resolve(DONE)
  }
  const rates = [{ name: 'slow', limits: [FN], perSecond: 100 }]
  const worker = late.queue.serve({ reconciler: FN, slots: 1, rates, handler })
  await steady.queue.enqueue(FN, 'n.a')
  await until(() => expect(exchange).toHaveBeenCalledTimes(1))
  await pause(LEASE_MS * 1.2)
  proxy.delay(0)
  await until(async () => expect(await statesOf(steady.queue)).toEqual([]))
  expect(outside).toEqual([])
  expect(exchange.mock.calls.length).toBeGreaterThan(1)
  expect(giveBack).toHaveBeenCalledWith(expect.objectContaining({ until: Number.POSITIVE_INFINITY }))
  await worker.drain(1000)
})

it('a lease that ends while its run waits for another permit of its rate makes its key no suspect', async () => {
  const prefix = freshPrefix()
  await using steady = await open(prefix, SHORT)
  const lost = await open(prefix, SHORT)
  const exchange = vi.spyOn(RunPermits.prototype, 'inTime').mockImplementationOnce(() => new Promise(() => {}))
  await endedLease(steady.js, prefix, {})
  const rates = [{ name: 'slow', limits: [FN], perSecond: 100 }]
  lost.queue.serve({ reconciler: FN, slots: 1, rates, handler: () => Promise.resolve(DONE) })
  await until(() => expect(exchange).toHaveBeenCalledTimes(1))
  await lost.js.close()
  const world = new World()
  const worker = world.serve(steady.queue)
  await until(() => expect(world.leases).toMatchObject([{ cutShort: true, suspect: false }]))
  await worker.drain(1000)
})

it('a suspect waits on, if a process that could not delay it learns that another one has', async () => {
  const prefix = freshPrefix()
  await using steady = await open(prefix, SHORT)
  const isDelaying = Promise.withResolvers<void>()
  const mayDelay = Promise.withResolvers<void>()
  const onIo: QueueOptions['onIo'] = (io) => {
    if (io.do !== 'publish' || io.message.role !== 'record' || io.message.record.state !== 'waiting') return undefined
    isDelaying.resolve()
    return mayDelay.promise
  }
  await using late = await open(prefix, { ...SHORT, onIo })
  const backoff = { initialSeconds: 100, maxSeconds: 10_000, jitter: 0 }
  const serve = ({ queue }: TestQueue) =>
    queue.serve({ reconciler: FN, slots: 1, backoff, handler: () => Promise.resolve(DONE) })
  await endedLease(steady.js, prefix, { 'Fairlead-Suspect': '1', 'Fairlead-Begun': '1' })
  const fenced = serve(late)
  await isDelaying.promise
  const other = serve(steady)
  await until(async () => expect(await statesOf(steady.queue)).toEqual(['n.a waiting']))
  await other.drain(1000)
  mayDelay.resolve()
  await fenced.drain(PATIENT.leaseMs)
  expect(late.logged.filter((line) => line.startsWith('run fenced')).length).toBe(1)
  expect(await statesOf(steady.queue)).toEqual(['n.a waiting'])
})

it('a run of a key that was cut short does not begin after its worker has begun to drain', async () => {
  const prefix = freshPrefix()
  await using steady = await open(prefix)
  let drained: Promise<void> | undefined
  const onIo = beforeFirstNote(() => {
    drained = worker.drain(60_000)
  })
  await using leaving = await open(prefix, { onIo })
  const world = new World()
  await endedLease(steady.js, prefix, {})
  const worker = world.serve(leaving.queue)
  await until(() => expect(drained).toBeDefined())
  await drained
  expect(world.starts).toEqual([])
  expect(await statesOf(steady.queue)).toEqual(['n.a queued'])
})

/** Two leases that end during a run make a suspect. */
const LOST = 2

it('a run whose lease ends because NATS answers late, in a process that lives, makes its key no suspect', async () => {
  const prefix = freshPrefix()
  await using proxy = await startLossyProxy(nats().url)
  await using steady = await open(prefix, SHORT)
  await using late = await openTestQueue(proxy.url, prefix, SHORT)
  const world = new World()
  const worker = world.serve(late.queue, async (lease) => {
    if (world.leases.length > LOST) return DONE
    proxy.delay(LEASE_MS)
    await until(() => expect(isOver(lease)).toBe(true))
    proxy.delay(0)
    return DONE
  })
  await world.change(steady.queue, 'n.a')
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  await until(async () => expect(await statesOf(steady.queue)).toEqual([]))
  expect(world.leases.map(({ suspect }) => suspect)).toEqual(world.leases.map(() => false))
  expect(late.logged.filter((line) => line.startsWith('run cut short again'))).toEqual([])
  await worker.drain(1000)
})

it('a run that blocks its process until its lease is over makes its key a suspect, although the process lives', async () => {
  const prefix = freshPrefix()
  await using proxy = await startLossyProxy(nats().url, { delayMs: WAY_MS })
  let blocked: PromiseWithResolvers<void> | undefined
  const onIo: QueueOptions['onIo'] = (io) => {
    const isRenewal = io.do === 'publish' && io.message.role === 'record' && io.message.record.begun
    if (isRenewal && blocked !== undefined) setTimeout(block, WAY_MS * 1.5, blocked.resolve)
  }
  await using test = await openTestQueue(proxy.url, prefix, { ...SHORT, onIo })
  const world = new World()
  // A run whose renewal NATS answers late by itself does not count, and another one follows.
  const worker = world.serve(test.queue, async ({ suspect }) => {
    if (suspect) return DONE
    blocked = Promise.withResolvers()
    await blocked.promise
    blocked = undefined
    return DONE
  })
  await world.change(test.queue, 'n.a')
  await until(() => expect(world.dealtWith).toEqual(world.versions))
  expect(world.leases.at(-1)).toMatchObject({ suspect: true })
  await worker.drain(1000)
})

const WAY_MS = 50

/** Blocks the event loop while the answer to a renewal waits in a socket, for longer than a request waits for its answer. */
function block(then: () => void): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LEASE_MS * 2)
  then()
}

function isOver(lease: { hold(): void }): boolean {
  try {
    lease.hold()
    return false
  } catch {
    return true
  }
}
