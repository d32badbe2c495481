import { expect, it } from 'vitest'
import { Stillness } from '../../cli/guard/stillness.ts'

const LOOK_MS = 100

/** What ten looks after a turn find. */
function afterTenLooks({ turning = false, waitsMs = 0 } = {}): number {
  const stillness = new Stillness(LOOK_MS)
  const looks = Array.from({ length: 11 }, (_, look) => stillness.look(turning ? look : 7, 5000 + look * waitsMs))
  return looks.at(-1) ?? 0
}

it('a main thread that turns its event loop does not hang', () => expect(afterTenLooks({ turning: true })).toBe(0))

it('a main thread hangs for as long as it has not turned its event loop', () => expect(afterTenLooks()).toBe(1000))

it('a main thread that waits for a core does not hang: the machine is busy, or its share of it small', () => {
  expect(afterTenLooks({ waitsMs: LOOK_MS })).toBe(0)
  expect(afterTenLooks({ waitsMs: 0.8 * LOOK_MS })).toBeCloseTo(200)
})
