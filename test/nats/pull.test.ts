import { expect, it } from 'vitest'
import { connectJetStream, type Delivery, declareConsumer, declareStream, Puller } from '#nats'
import { startTestNats } from '../support/servers.ts'
import { until } from '../support/wait.ts'

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
    })
  }

  await all.promise
  expect([seen.toSorted(), most]).toEqual([subjects.toSorted(), slots])
  await puller.drain()
  await js.close()
})

it('that gives up its requests leaves a message that it gives back to others, and has it when it asks again', async () => {
  await using nats = await startTestNats()
  const js = await connectJetStream({ servers: nats.url, name: 'test' })
  await declareStream(js, { name: 'S', subjects: ['s.>'] })
  await declareConsumer(js, 'S', { durable_name: 'c', ack_policy: 'explicit', ack_wait: 30e9 })
  const waiting = async () => (await js.admin.consumers.info('S', 'c')).num_waiting
  const seen: string[] = []
  let free = 5
  const full = new Puller(js, {
    stream: 'S',
    consumer: 'c',
    free: () => free,
    onMessage(delivery) {
      seen.push('full')
      free = 0
      full.giveUp()
      delivery.nak()
    },
  })
  await until(async () => expect(await waiting()).toBe(1))
  const other = new Puller(js, {
    stream: 'S',
    consumer: 'c',
    free: () => 1,
    onMessage(delivery) {
      seen.push('other')
      delivery.ack()
    },
  })
  await until(async () => expect(await waiting()).toBe(2))
  await js.publish('s.1', '', {})
  await until(() => expect(seen).toContain('other'))
  expect(seen).toEqual(['full', 'other'])
  expect(full.outstanding).toBe(0)
  await other.drain()
  free = 1
  full.poke()
  await js.publish('s.2', '', {})
  await until(() => expect(seen).toEqual(['full', 'other', 'full']))
  await full.drain()
  await js.close()
})
