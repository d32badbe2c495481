import { expect, it } from 'vitest'
import { KeyedLimiter, Semaphore } from '../../bridge/change-pipeline.ts'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

async function acquireAll(semaphore: Semaphore, names: string[]) {
  const holders: string[] = []
  const releases = new Map<string, () => void>()
  for (const name of names)
    void semaphore.acquire().then((release) => {
      holders.push(name)
      releases.set(name, release)
    })
  await Promise.resolve()
  await Promise.resolve()
  return { holders, releases }
}

it('a semaphore has room for so many, and lets in who waits in order', async () => {
  const { holders, releases } = await acquireAll(new Semaphore(2), ['a', 'b', 'c', 'd'])
  expect(holders).toEqual(['a', 'b'])
  releases.get('b')?.()
  releases.get('b')?.()
  await turn()
  expect(holders).toEqual(['a', 'b', 'c'])
})

it('a semaphore lets in so many in a turn of the event loop, and the others in the next ones', async () => {
  const { holders } = await acquireAll(new Semaphore(10, { perTurn: 2 }), ['a', 'b', 'c', 'd', 'e'])
  expect(holders).toEqual(['a', 'b'])
  await turn()
  expect(holders).toEqual(['a', 'b', 'c', 'd'])
  await turn()
  expect(holders).toHaveLength(5)
})

it('a keyed limiter runs tasks of one key in their order and those of others beside them', async () => {
  const limiter = new KeyedLimiter(10)
  const ran: string[] = []
  const gate = Promise.withResolvers<void>()
  await limiter.admit('a', () => gate.promise.then(() => void ran.push('a1')))
  await limiter.admit('a', async () => void ran.push('a2'))
  await limiter.admit('b', async () => void ran.push('b1'))
  await Promise.resolve()
  gate.resolve()
  await limiter.idle()
  expect(ran).toEqual(['b1', 'a1', 'a2'])
})

it('a keyed limiter holds back who feeds it when it is full, even by one key', async () => {
  const limiter = new KeyedLimiter(2)
  const gate = Promise.withResolvers<void>()
  await limiter.admit('a', () => gate.promise)
  await limiter.admit('a', async () => {})
  let admitted = false
  const third = limiter.admit('c', async () => {}).then(() => (admitted = true))
  await turn()
  expect(admitted).toBe(false)
  expect(limiter.active).toBe(2)
  gate.resolve()
  await third
  await limiter.idle()
  expect(limiter.active).toBe(0)
})
