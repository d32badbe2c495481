import { expect, it } from 'vitest'
import { KeyedLimiter } from '../../bridge/change-pipeline.ts'

const deferred = () => Promise.withResolvers<void>()

it('runs tasks of one key in their order and those of others beside them', async () => {
  const limiter = new KeyedLimiter(10)
  const ran: string[] = []
  const gate = deferred()
  await limiter.admit('a', () => gate.promise.then(() => void ran.push('a1')))
  await limiter.admit('a', async () => void ran.push('a2'))
  await limiter.admit('b', async () => void ran.push('b1'))
  await Promise.resolve()
  gate.resolve()
  await limiter.idle()
  expect(ran).toEqual(['b1', 'a1', 'a2'])
})

it('holds back who feeds it when it is full, even by one key', async () => {
  const limiter = new KeyedLimiter(2)
  const gate = deferred()
  await limiter.admit('a', () => gate.promise)
  await limiter.admit('a', async () => {})
  let admitted = false
  const third = limiter.admit('c', async () => {}).then(() => (admitted = true))
  await new Promise(setImmediate)
  expect(admitted).toBe(false)
  expect(limiter.active).toBe(2)
  gate.resolve()
  await third
  await limiter.idle()
  expect(limiter.active).toBe(0)
})
