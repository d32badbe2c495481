import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { Checkpoint } from '../../bridge/watch-progress.ts'

it('moves only over what is finished, whatever the order of finishing', () => {
  const checkpoint = new Checkpoint<number>()
  const [first, second, third] = [checkpoint.begin(1), checkpoint.begin(2), checkpoint.begin(3)] as const
  third()
  expect(checkpoint.safe).toBeUndefined()
  first()
  expect(checkpoint.safe).toBe(1)
  second()
  expect(checkpoint.safe).toBe(3)
})

it('is not moved by a bookmark behind something unfinished', () => {
  const checkpoint = new Checkpoint<number>()
  const finish = checkpoint.begin(1)
  checkpoint.mark(9)
  expect(checkpoint.safe).toBeUndefined()
  finish()
  expect(checkpoint.safe).toBe(9)
})

it('reaches the end of a list when all of its objects are finished, and nothing before', () => {
  const checkpoint = new Checkpoint<string>()
  const objects = [checkpoint.begin(), checkpoint.begin()] as const
  checkpoint.mark('list')
  objects[1]()
  expect(checkpoint.safe).toBeUndefined()
  objects[0]()
  expect(checkpoint.safe).toBe('list')
})

it('forgets positions, and is still held back by changes that were begun before', () => {
  const checkpoint = new Checkpoint<string>()
  checkpoint.mark('old')
  const finish = checkpoint.begin('older')
  checkpoint.void()
  checkpoint.mark('list')
  expect(checkpoint.safe).toBeUndefined()
  finish()
  expect(checkpoint.safe).toBe('list')
})

it('never passes anything unfinished', () => {
  fc.assert(
    fc.property(fc.shuffledSubarray([...Array(30).keys()]), (finished) => {
      const checkpoint = new Checkpoint<number>()
      const finish = [...Array(30).keys()].map((position) => checkpoint.begin(position))
      for (const position of finished) finish[position]!()
      const unfinished = [...Array(30).keys()].filter((position) => !finished.includes(position))
      const expected = (unfinished[0] ?? 30) - 1
      expect(checkpoint.safe).toBe(expected === -1 ? undefined : expected)
    }),
  )
})
