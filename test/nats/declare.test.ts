import { describe, expect, it } from 'vitest'
import { openEventStore } from '#events'
import { connectJetStream, DeclarationMismatchError, declareConsumer, declareStream, UnknownOutcomeError } from '#nats'
import { openQueue } from '#queue'
import { startLossyProxy } from '../queue/lossy-proxy.ts'
import { useJetStream } from '../support/jetstream.ts'
import { silent as log } from '../support/silent.ts'

const { nats, js } = useJetStream()

it.each(['requests', 'answers'] as const)('what is declared is asked for again when %s are lost', async (lost) => {
  await using proxy = await startLossyProxy(nats().url)
  const js = await connectJetStream({ servers: proxy.url, name: 'test', timeoutMs: 100 })
  proxy.lose(lost)
  expect(await declareStream(js, { name: lost, subjects: [lost] })).toMatchObject({ name: lost, num_replicas: 1 })
  proxy.lose(lost)
  await declareConsumer(js, lost, { durable_name: 'c', ack_policy: 'explicit' })
  expect(await js.admin.consumers.info(lost, 'c')).toMatchObject({ name: 'c' })
  await js.close()
})

it('says that NATS does not answer, and about what', async () => {
  await using proxy = await startLossyProxy(nats().url)
  const js = await connectJetStream({ servers: proxy.url, name: 'test', timeoutMs: 100 })
  js.onReconnect(() => proxy.lose('requests'))
  proxy.lose('requests')
  const declared = declareStream(js, { name: 'X', subjects: ['x'] })
  await expect(declared).rejects.toThrow(UnknownOutcomeError)
  await expect(declared).rejects.toThrow('NATS does not answer about stream X')
  await js.close()
})

describe.each([
  { stream: 'EVENTS', open: (prefix: string) => openEventStore(js(), { prefix, cluster: 'test', log }) },
  { stream: 'WORK', open: (prefix: string) => openQueue(js(), { prefix, log }) },
])('what $stream has held longest would go without a word', ({ stream, open }) => {
  it.each([
    ['max_msgs', 1e6],
    ['max_bytes', 1e6],
    ['max_age', 3600e9],
  ])('by a limit: with %s it is refused', async (limit, value) => {
    const prefix = limit.replaceAll('_', '-')
    await open(prefix)
    await js().admin.streams.update(`${prefix}_${stream}`, { [limit]: value })
    const refused = open(prefix)
    await expect(refused).rejects.toThrow(DeclarationMismatchError)
    await expect(refused).rejects.toThrow(`stream ${prefix}_${stream} exists with ${limit} = ${value}`)
  })
})
