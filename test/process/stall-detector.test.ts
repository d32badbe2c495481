import { expect, it } from 'vitest'
import { type LoopSample, StallDetector } from '../../cli/process/isolation/stall.ts'

const LOOK_MS = 100

/** What the last of so many looks finds, of a main thread that turned its event loop last before the first of them. */
function after(looks: number, at: (look: number) => Partial<LoopSample>): number {
  const detector = new StallDetector(LOOK_MS)
  const found = Array.from({ length: looks + 1 }, (_, look) =>
    detector.look({ turns: 7, atMs: 5000 + look * LOOK_MS, waitedMs: 300, ...at(look) }),
  )
  return found.at(-1) ?? 0
}

it('a main thread that turns its event loop does not hang', () => {
  expect(after(10, (look) => ({ turns: look }))).toBe(0)
  expect(after(10, (look) => ({ turns: look < 9 ? 7 : 8 }))).toBe(LOOK_MS)
})

it('a main thread hangs for as long as it has not turned its event loop', () => {
  expect(after(10, () => ({}))).toBe(1000)
})

it('a main thread that waits for a core does not hang: the machine is busy, or its share of it small', () => {
  expect(after(10, (look) => ({ waitedMs: look * LOOK_MS }))).toBe(0)
})

it('a main thread hangs with a small share of a core too, only later: looks that come late, and waiting, take nothing back', () => {
  const late = (look: number) => ({ atMs: look * 3 * LOOK_MS, waitedMs: look * 2.7 * LOOK_MS })
  expect(after(100, late)).toBeCloseTo(100 * 0.3 * LOOK_MS)
})

it('a process that was stopped, and a machine that slept, do not hang', () => {
  expect(after(1, (look) => ({ atMs: look * 3_600_000 }))).toBe(LOOK_MS)
})
