import { expect, it } from 'vitest'
import { surviveOutage } from './outage.ts'
import { startWorld } from './world.ts'

/** Late enough for both to wait by then, on a busy machine too. */
const FIRST_DUE_MS = 9000
const BACK_MS = 9100
/** Late enough for everything to be back before it. */
const SECOND_DUE_MS = 40_000

it('fires what was due while everything was dead, and what waits still, at its time and once', async () => {
  await using world = await startWorld()
  const times = { missedMs: FIRST_DUE_MS, backMs: BACK_MS, waitingMs: SECOND_DUE_MS }
  const { due, before, podsBetween, created } = await surviveOutage(world, times)
  expect(before).toEqual(['PENDING', 'PENDING'])
  expect(podsBetween).toBe(0)
  expect([created.missed.length, created.waiting.length]).toEqual([1, 1])
  expect(created.missed[0], 'the one whose time had passed went first').toBeLessThan(Number(created.waiting[0]))
  expect(created.waiting[0]).toBeGreaterThanOrEqual(due.waiting)
})
