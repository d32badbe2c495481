import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Invoke, RunContext, RunInput } from '#contracts'
import { FunctionCalls, type IgnoredSignal } from '../../dispatch/run/function-calls.ts'
import { silent as log } from '../support/silent.ts'

const input: RunInput = { object: null, owned: {}, related: {}, attempt: 0, now: '', finalizing: false }
const of = (key: string) => ({ reconciler: 'w', key })

/** A function that ignores its signal, and ends when the test lets it. */
function deaf() {
  const signals: AbortSignal[] = []
  const ends: (() => void)[] = []
  const invoke: Invoke = (_, { signal }: RunContext) => {
    signals.push(signal)
    return new Promise((resolve) => ends.push(() => resolve({ status: { call: ends.length } })))
  }
  return { invoke, signals, ends }
}
const settled = () => new Promise<void>(setImmediate)

describe('a call that ignores its signal', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
  afterEach(() => void vi.useRealTimers())

  it('at its time-out is waited for: until it ends, no other call of its key begins', async () => {
    const calls = new FunctionCalls()
    const { invoke, signals, ends } = deaf()
    const signal = new AbortController().signal
    let first = 'pending'
    const ended = calls
      .within(1, of('a'), invoke, input, { signal, log })
      .catch((error: Error) => (first = error.message))
    await settled()
    vi.advanceTimersByTime(1000)
    const second = calls.within(1, of('a'), invoke, input, { signal, log })
    const other = calls.within(1, of('b'), invoke, input, { signal, log })
    await settled()
    expect([first, signals.length, signals[0]?.aborted, calls.underWay]).toEqual([
      'pending',
      2,
      true,
      [of('a'), of('b')],
    ])
    ends[0]?.()
    await ended
    await settled()
    expect([first, signals.length]).toEqual(['the function did not finish within 1 s', 3])
    for (const end of ends) end()
    await Promise.all([second, other])
    expect(calls.underWay).toEqual([])
  })

  it('is reported after five time-outs more, once', async () => {
    const ignored: IgnoredSignal[] = []
    const calls = new FunctionCalls((call) => ignored.push(call))
    const { invoke, ends } = deaf()
    const ended = calls.within(2, of('a'), invoke, input, { signal: new AbortController().signal, log })
    await settled()
    vi.advanceTimersByTime(2000 + 9999)
    expect(ignored).toEqual([])
    vi.advanceTimersByTime(60_000)
    expect(ignored).toEqual([{ ...of('a'), seconds: 10 }])
    ends[0]?.()
    await expect(ended).rejects.toThrow('within 2 s')
  })

  it('keeps a run that waits for it only as long as that has its lease', async () => {
    const calls = new FunctionCalls()
    const { invoke, signals, ends } = deaf()
    const first = calls.within(1, of('a'), invoke, input, { signal: AbortSignal.timeout(1), log })
    await settled()
    const lease = new AbortController()
    const second = calls.within(1, of('a'), invoke, input, { signal: lease.signal, log })
    lease.abort(new Error('the lease is over'))
    await expect(second).rejects.toThrow('the lease is over')
    expect(signals).toHaveLength(1)
    vi.useRealTimers()
    await vi.waitUntil(() => signals[0]?.aborted, { timeout: 60_000 })
    ends[0]?.()
    await expect(first).rejects.toThrow('timeout')
  })
})

it('a call that fails because its signal was aborted says why that was', async () => {
  const calls = new FunctionCalls()
  const over = new AbortController()
  const invoke: Invoke = (_, { signal }) =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))))
  const ended = calls.within(1, of('a'), invoke, input, { signal: over.signal, log })
  await settled()
  over.abort(new Error('the lease is over'))
  await expect(ended).rejects.toThrow('the lease is over')
  expect(calls.underWay).toEqual([])
})

it('a call whose run is over already is not made', async () => {
  const { invoke, signals } = deaf()
  const signal = AbortSignal.abort(new Error('too late'))
  await expect(new FunctionCalls().within(1, of('a'), invoke, input, { signal, log })).rejects.toThrow('too late')
  expect(signals).toEqual([])
})
