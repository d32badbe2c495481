import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { seedsFrom } from '../../dispatch/run/dependencies.ts'

it('no two runs have one seed, however many there are', () => {
  const seed = seedsFrom(randomBytes)
  const seeds = Array.from({ length: 1000 }, seed)
  expect(new Set(seeds).size).toBe(1000)
  expect(seeds.filter((one) => !/^[\w-]{32}$/.test(one))).toEqual([])
})

it('the bytes that a process is given decide its seeds, whatever another dispatcher has drawn', () => {
  const zeros = (size: number) => Buffer.alloc(size)
  const other = seedsFrom(randomBytes)
  other()
  expect(seedsFrom(zeros)()).toBe('A'.repeat(32))
})
