import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { consequenceOf } from '#reconcile'
import {
  Behaviour,
  type Ending,
  LONGEST_WAIT_MS,
  LOST_MS,
  type Place,
  Places,
  TURN_MS,
} from '../../cli/process/isolation/places.ts'
import { silent as log } from '../support/silent.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const settled = () => vi.advanceTimersByTimeAsync(0)

/** Calls of functions that end when the test says so. */
function world() {
  const places = new Places()
  /** How a call goes on: its place, or its error. Undefined: it waits. */
  const call = (of: Behaviour, suspect = true, signal = new AbortController().signal, object = 'shop/a') => {
    const begun: { place?: Place; error?: Error } = {}
    const place = places.take(of, object, suspect)
    if (place !== undefined) return { ...begun, place }
    places.wait(of, object, { signal, log, suspect }).then(
      (given) => (begun.place = given),
      (error: Error) => (begun.error = error),
    )
    return begun
  }
  const end = (of: Behaviour, ending: Ending, object = 'shop/a') => places.free(of, object, ending)
  return { places, call, end }
}

/** A function that has come back here. */
function working(places: Places): Behaviour {
  const of = new Behaviour()
  places.cameBack(of)
  return of
}

/** A function whose call apart has ended its process. */
function lost({ call, end }: ReturnType<typeof world>, of = new Behaviour()): Behaviour {
  expect(call(of).place).toBe('apart')
  end(of, 'lost')
  return of
}

describe('a call', () => {
  it('that is not suspected is made here', () => {
    expect(world().call(new Behaviour(), false).place).toBe('here')
  })

  it('that is suspected is never made here while the function is unknown, however many functions there are', async () => {
    const { call, end } = world()
    const functions = Array.from({ length: 8 }, () => new Behaviour())
    const calls = functions.flatMap((of) => [call(of), call(of)])
    expect(calls.map(({ place }) => place)).not.toContain('here')
    for (let round = 0; round < 16; round++) {
      const of = functions.find(({ isApart }) => isApart)
      if (of !== undefined) end(of, 'lost')
      await settled()
    }
    expect(calls.map(({ place }) => place)).toEqual(Array(16).fill('apart'))
  })

  it('is the only one of its function that is apart', async () => {
    const { call, end } = world()
    const of = new Behaviour()
    const [first, second] = [call(of), call(of)]
    expect([first.place, second.place]).toEqual(['apart', undefined])
    end(of, 'lost')
    await settled()
    expect(second.place).toBe('apart')
  })

  it('of a function that has not come back from there is apart also if it is not suspected', async () => {
    const given = world()
    const of = lost(given)
    const [first, second] = [given.call(of, false), given.call(of, false)]
    expect([first.place, second.place]).toEqual(['apart', undefined])
    given.end(of, 'back')
    await settled()
    expect(second.place).toBe('here')
  })

  it('that is not suspected does not wait for places where any call of the function has come back', async () => {
    const given = world()
    const of = lost(given)
    const hanging = Array.from({ length: 3 }, () => new Behaviour())
    for (const other of hanging) expect(given.call(other).place).toBe('apart')
    const waiting = given.call(of, false)
    await settled()
    expect(waiting.place).toBeUndefined()
    given.places.cameBack(of)
    await settled()
    expect(waiting.place).toBe('here')
    expect(given.call(of, false).place).toBe('here')
    expect(given.call(of, true).place).toBeUndefined()
  })
})

describe('many suspects of one function', () => {
  it('run here when they have waited too long and one has come back from apart, since their process was killed', async () => {
    const { call, end } = world()
    const of = new Behaviour()
    const calls = Array.from({ length: 100 }, () => call(of))
    end(of, 'back')
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS - 1)
    expect(calls.map(({ place }) => place)).toEqual(['apart', 'apart', ...Array(98).fill(undefined)])
    await vi.advanceTimersByTimeAsync(1)
    expect(calls.map(({ place }) => place)).toEqual(['apart', 'apart', ...Array(98).fill('here')])
  })

  it('run apart one after the other while their calls come back soon: one of them may have ended the process', async () => {
    const { call, end } = world()
    const of = new Behaviour()
    const calls = Array.from({ length: 20 }, () => call(of))
    for (let count = 0; count < 20; count++) {
      end(of, 'back')
      await settled()
    }
    expect(calls.map(({ place }) => place)).toEqual(Array(20).fill('apart'))
  })

  it('run apart one after the other from the first that has not come back', async () => {
    const given = world()
    const of = lost(given)
    const calls = Array.from({ length: 10 }, () => given.call(of))
    for (let count = 0; count < 10; count++) {
      given.end(of, 'back', 'shop/other')
      await settled()
    }
    expect(calls.map(({ place }) => place)).toEqual(Array(10).fill('apart'))
  })

  it('run here again when the object whose call was lost has come back, and not before', async () => {
    const given = world()
    const of = lost(given)
    expect([of.isLost, of.hasLost('shop/a'), of.hasLost('shop/other')]).toEqual([true, true, false])
    const calls = Array.from({ length: 4 }, () => given.call(of))
    given.end(of, 'back', 'shop/other')
    await settled()
    expect(calls.map(({ place }) => place)).toEqual(['apart', 'apart', undefined, undefined])
    given.end(of, 'back', 'shop/a')
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS)
    expect(of.isLost).toBe(false)
    expect(calls.map(({ place }) => place)).toEqual(['apart', 'apart', 'apart', 'here'])
  })

  it('run here again when the object whose call was lost has not been called for an hour: it may be gone', async () => {
    const given = world()
    const of = lost(given)
    await vi.advanceTimersByTimeAsync(LOST_MS)
    expect(of.isLost).toBe(true)
    await vi.advanceTimersByTimeAsync(1)
    expect(of.isLost).toBe(false)
  })

  it('run here only beside one that is apart: places of others are no reason', async () => {
    const given = world()
    const of = working(given.places)
    expect(given.call(of).place).toBe('apart')
    given.end(of, 'back')
    const hanging = [...Array.from({ length: 3 }, () => new Behaviour()), working(given.places)]
    for (const other of hanging) expect(given.call(other).place).toBe('apart')
    const waiting = given.call(of)
    await settled()
    expect(waiting.place).toBeUndefined()
  })
})

describe('places', () => {
  it('are given to the function that has had none for the longest time, not to the one with the most calls', async () => {
    const given = world()
    const [a, b, c, last] = Array.from({ length: 4 }, () => new Behaviour()) as [
      Behaviour,
      Behaviour,
      Behaviour,
      Behaviour,
    ]
    for (const of of [a, b, c]) expect(given.call(of).place).toBe('apart')
    const more = Array.from({ length: 50 }, () => [a, b, c].map((of) => given.call(of))).flat()
    const late = given.call(last)
    given.end(b, 'lost')
    await settled()
    expect([late.place, ...more.map(({ place }) => place)]).toEqual(['apart', ...Array(150).fill(undefined)])
    given.end(c, 'lost')
    await settled()
    // Its turn was before that of the fourth, and after that of the first, which has one.
    expect(more.filter(({ place }) => place !== undefined)).toHaveLength(1)
    expect([a.isApart, b.isApart, c.isApart, last.isApart]).toEqual([true, true, false, true])
  })

  it('of functions that never come back are three of four: a function that works gets through at once', () => {
    const given = world()
    const bad = Array.from({ length: 3 }, () => lost(given))
    for (const of of bad) expect(given.call(of).place).toBe('apart')
    expect(given.call(new Behaviour()).place).toBeUndefined()
    expect(given.call(working(given.places)).place).toBe('apart')
  })

  it('come round to each of ten functions that never come back', async () => {
    const given = world()
    const bad = Array.from({ length: 10 }, () => new Behaviour())
    const turns = new Map(bad.map((of) => [of, 0]))
    for (let round = 0; round < 100; round++) {
      for (const of of bad) given.call(of)
      await settled()
      for (const of of bad.filter(({ isApart }) => isApart)) {
        turns.set(of, (turns.get(of) ?? 0) + 1)
        given.end(of, 'lost')
      }
    }
    expect(Math.max(...turns.values()) - Math.min(...turns.values())).toBeLessThanOrEqual(1)
  })
})

describe('a wait', () => {
  it('that is too long ends, and the next place is kept for the function until its key has run again', async () => {
    const given = world()
    const hanging = Array.from({ length: 3 }, () => new Behaviour())
    for (const of of hanging) expect(given.call(of).place).toBe('apart')
    const of = new Behaviour()
    const waiting = given.call(of)
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS)
    expect(waiting.error).toBeInstanceOf(Error)
    given.end(hanging[1]!, 'lost')
    // Whoever comes meanwhile has had a turn since.
    const others = hanging.map((other) => given.call(other))
    await settled()
    expect(others.map(({ place }) => place)).toEqual([undefined, undefined, undefined])
    expect(given.call(of).place).toBe('apart')
    given.end(of, 'lost')
    await settled()
    expect(others.filter(({ place }) => place === 'apart')).toHaveLength(1)
  })

  it('keeps the turn no longer than the key may take, as it may run in another process', async () => {
    const given = world()
    const hanging = Array.from({ length: 3 }, () => new Behaviour())
    for (const of of hanging) given.call(of)
    given.call(new Behaviour())
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS)
    given.end(hanging[1]!, 'lost')
    await vi.advanceTimersByTimeAsync(TURN_MS - LONGEST_WAIT_MS / 2)
    const late = given.call(hanging[1]!)
    expect(late.place).toBeUndefined()
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS - 1)
    expect(late.place).toBe('apart')
  })

  it('of functions that never come back keeps no place from one that works', async () => {
    const given = world()
    for (const _ of Array(3)) given.call(new Behaviour())
    for (const _ of Array(5)) given.call(new Behaviour())
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS)
    const of = working(given.places)
    expect(given.call(of).place).toBe('apart')
    given.end(of, 'back')
    expect(given.call(of).place).toBe('apart')
  })

  it('that is too long sets the key back, without a failure and without a word on its object', async () => {
    const { call, end } = world()
    const of = new Behaviour()
    call(of)
    const waiting = call(of)
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS - 1)
    expect(waiting.error).toBeUndefined()
    await vi.advanceTimersByTimeAsync(1)
    const backoff = { initialSeconds: 1, maxSeconds: 60 } as never
    const { finish, report } = consequenceOf(waiting.error, { attempt: 3, backoff, random: () => 0 })
    expect(finish).toMatchObject({ kind: 'error', isCounted: false })
    const { afterMs } = (finish as { retryAt: { afterMs: number } }).retryAt
    expect(afterMs).toBeGreaterThanOrEqual(20_000)
    expect(afterMs).toBeLessThan(40_000)
    expect(report).toBeUndefined()
    end(of, 'back')
    await settled()
    expect([waiting.place, of.isApart]).toEqual([undefined, false])
  })

  it('that is too long names the object that has ended or blocked its process, and the one that is apart now', async () => {
    const given = world()
    const { signal } = new AbortController()
    const of = new Behaviour()
    given.call(of, true, signal, 'shop/first')
    const unknown = given.call(of, true, signal, 'shop/other')
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS)
    expect(unknown.error?.message).toBe(
      'the function is not called yet: runs of it have ended or blocked their process, so it runs in one of its own, and that is busy with shop/first',
    )
    given.end(of, 'lost', 'shop/loops')
    given.call(of, true, signal, 'shop/third')
    const known = given.call(of, true, signal, 'shop/other')
    await vi.advanceTimersByTimeAsync(LONGEST_WAIT_MS)
    expect(known.error?.message).toBe(
      'the function is not called yet: its run for shop/loops has ended or blocked its process, so it runs in one of its own, and that is busy with shop/third',
    )
  })

  it('ends with the signal of the call', async () => {
    const { call } = world()
    const of = new Behaviour()
    call(of)
    const lease = new AbortController()
    const [waiting, late] = [call(of, true, lease.signal), call(of, true, AbortSignal.abort(new Error('too late')))]
    lease.abort(new Error('the lease is over'))
    await settled()
    expect([waiting.error?.message, late.error?.message]).toEqual(['the lease is over', 'too late'])
  })
})
