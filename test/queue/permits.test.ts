import { describe, expect, it } from 'vitest'
import { MOST_LATE_MS, permit, VALID_MS } from '../../streams/queue/run-rate.ts'
import { seededRandom } from '../support/random.ts'
import { tooMany } from './rate-law.ts'

interface Rate {
  perSecond: number
  burst: number
}

const RATES: readonly Rate[] = [
  { perSecond: 0.5, burst: 1 },
  { perSecond: 1, burst: 2 },
  { perSecond: 5, burst: 1 },
  { perSecond: 20, burst: 20 },
  { perSecond: 100, burst: 3 },
  { perSecond: 1000, burst: 50 },
]

const random = seededRandom('processes of permits.test.ts')
const upTo = (most: number) => random() * most
const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)] as T

const UNUSED = { usedUntil: 0, storedAt: 0 }

/** Asks at a time that is known exactly. */
const askAt = (state: { usedUntil: number; storedAt: number }, now: number, rate: Rate, wanted = 1) =>
  permit(state, { wanted, now, beginBy: now + VALID_MS }, rate)

interface Habits {
  /** The part of the time for which a permit is valid after which its run begins. */
  late: () => number
  validMs: () => number
  wanted: () => number
  /** The pause after a request that permitted something. */
  pauseMs: () => number
  /** Whether the process dies with its permits. */
  dies: () => boolean
  /** How many of its permits a process gives back. */
  unused: (permitted: number) => number
  /** The greatest error of a process's clock. */
  errorMs: () => number
}

const PUNCTUAL: Habits = {
  late: () => 0.005,
  validMs: () => VALID_MS,
  wanted: () => 30,
  pauseMs: () => 1,
  dies: () => false,
  unused: () => 0,
  errorMs: () => 0,
}

const lastingMs = (perSecond: number): number => 30_000 + 200_000 / perSecond

/** Processes that share a rate for as many runs, in virtual time. Returns when runs begin. */
function startsOf(rate: Rate, processes: number, habits: Habits): number[] {
  const starts: number[] = []
  const clock = () => {
    const most = habits.errorMs()
    return { most, error: upTo(2 * most) - most }
  }
  const each = Array.from({ length: processes }, () => ({ at: upTo(100), clock: clock() }))
  const end = lastingMs(rate.perSecond)
  let state = UNUSED
  for (;;) {
    const next = each.reduce((one, other) => (other.at < one.at ? other : one))
    if (next.at > end) return starts
    const { most, error } = next.clock
    const time = next.at + error
    const validMs = habits.validMs()
    const answer = permit(state, { wanted: habits.wanted(), now: time - most, beginBy: time + most + validMs }, rate)
    if ('againMs' in answer) {
      next.at += answer.againMs
      continue
    }
    const unused = habits.unused(answer.permitted)
    // Nothing was charged for since, as in SharedRate.giveBack.
    state = { ...answer.state, usedUntil: answer.state.usedUntil - (unused * 1000) / rate.perSecond }
    if (habits.dies()) next.clock = clock()
    else for (let run = unused; run < answer.permitted; run++) starts.push(next.at + habits.late() * validMs)
    next.at += habits.pauseMs()
  }
}

describe.each(RATES)('a rate of $perSecond a second with a burst of $burst', (rate) => {
  it.each([1, 3])(
    'is not exceeded in any window by %i processes, however late each run begins, whichever die and what is given back',
    (processes) => {
      for (const late of [() => 0, () => random(), () => Number(random() < 0.5)])
        for (const pauseMs of [() => 0, () => upTo(3000 / rate.perSecond)])
          for (const share of [0, 0.2]) {
            const habits = {
              late,
              validMs: () => (share === 0 ? VALID_MS : VALID_MS * (1 + upTo(9))),
              wanted: () => 1 + Math.floor(upTo(30)),
              pauseMs,
              dies: () => random() < share,
              unused: (permitted: number) => (random() < share ? Math.floor(upTo(permitted + 1)) : 0),
              errorMs: () => oneOf([0, 10, 300]),
            }
            const starts = startsOf(rate, processes, habits)
            expect(starts.length).toBeGreaterThan(2)
            expect(tooMany(starts, rate).slice(0, 3)).toEqual([])
          }
    },
  )

  it('permits its burst in one moment when it was not used before, but for the runs of the time for which permits are valid', () => {
    let state = UNUSED
    let permitted = 0
    for (;;) {
      const answer = askAt(state, 1e9, rate)
      if ('againMs' in answer) break
      permitted += answer.permitted
      state = answer.state
    }
    const late = Math.ceil((rate.perSecond * VALID_MS) / 1000)
    expect(permitted).toBeGreaterThanOrEqual(Math.max(1, rate.burst - late))
    expect(permitted).toBeLessThanOrEqual(rate.burst)
  })
})

it('is used in full by processes that always have keys, unless its burst is too small for late runs', () => {
  for (const [perSecond, burst, share] of [
    [1, 2, 0.95],
    [5, 5, 0.95],
    [100, 100, 0.95],
    [1000, 1000, 0.9],
    [5, 1, 0.45],
  ] as const) {
    const starts = startsOf({ perSecond, burst }, 3, PUNCTUAL)
    expect(starts.length, `${perSecond} a second, burst ${burst}`).toBeGreaterThan(
      (share * perSecond * lastingMs(perSecond)) / 1000,
    )
  }
})

it('holds as it is now, whatever rates, bursts and clocks were before: the next run is permitted in the time of one', () => {
  const somewhere = (least: number, most: number) => least * (most / least) ** random()
  const anyRate = (): Rate => ({ perSecond: somewhere(0.001, 1000), burst: Math.ceil(somewhere(1, 10_000)) })
  for (let histories = 200; histories > 0; histories--) {
    let now = 1e12
    let state = UNUSED
    let rate = anyRate()
    for (let changes = 6; changes > 0; changes--) {
      // What was used before the change, and how long ago.
      for (let step = upTo(50); step > 0; step--) {
        const answer = askAt(state, now, rate, 1 + Math.floor(upTo(10_000)))
        if ('state' in answer) state = answer.state
        now += upTo(oneOf([0, 100, 100_000]))
      }
      // The clock of NATS is set, mostly not.
      now += oneOf([0, 0, 0, 3_600_000, -3_600_000])
      rate = { ...rate, ...oneOf([anyRate(), { perSecond: anyRate().perSecond }, { burst: anyRate().burst }]) }
      const changedAt = now
      let answer = askAt(state, now, rate)
      for (let tries = 0; 'againMs' in answer && tries < 100; tries++) {
        now += answer.againMs
        answer = askAt(state, now, rate)
      }
      expect({ rate, answer }).toMatchObject({ answer: { permitted: 1 } })
      expect(now - changedAt).toBeLessThanOrEqual(1000 / rate.perSecond + 2 * MOST_LATE_MS)
    }
  }
})
