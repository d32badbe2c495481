import { expect, it } from 'vitest'
import { forEachAtMost, mapAtMost } from '#primitives'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

async function* generated(count: number, closed: () => void = () => undefined): AsyncGenerator<number> {
  try {
    for (let item = 0; item < count; item++) yield await Promise.resolve(item)
  } finally {
    closed()
  }
}

/** Counts the calls in progress. */
function counted() {
  const seen = { now: 0, most: 0, pairs: [] as [number, number][] }
  const act = async (item: number, index: number) => {
    seen.pairs.push([item, index])
    seen.most = Math.max(seen.most, ++seen.now)
    await turn()
    seen.now--
  }
  return { seen, act }
}

for (const [name, items] of [
  ['an array', () => Array.from({ length: 10 }, (_, index) => index)],
  ['a generator', () => generated(10)],
] as const) {
  it(`acts on each item of ${name} once, in order, with at most so many under way`, async () => {
    const { seen, act } = counted()
    expect(await forEachAtMost(3, items(), act)).toBe(10)
    expect(seen).toEqual({ now: 0, most: 3, pairs: Array.from({ length: 10 }, (_, index) => [index, index]) })
  })
}

it('a slow item holds back only its own place', async () => {
  const slow = Promise.withResolvers<void>()
  const done: number[] = []
  const all = forEachAtMost(2, generated(5), async (item) => {
    if (item === 0) await slow.promise
    if (done.push(item) === 4) slow.resolve()
  })
  await all
  expect(done).toEqual([1, 2, 3, 4, 0])
})

it('begins no action after a failure, and closes the generator', async () => {
  const closed = Promise.withResolvers<void>()
  const begun: number[] = []
  const act = async (item: number) => {
    begun.push(item)
    await turn()
    if (item === 1) throw new Error('item 1')
  }
  await expect(forEachAtMost(2, generated(100, closed.resolve), act)).rejects.toThrow('item 1')
  const atFailure = begun.length
  await closed.promise
  await turn()
  expect(begun).toHaveLength(atFailure)
  expect(atFailure).toBeLessThanOrEqual(3)
})

it('gives a failure of the generator', async () => {
  async function* broken() {
    yield 1
    throw new Error('not readable')
  }
  await expect(forEachAtMost(4, broken(), turn)).rejects.toThrow('not readable')
})

it('gives results in the order of the items, whichever ends first', async () => {
  const ends = [3, 1, 2]
  const results = await mapAtMost(3, ends, async (turns) => {
    for (let left = turns; left > 0; left--) await turn()
    return turns * 10
  })
  expect(results).toEqual([30, 10, 20])
  expect(await mapAtMost(3, [], async () => 1)).toEqual([])
})
