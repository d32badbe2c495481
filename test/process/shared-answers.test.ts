import { expect, it } from 'vitest'
import { shared } from '../../cli/process/metrics.ts'

/** How often is asked within ten minutes, once a second, where an answer takes so long. */
async function askedIn(tookMs: number): Promise<number> {
  let time = 0
  let asked = 0
  const ask = shared(
    async () => {
      asked++
      time += tookMs
    },
    () => time,
  )
  for (let second = 0; second < 600; second++) {
    time = Math.max(time, second * 1001)
    await ask()
  }
  return asked
}

it('counting takes a hundredth of the time at most, and happens once a minute at least', async () => {
  expect(await askedIn(1)).toBe(600)
  for (const tookMs of [28, 100, 500]) expect((await askedIn(tookMs)) * tookMs).toBeLessThanOrEqual(6100)
  expect(await askedIn(700)).toBeGreaterThanOrEqual(10)
})

it('an answer that failed is not shared for longer than a second', async () => {
  let time = 0
  let asked = 0
  const ask = shared(
    async () => {
      asked++
      time += 500
      throw new Error('no answer')
    },
    () => time,
  )
  for (; time < 10_000; time += 1000) await ask().catch(() => undefined)
  expect(asked).toBeGreaterThan(5)
})
