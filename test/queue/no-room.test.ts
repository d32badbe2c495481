import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { type JetStream, JetStreamError } from '#nats'
import type { Finish, QueueOptions } from '#queue'
import { Names } from '../../streams/queue/wire.ts'
import {
  DONE,
  FN,
  freshPrefix,
  inMs,
  LEASE_MS,
  SHORT,
  statesOf,
  type TestQueue,
  until,
  useShippedNats,
  World,
} from './support.ts'

const { open, admin } = useShippedNats('fairlead-dispatcher', { maxBytes: 1_000_000 })

/** Long enough to take the last room before. */
const DUE_MS = 5000
/** More than a queue of one key needs, and soon taken. */
const SPARE_BYTES = 30_000

interface Room {
  takeRest: () => Promise<void>
  makeRoom: () => Promise<unknown>
}

/** Another stream takes all the room that there is, but for some. */
async function takeRoom(js: JetStream): Promise<Room> {
  const { streams } = js.admin
  for (const name of ['spare', 'full']) await streams.add({ name: name.toUpperCase(), subjects: [name] })
  await js.publish('spare', 'x'.repeat(SPARE_BYTES), {})
  await fill(js)
  await streams.delete('SPARE')
  return { takeRest: () => fill(js), makeRoom: () => streams.delete('FULL') }
}

async function fill(js: JetStream): Promise<void> {
  for (const size of [10_000, 1000, 100, 10])
    for (let isRoom = true; isRoom; )
      isRoom = await js.publish('full', 'x'.repeat(size), {}).then(
        () => true,
        (error: unknown) => {
          if (error instanceof JetStreamError) return false
          throw error
        },
      )
}

/** There is no room before the key is due, and some after that; resolves when the janitor has mended what came of it. */
async function dueWithoutRoom({ js, queue }: TestQueue, { takeRest, makeRoom }: Room): Promise<void> {
  await takeRest()
  const due = (await js.serverTime(queue.stream)) + DUE_MS
  await until(async () => expect(await js.serverTime(queue.stream)).toBeGreaterThan(due))
  await makeRoom()
  const janitor = queue.janitor(FN)
  await until(async () => expect(await janitor.pass()).toBe(1))
}

describe('where the stream had no room when it was due', () => {
  it('a timer fires once there is some', async () => {
    await using test = await open()
    const room = await takeRoom(admin())
    const world = new World()
    const work = ({ fired }: { fired: boolean }): Finish => (fired ? DONE : { kind: 'requeue', at: inMs(DUE_MS) })
    const worker = world.serve(test.queue, work)
    await world.change(test.queue, 'n.a')
    await until(async () => expect(await statesOf(test.queue)).toEqual(['n.a waiting']))
    await worker.drain(1000)
    await dueWithoutRoom(test, room)
    const next = world.serve(test.queue, work)
    await until(() => expect(world.leases.at(-1)?.fired).toBe(true))
    await until(async () => expect(await statesOf(test.queue)).toEqual([]))
    await next.drain(1000)
  })

  it('the key of a lost process runs again once there is some', async () => {
    const prefix = freshPrefix()
    const terms = { leaseMs: DUE_MS, ackWaitMs: DUE_MS }
    await using test = await open(prefix, terms)
    const world = new World()
    const lost = await open(prefix, terms)
    const room = await takeRoom(admin())
    world.serve(lost.queue, () => new Promise(() => {}))
    await world.change(test.queue, 'n.a')
    await until(() => expect(world.runsOf('n.a')).toBe(1))
    await lost.js.close()
    await dueWithoutRoom(test, room)
    const worker = world.serve(test.queue)
    await until(() => expect(world.dealtWith.get('n.a')).toBe(1))
    expect(world.leases.at(-1)).toMatchObject({ attempt: 0, cutShort: true })
    await worker.drain(1000)
  })
})

/** Without a pause they take some milliseconds. */
const TRIES = 10

it.each([
  ['the renewal of a run', {}],
  ['the note that a run of a key begins whose lease was lost before', { 'Fairlead-State': 'running' }],
])('%s is repeated ten times in a lease at most while NATS refuses it', async (_, headers) => {
  const prefix = freshPrefix()
  const tries: number[] = []
  const onIo: QueueOptions['onIo'] = (io) => {
    if (io.do !== 'publish' || io.message.role !== 'record' || !io.message.record.begun) return
    tries.push(performance.now())
    throw new JetStreamError('resource limits exceeded for account', 400, 10_002)
  }
  await using test = await open(prefix, { ...SHORT, onIo })
  await test.js.publish(new Names(prefix).token(FN, 'high', 'n.a'), '', headers)
  const world = new World()
  const worker = world.serve(test.queue, async ({ signal }) => {
    await once(signal, 'abort')
    return DONE
  })
  await until(() => expect(tries.length).toBeGreaterThan(TRIES))
  // Timers may be early by some milliseconds.
  expect(tries[TRIES]! - tries[0]!).toBeGreaterThan((TRIES * LEASE_MS) / 12)
  await worker.drain(0)
})
