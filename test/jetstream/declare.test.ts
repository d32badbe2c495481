import { expect, it } from 'vitest'
import { connectJetStream, declareConsumer, declareStream, UnknownOutcomeError } from '#jetstream'
import { startLossyProxy } from '../queue/lossy-proxy.ts'
import { useJetStream } from '../support/jetstream.ts'

const { nats } = useJetStream()

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
