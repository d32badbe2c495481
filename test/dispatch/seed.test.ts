import { expect, it } from 'vitest'
import { drawSeed } from '../../dispatch/run/seed.ts'

it('no two runs have one seed, however many there are', () => {
  const seeds = Array.from({ length: 1000 }, drawSeed)
  expect(new Set(seeds).size).toBe(1000)
  expect(seeds.filter((seed) => !/^[\w-]{32}$/.test(seed))).toEqual([])
})
