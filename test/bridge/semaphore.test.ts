import { expect, it } from 'vitest'
import { Semaphore } from '../../bridge/change-pipeline.ts'

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

it('has room for so many, and lets in who waits in order', async () => {
  const { holders, releases } = await acquireAll(new Semaphore(2), ['a', 'b', 'c', 'd'])
  expect(holders).toEqual(['a', 'b'])
  releases.get('b')?.()
  releases.get('b')?.()
  await turn()
  expect(holders).toEqual(['a', 'b', 'c'])
})

it('lets in so many in a turn of the event loop, and the others in the next ones', async () => {
  const { holders } = await acquireAll(new Semaphore(10, { perTurn: 2 }), ['a', 'b', 'c', 'd', 'e'])
  expect(holders).toEqual(['a', 'b'])
  await turn()
  expect(holders).toEqual(['a', 'b', 'c', 'd'])
  await turn()
  expect(holders).toHaveLength(5)
})
