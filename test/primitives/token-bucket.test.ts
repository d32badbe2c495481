import { expect, it } from 'vitest'
import { TokenBucket } from '#primitives'

function bucketOf(rate: { perSecond: number; burst: number }) {
  const clock = { ms: 1000 }
  return { clock, bucket: new TokenBucket(rate, () => clock.ms) }
}

it('gives a burst at once, and then the rate, in the order of asking', () => {
  const { bucket, clock } = bucketOf({ perSecond: 2, burst: 3 })
  expect([1, 2, 3, 4, 5].map(() => bucket.take())).toEqual([0, 0, 0, 500, 1000])
  clock.ms += 1500
  expect(bucket.take()).toBe(0)
  clock.ms += 60_000
  expect([1, 2, 3, 4].map(() => bucket.take())).toEqual([0, 0, 0, 500])
})

it('turns away who would wait too long, without a token, and spreads when they come back', () => {
  const { bucket, clock } = bucketOf({ perSecond: 2, burst: 1 })
  expect([1, 2, 3].map(() => bucket.takeWithin(1000))).toEqual([{ waitMs: 0 }, { waitMs: 500 }, { waitMs: 1000 }])
  expect([1, 2, 3].map(() => bucket.takeWithin(1000))).toEqual([
    { returnMs: 1500 },
    { returnMs: 2000 },
    { returnMs: 2500 },
  ])
  clock.ms += 500
  expect(bucket.takeWithin(1000)).toEqual({ waitMs: 1000 })
})

it('lets who is turned away come back in five minutes at the latest', () => {
  const { bucket } = bucketOf({ perSecond: 0.001, burst: 1 })
  bucket.take()
  expect(bucket.takeWithin(1000)).toEqual({ returnMs: 300_000 })
})

it('takes several tokens at once, or none of them', () => {
  const { bucket } = bucketOf({ perSecond: 2, burst: 3 })
  expect(bucket.takeWithin(1000, 5)).toEqual({ waitMs: 1000 })
  expect(bucket.takeWithin(1000, 2)).toEqual({ returnMs: 2000 })
  expect(bucket.take()).toBe(1500)
})
