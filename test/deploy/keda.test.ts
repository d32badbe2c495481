import { readFile } from 'node:fs/promises'
import { expect, it, vi } from 'vitest'
import { parse } from 'yaml'
import type { Finish } from '#queue'
import { openTestQueue } from '../queue/support.ts'
import { startShippedNats } from '../support/shipped-users.ts'

interface Trigger {
  type: string
  metadata: { account: string; stream: string; consumer: string; activationLagThreshold: string }
}

interface Monitoring {
  account_details: {
    name: string
    stream_detail: {
      name: string
      consumer_detail: { name: string; num_pending: number; num_ack_pending: number }[]
    }[]
  }[]
}

async function triggersOf(name: string): Promise<Trigger[]> {
  const file = await readFile(new URL(`../../deploy/keda/${name}.yaml`, import.meta.url), 'utf8')
  return (parse(file) as { spec: { triggers: Trigger[] } }).spec.triggers
}
const triggers = await triggersOf('scaledobject')

/** What KEDA's scaler reads and adds up; undefined: it finds no such consumer. */
async function lagOf(endpoint: string, { metadata }: Trigger): Promise<number | undefined> {
  const { account, stream, consumer } = metadata
  const answer = await fetch(`${endpoint}/jsz?acc=${account}&consumers=true&config=true`)
  const { account_details: accounts } = (await answer.json()) as Monitoring
  const streams = accounts.find(({ name }) => name === account)?.stream_detail
  const found = streams?.find(({ name }) => name === stream)?.consumer_detail?.find(({ name }) => name === consumer)
  return found && found.num_pending + found.num_ack_pending
}

it('KEDA counts keys that are queued, and neither timers nor parked keys', async () => {
  await using nats = await startShippedNats([''])
  const [endpoint = ''] = nats.monitoringUrls
  const lags = () => Promise.all(triggers.map((trigger) => lagOf(endpoint, trigger)))
  const isActive = async () =>
    (await lags()).some((lag, index) => (lag ?? 0) > Number(triggers[index]?.metadata.activationLagThreshold))
  await using test = await openTestQueue(nats.url, '')
  const { queue } = test
  await queue.declare('at')
  expect(triggers.map(({ type }) => type)).toEqual(['nats-jetstream', 'nats-jetstream'])
  expect(await lags()).toEqual([0, 0])

  for (const key of ['n.timer', 'n.backoff', 'n.parked']) await queue.enqueue('at', key)
  await queue.enqueue('at', 'n.timer')
  await queue.enqueue('at', 'n.done', { lane: 'low' })
  await vi.waitFor(async () => expect(await lags()).toEqual([3, 1]), { timeout: 60_000, interval: 20 })
  expect(await isActive()).toBe(true)

  const inAnHour = new Date(Date.now() + 3_600_000)
  const endings: Record<string, () => Finish> = {
    'n.timer': () => ({ kind: 'requeue', at: inAnHour }),
    'n.backoff': () => ({ kind: 'error', message: 'x', retryAt: inAnHour }),
    'n.parked': () => ({ kind: 'terminal', message: 'x' }),
    'n.soon': () => ({ kind: 'requeue', at: new Date(Date.now() + 300) }),
  }
  const serve = () =>
    queue.serve({ reconciler: 'at', slots: 4, handler: async ({ key }) => endings[key]?.() ?? { kind: 'done' } })
  const worker = serve()
  await vi.waitFor(async () => expect(await queue.depth('at')).toMatchObject({ waiting: 2, parked: 1 }), {
    timeout: 60_000,
  })
  await worker.drain(1000)
  await vi.waitFor(async () => expect(await lags()).toEqual([0, 0]), { timeout: 60_000, interval: 20 })
  expect(await isActive()).toBe(false)

  const other = serve()
  await queue.enqueue('at', 'n.soon', { lane: 'low' })
  await vi.waitFor(async () => expect(await queue.depth('at')).toMatchObject({ waiting: 3 }), { timeout: 60_000 })
  await other.drain(1000)
  await vi.waitFor(async () => expect(await lags()).toEqual([1, 0]), { timeout: 60_000, interval: 20 })
  expect(await isActive()).toBe(true)
})

it('KEDA counts for a function over HTTP the keys of its own Reconciler', async () => {
  await using nats = await startShippedNats([''])
  const [endpoint = ''] = nats.monitoringUrls
  const own = await triggersOf('function')
  await using test = await openTestQueue(nats.url, '')
  for (const reconciler of ['at', 'website']) await test.queue.declare(reconciler)
  await test.queue.enqueue('at', 'n.other')
  await test.queue.enqueue('website', 'n.a')
  await test.queue.enqueue('website', 'n.b', { lane: 'low' })
  expect(await Promise.all(own.map((trigger) => lagOf(endpoint, trigger)))).toEqual([1, 1])
})
