import { expect, it } from 'vitest'
import { endedWithin, pause, unlessAborted } from '#primitives'

const never = () => new Promise<never>(() => {})

it('gives the value or the error of the work', async () => {
  const { signal } = new AbortController()
  for (const given of [signal, undefined]) {
    expect(await unlessAborted(Promise.resolve(1), given)).toBe(1)
    await expect(unlessAborted(Promise.reject(new Error('no')), given)).rejects.toThrow('no')
  }
})

it('rejects with the reason of the signal, however long the work takes', async () => {
  const stop = new AbortController()
  const waiting = unlessAborted(never(), stop.signal)
  stop.abort(new Error('stopped'))
  await expect(waiting).rejects.toThrow('stopped')
  await expect(unlessAborted(never(), stop.signal)).rejects.toThrow('stopped')
})

it('leaves no unhandled rejection when the work fails after the signal', async () => {
  const failed = Promise.withResolvers<void>()
  const signal = AbortSignal.abort(new Error('stopped'))
  await expect(unlessAborted(failed.promise, signal)).rejects.toThrow('stopped')
  failed.reject(new Error('too late'))
  // vitest fails the file at an unhandled rejection, which Node reports after a turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve))
})

it('keeps no listener once the work is done', async () => {
  const { signal } = new AbortController()
  const listeners = countListeners(signal)
  await unlessAborted(Promise.resolve(), signal)
  await new Promise((resolve) => setImmediate(resolve))
  expect(listeners()).toBe(0)
})

it('a pause ends with the signal, and does not reject', async () => {
  const stop = new AbortController()
  const paused = pause(1e9, stop.signal)
  stop.abort()
  await paused
  await pause(1e9, stop.signal)
})

function countListeners(signal: AbortSignal): () => number {
  let count = 0
  const add = signal.addEventListener.bind(signal)
  const remove = signal.removeEventListener.bind(signal)
  signal.addEventListener = (...given: Parameters<typeof add>) => (count++, add(...given))
  signal.removeEventListener = (...given: Parameters<typeof remove>) => (count--, remove(...given))
  return () => count
}

it('a wait of limited time ends with the work, well or not, with the time, and with the signal', async () => {
  await endedWithin(60_000, Promise.resolve())
  await endedWithin(60_000, Promise.reject(new Error('no')))
  await endedWithin(1, never())
  const stop = new AbortController()
  const listeners = countListeners(stop.signal)
  await endedWithin(1, never(), stop.signal)
  expect(listeners()).toBe(0)
  const ended = endedWithin(60_000, never(), stop.signal)
  stop.abort()
  await ended
  await endedWithin(60_000, never(), stop.signal)
})
