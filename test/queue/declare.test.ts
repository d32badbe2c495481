import { expect, it, vi } from 'vitest'
import { connectJetStream, type JetStream } from '#nats'
import { openQueue } from '#queue'
import { TIMERS } from '../../streams/queue/wire.ts'
import { silent } from '../support/silent.ts'
import { FN, freshPrefix, useTestNats } from './support.ts'

const { nats, open } = useTestNats()
const TIMERS_CONSUMERS = ['_timers-high', '_timers-low']

async function consumersOf(js: JetStream, stream: string): Promise<string[]> {
  const found = await Array.fromAsync(js.admin.consumers.list(stream))
  return found.map(({ name }) => name).sort()
}

it('the consumers of sleeping timers are declared once, however many Reconcilers a process has', async () => {
  await using js = await connectJetStream({ servers: nats().url, name: 'test' })
  const info = vi.spyOn(js.admin.consumers, 'info')
  const queue = await openQueue(js, { prefix: freshPrefix(), log: silent })
  await Promise.all(['a', 'b'].map((reconciler) => queue.declare(reconciler)))
  await queue.declare('c')
  const asked = info.mock.calls.map(([, consumer]) => consumer).sort()
  const own = ['a-high', 'a-low', 'b-high', 'b-low', 'c-high', 'c-low']
  expect(asked).toEqual([...TIMERS_CONSUMERS, ...own])
  expect(await consumersOf(js, queue.stream)).toEqual([...TIMERS_CONSUMERS, ...own])
})

it('a failure to declare the consumers of sleeping timers is the failure of that Reconciler alone: the next one declares them', async () => {
  await using js = await connectJetStream({ servers: nats().url, name: 'test' })
  const queue = await openQueue(js, { prefix: freshPrefix(), log: silent })
  const info = vi.spyOn(js.admin.consumers, 'info').mockRejectedValueOnce(new Error('not now'))
  await expect(queue.declare('a')).rejects.toThrow('not now')
  info.mockRestore()
  await queue.declare('b')
  expect(await consumersOf(js, queue.stream)).toEqual([...TIMERS_CONSUMERS, 'b-high', 'b-low'])
})

it('consumers of sleeping timers that somebody has deleted are declared again by their janitor', async () => {
  await using test = await open()
  for (const consumer of TIMERS_CONSUMERS) await test.js.admin.consumers.delete(test.queue.stream, consumer)
  await test.queue.janitor(TIMERS).pass()
  const own = [`${FN}-high`, `${FN}-low`]
  expect(await consumersOf(test.js, test.queue.stream)).toEqual([...TIMERS_CONSUMERS, ...own])
})
