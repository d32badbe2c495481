import { describe, expect, it } from 'vitest'
import { permit, VALID_MS } from '../../streams/queue/run-rate.ts'
import { seededRandom } from '../support/random.ts'
import { tooMany } from './rate-law.ts'

const RATES = [
  { perSecond: 0.5, burst: 1 },
  { perSecond: 1, burst: 2 },
  { perSecond: 5, burst: 1 },
  { perSecond: 20, burst: 20 },
  { perSecond: 100, burst: 3 },
  { perSecond: 1000, burst: 50 },
]

const random = seededRandom('processes of permits.test.ts')
const upTo = (most: number) => random() * most

/** Half of the round trip with which a process has measured the server's clock. */
const CLOCK_ERROR_MS = 10

interface Habits {
  /** How late a run begins after its permit. */
  lateMs: () => number
  wanted: () => number
  /** The pause after a request that permitted something. */
  pauseMs: () => number
  /** Whether the process dies with its permits. */
  dies: () => boolean
}

const lastingMs = (perSecond: number): number => 2000 + 200_000 / perSecond

/** Processes that share a rate for as many runs, in virtual time. Returns when runs begin. */
function startsOf(rate: { perSecond: number; burst: number }, processes: number, habits: Habits): number[] {
  const starts: number[] = []
  const each = Array.from({ length: processes }, () => ({
    at: upTo(100),
    error: upTo(2 * CLOCK_ERROR_MS) - CLOCK_ERROR_MS,
  }))
  const end = lastingMs(rate.perSecond)
  let usedUntil = 0
  for (;;) {
    const next = each.reduce((one, other) => (other.at < one.at ? other : one))
    if (next.at > end) return starts
    const answer = permit({ usedUntil, now: next.at + next.error, wanted: habits.wanted() }, rate)
    if ('againMs' in answer) {
      next.at += answer.againMs
      continue
    }
    usedUntil = answer.usedUntil
    if (habits.dies()) next.error = upTo(2 * CLOCK_ERROR_MS) - CLOCK_ERROR_MS
    else for (let run = 0; run < answer.permitted; run++) starts.push(next.at + habits.lateMs())
    next.at += habits.pauseMs()
  }
}

describe.each(RATES)('a rate of $perSecond a second with a burst of $burst', (rate) => {
  it.each([1, 3])(
    'is not exceeded in any window by %i processes, however late each run begins and whichever die',
    (processes) => {
      for (const late of [() => 0, () => upTo(VALID_MS), () => (random() < 0.5 ? 0 : VALID_MS)])
        for (const pauseMs of [() => 0, () => upTo(3000 / rate.perSecond)])
          for (const share of [0, 0.2]) {
            const habits = {
              lateMs: late,
              wanted: () => 1 + Math.floor(upTo(30)),
              pauseMs,
              dies: () => random() < share,
            }
            const starts = startsOf(rate, processes, habits)
            expect(starts.length).toBeGreaterThan(2)
            expect(tooMany(starts, rate).slice(0, 3)).toEqual([])
          }
    },
  )
})

it('is used in full by processes that always have keys, unless its burst is too small for late runs', () => {
  const greedy = { lateMs: () => 1, wanted: () => 30, pauseMs: () => 1, dies: () => false }
  for (const [perSecond, burst, share] of [
    [1, 2, 0.95],
    [5, 5, 0.95],
    [100, 100, 0.95],
    [1000, 1000, 0.9],
    [5, 1, 0.45],
  ] as const) {
    const starts = startsOf({ perSecond, burst }, 3, greedy)
    expect(starts.length, `${perSecond} a second, burst ${burst}`).toBeGreaterThan(
      (share * perSecond * lastingMs(perSecond)) / 1000,
    )
  }
})

it('is paid at the rate that holds now: a rate that was lower before, or a clock that was set back, holds up no run for long', () => {
  const rate = { perSecond: 10, burst: 10 }
  const answer = permit({ usedUntil: 86_400_000, now: 1000, wanted: 1 }, rate)
  expect('againMs' in answer && answer.againMs).toBeLessThanOrEqual(200)
})
