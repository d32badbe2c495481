import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openEventStore } from '#events'
import type { JetStream } from '#nats'
import { openQueue } from '#queue'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { silent as log } from '../support/silent.ts'
import { object, PODS } from './objects.ts'

const MiB = 2 ** 20
const BODY = { spec: { text: 'x'.repeat(20_000) } }

let nats: Awaited<ReturnType<typeof startTestNats>>
let js: JetStream

beforeAll(async () => {
  nats = await startTestNats({ maxBytes: 4 * MiB })
  js = await connectTo(nats.url)
})
afterAll(async () => {
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

const open = (prefix: string, maxBytes?: number) => openEventStore(js, { prefix, cluster: 'test', log, maxBytes })
const configOf = async (prefix: string) => (await js.admin.streams.info(`${prefix}_EVENTS`)).config

/** Stores objects as long as one more of them has room; gives their names. */
async function fill(store: Awaited<ReturnType<typeof open>>): Promise<string[]> {
  const bytes = async () => (await js.admin.streams.info(store.stream)).state.bytes
  const names: string[] = []
  do {
    names.push(`o${names.length + 1}`)
    await store.put(PODS, 'added', object(`o${names.length}`, names.length, BODY))
  } while ((await bytes()) + BODY.spec.text.length + 2000 < MiB)
  return names
}

describe('EVENTS with a quota', () => {
  it('takes no room from WORK when it is full, drops nothing, and goes on when there is room', async () => {
    const store = await open('full', MiB)
    const queue = await openQueue(js, { prefix: 'full', log })
    await queue.declare('fn')
    const names = await fill(store)
    const waiting = store.put(PODS, 'added', object('late', 1000, { spec: { text: 'x'.repeat(40_000) } }))
    for (let number = 0; number < 1000; number++) await queue.enqueue('fn', `default.k${number}`)
    expect(await queue.depth('fn')).toMatchObject({ queued: 1000 })
    const stored = await Array.fromAsync(store.identities(PODS))
    expect(stored.map(({ key }) => key.name).toSorted()).toEqual(names.toSorted())
    await store.put(PODS, 'deleted', object('o1', 1, BODY))
    await open('full', 2 * MiB)
    expect(await waiting).toMatchObject({ outcome: 'stored' })
  })

  it('is given it, and another one, in place', async () => {
    await open('later')
    expect(await configOf('later')).toMatchObject({ discard: 'old', max_bytes: -1 })
    await open('later', MiB)
    expect(await configOf('later')).toMatchObject({ discard: 'new', max_bytes: MiB })
    await open('later')
    expect(await configOf('later')).toMatchObject({ discard: 'new', max_bytes: MiB })
  })

  it('is refused with a limit that drops what is oldest', async () => {
    await open('drops')
    await js.admin.streams.update('drops_EVENTS', { max_bytes: MiB })
    await expect(open('drops')).rejects.toThrow(/max_bytes = 1048576/)
  })
})
