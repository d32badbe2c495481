import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Invoke, PerformInput, RunContext, RunInput } from '#contracts'
import { TokenBucket } from '#primitives'
import { FunctionCalls, type IgnoredSignal } from '../../dispatch/run/function-calls.ts'
import { ExternalCalls } from '../../dispatch/run/reconciliation.ts'
import { silent as log } from '../support/silent.ts'
import { widget } from './objects.ts'

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

it('the time for which a call waits in this process is no part of its time', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    const waits = Promise.withResolvers<string>()
    const begun = vi.fn<(place: string | undefined) => void>()
    const hanging: Invoke = async (_, { signal, untimed }) => {
      begun(await untimed?.(waits.promise))
      return new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
      )
    }
    const { signal } = new AbortController()
    let end = 'pending'
    const ended = new FunctionCalls()
      .within(2, of('a'), hanging, input, { signal, log })
      .catch((error: Error) => (end = error.message))
    vi.advanceTimersByTime(10_000)
    waits.resolve('a place')
    await settled()
    expect(begun).toHaveBeenCalledWith('a place')
    vi.advanceTimersByTime(1999)
    await settled()
    expect(end).toBe('pending')
    vi.advanceTimersByTime(1)
    await ended
    expect(end).toBe('the function did not finish within 2 s')
  } finally {
    vi.useRealTimers()
  }
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

describe('a read and an effect', () => {
  const run = { object: widget(), owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
  const input: PerformInput = { ...run, ask: 'perform', effect: { kind: 'set' } }
  const perform = { do: 'perform', input, shown: '' } as const
  const read = { do: 'read', input: { ...run, ask: 'read' } } as const

  function callsWith(options: Partial<ConstructorParameters<typeof ExternalCalls>[0]> = {}) {
    const called: string[] = []
    const calls = new ExternalCalls({
      reconciler: 'r',
      key: 'k',
      rateLimit: undefined,
      skipped: undefined,
      call: async ({ ask }) => called.push(ask),
      hold: () => undefined,
      signal: new AbortController().signal,
      span: () => undefined,
      observe: () => undefined,
      ...options,
    })
    return { calls, called }
  }

  it('an effect is not performed when the lease is over at that moment', async () => {
    const over = new Error('the lease is over')
    const { calls, called } = callsWith({
      hold: () => {
        throw over
      },
    })
    await expect(calls.perform(perform)).rejects.toBe(over)
    expect(called).toEqual([])
  })

  it('an effect does not wait for the rate limit, and reads after it do', async () => {
    const rateLimit = new TokenBucket({ perSecond: 0.1, burst: 1 }, () => 0)
    const { calls, called } = callsWith({ rateLimit })
    await calls.read(read)
    await calls.perform(perform)
    expect(await calls.read(read)).toEqual({ did: 'read', limitedMs: 20_000 })
    expect(called).toEqual(['read', 'perform'])
  })
})
