import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { Ticker } from '../../streams/nats/mux.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

it('has one timer for all listeners, and none without one', () => {
  const ticker = new Ticker(1000)
  const called: number[] = []
  expect(vi.getTimerCount()).toBe(0)
  const stops = [0, 1, 2].map((listener) => ticker.on(() => void called.push(listener)))
  expect(vi.getTimerCount()).toBe(1)
  vi.advanceTimersByTime(1000)
  expect(called).toEqual([0, 1, 2])
  stops[1]?.()
  vi.advanceTimersByTime(1000)
  expect(called).toEqual([0, 1, 2, 0, 2])
  for (const stop of stops) stop()
  expect(vi.getTimerCount()).toBe(0)
})
