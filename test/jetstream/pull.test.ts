import { expect, it } from 'vitest'
import { connectJetStream, type Delivery, declareConsumer, declareStream, Puller } from '#jetstream'
import { startTestNats } from '../support/servers.ts'

it('keeps every slot busy and never asks for more than there are', async () => {
  await using nats = await startTestNats()
  const js = await connectJetStream({ servers: nats.url, name: 'test' })
  await declareStream(js, { name: 'S', subjects: ['s.>'] })
  await declareConsumer(js, 'S', { durable_name: 'c', ack_policy: 'explicit', ack_wait: 30e9 })
  const subjects = Array.from({ length: 300 }, (_, index) => `s.${index}`)
  for (const subject of subjects) await js.publish(subject, '', {})

  const slots = 7
  const seen: string[] = []
  let inHand = 0
  let most = 0
  const all = Promise.withResolvers<void>()
  const puller = new Puller(js, { stream: 'S', consumer: 'c', free: () => slots - inHand, onMessage: work })

  function work(delivery: Delivery): void {
    most = Math.max(most, ++inHand)
    setTimeout(() => {
      delivery.ack()
      seen.push(delivery.subject)
      inHand--
      puller.poke()
      if (seen.length === subjects.length) all.resolve()
    }, 1)
  }

  await all.promise
  expect([seen.toSorted(), most]).toEqual([subjects.toSorted(), slots])
  await puller.drain()
  await js.close()
}, 10_000)
