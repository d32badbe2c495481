import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { RunStep } from '#dispatch'
import { type PeriodUsage, type UsageRow, UsageRows } from '#events'
import { usageSince } from '#inspect'
import { folded, UsageStore } from '../../cli/process/usage.ts'
import { cpuAccount, UsageMeter } from '../../cli/process/usage-meter.ts'
import { website } from './history/runs.ts'

/** A meter with a CPU clock that only `burn` moves. */
function metered() {
  let cpuMs = 0
  const meter = new UsageMeter(cpuAccount(() => cpuMs))
  const burn = (ms: number) => void (cpuMs += ms)
  const step = (function_: string, namespace: string, step: Partial<RunStep>) =>
    meter.run({ reconciler: function_, key: `${namespace}.x`, ...step } as RunStep)
  return { meter, burn, step, total: () => cpuMs }
}

const shown = (rows: readonly UsageRow[]) =>
  Object.fromEntries(
    rows.map(({ function: name, namespace, ...used }) => [
      [name, namespace].filter((part) => part !== undefined).join(' '),
      Object.fromEntries(Object.entries(used).filter(([, value]) => value !== 0)),
    ]),
  )
const sumOf = (rows: readonly UsageRow[]) => rows.reduce((sum, { cpuMs }) => sum + cpuMs, 0)

describe('CPU time', () => {
  it('before the first run is the platform’s, and then each step pays for the time since the step before', () => {
    const { meter, burn, step } = metered()
    burn(100)
    step('at', 'shop', { step: 'started' })
    burn(3)
    step('at', 'shop', { step: 'written' })
    burn(2)
    step('at', 'shop', { step: 'ended' })
    burn(1)
    step('at', 'shop', { step: 'finished', result: 'success' })
    burn(50)
    expect(shown(meter.take())).toEqual({ '(platform)': { cpuMs: 150 }, 'at shop': { cpuMs: 6, runs: 1, writes: 1 } })
  })

  it('of a function that computes is paid by its run, and by no run that waits meanwhile', async () => {
    const { meter, burn, step } = metered()
    step('light', 'a', { step: 'started' })
    step('heavy', 'b', { step: 'started' })
    const answered = Promise.withResolvers<object>()
    const heavy = meter.around('heavy', () => {
      burn(500)
      return answered.promise
    })
    const object = website('1', { metadata: { name: 'x', namespace: 'b' } })
    const call = heavy({ object } as never, {} as never)
    step('light', 'a', { step: 'finished', result: 'success' })
    answered.resolve({})
    await call
    step('heavy', 'b', { step: 'finished', result: 'success' })
    expect(shown(meter.take())).toMatchObject({ 'heavy b': { cpuMs: 500 }, 'light a': { runs: 1 } })
  })

  it('of a function that throws is paid by its run too', async () => {
    const { meter, burn } = metered()
    const failing = meter.around('at', async () => {
      burn(7)
      throw new Error('no')
    })
    await expect(failing({ object: null } as never, {} as never)).rejects.toThrow('no')
    expect(shown(meter.take())['at']).toEqual({ cpuMs: 7 })
  })

  it('of storing a change is the bridge’s in the namespace of the object, and not the time before it came', () => {
    const { meter, burn } = metered()
    burn(1000)
    meter.seen()
    burn(2)
    meter.published({ object: website('1') })
    expect(shown(meter.take())).toEqual({ '(platform)': { cpuMs: 1000 }, '(bridge) shop': { cpuMs: 2 } })
  })

  it('of all rows together is that of the process, whatever happens in which order', () => {
    const { meter, burn, step, total } = metered()
    const seed = Math.floor(Math.random() * 2 ** 31)
    let state = seed
    const random = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below
    const steps = ['started', 'written', 'ended', 'finished'] as const
    let sum = 0
    for (let turn = 0; turn < 2000; turn++) {
      burn(random(5))
      if (random(10) === 0) meter.published({ object: website('1') })
      else step(`f${random(3)}`, `n${random(4)}`, { step: steps[random(4)] as never, result: 'success' })
      if (random(100) === 0) sum += sumOf(meter.take())
    }
    expect({ seed, cpuMs: sum + sumOf(meter.take()) }).toEqual({ seed, cpuMs: total() })
  })
})

describe('requests', () => {
  it('that no run has sent are the platform’s, and none is counted twice', () => {
    const { meter } = metered()
    for (let count = 0; count < 5; count++) meter.requested()
    for (let count = 0; count < 3; count++) meter.requestedBy({ reconciler: 'at', namespace: 'shop' })
    expect(shown(meter.take())).toEqual({ '(platform)': { requests: 2 }, 'at shop': { requests: 3 } })
  })

  it('are never less than none: a request that was refused before it was sent is made up for by the next', () => {
    const { meter } = metered()
    meter.requestedBy({ reconciler: 'at' })
    expect(shown(meter.take())).toEqual({ '(platform)': {}, at: { requests: 1 } })
    meter.requested()
    expect(shown(meter.take())).toEqual({ '(platform)': {} })
  })
})

it('bytes of an event that a run has stored are those of its function, others the bridge’s', () => {
  const { meter } = metered()
  meter.storedEvent({ namespace: 'else', origin: 'at/shop.x/nonce', bytes: 10 })
  meter.storedEvent({ namespace: 'else', origin: undefined, bytes: 20 })
  meter.storedEvent({ namespace: undefined, origin: undefined, bytes: 40 })
  meter.storedRun({ reconciler: 'at', namespace: 'shop' }, 5)
  expect(shown(meter.take())).toMatchObject({
    'at shop': { storedBytes: 15 },
    '(bridge) else': { storedBytes: 20 },
    '(bridge)': { storedBytes: 40 },
  })
})

const row = (name: string, namespace: string | undefined, cpuMs: number): UsageRow => ({
  function: name,
  namespace,
  runs: 1,
  cpuMs,
  requests: 0,
  writes: 0,
  storedBytes: 0,
})

it('of many namespaces those that use most keep a row, and each function keeps its sum', () => {
  const rows = Array.from({ length: 1500 }, (_, index) => row(index % 2 === 0 ? 'a' : 'b', `n${index}`, index))
  const kept = [...folded(rows)]
  expect(kept.length).toBe(252)
  expect(
    kept.filter(({ namespace }) => namespace === '(other)').map(({ function: name, runs }) => [name, runs]),
  ).toEqual([
    ['b', 625],
    ['a', 625],
  ])
  for (const name of ['a', 'b'])
    expect(sumOf(kept.filter((one) => one.function === name))).toBe(sumOf(rows.filter((one) => one.function === name)))
})

describe('rows', () => {
  const wanted = (count: number) =>
    Array.from({ length: count }, (_, index) => row(`f${index}`, index % 2 === 0 ? undefined : `n${index}`, index))

  it('of any number of functions and namespaces are limited, and together are what was added', () => {
    const rows = new UsageRows(10, 20)
    for (const one of wanted(1000)) rows.add(one)
    rows.add(row('(platform)', undefined, 7))
    const kept = [...rows]
    expect(kept.length).toBeLessThanOrEqual(22)
    expect(sumOf(kept)).toBe(sumOf(wanted(1000)) + 7)
    expect(shown(kept)).toMatchObject({ '(platform)': { cpuMs: 7 }, f0: { runs: 1 }, '(other)': { runs: 980 } })
  })

  it('of a message are limited, whatever the number of functions: those that use most keep one', () => {
    const kept = [...folded(wanted(10_000))]
    expect(kept.length).toBeLessThanOrEqual(2001)
    expect(sumOf(kept)).toBe(sumOf(wanted(10_000)))
    expect(kept.find((one) => one.function === 'f9999')).toMatchObject({ cpuMs: 9999 })
    expect(kept.find((one) => one.function === 'f1')).toBeUndefined()
  })

  it('of a report are limited, however many are read', async () => {
    const view = {
      stream: 'USAGE',
      async *since() {
        for (let day = 0; day < 400; day++)
          yield {
            period: 'day' as const,
            start: `${day}`,
            rows: Array.from({ length: 100 }, (_, index) => row('at', `n${day}-${index}`, 1 + (index % 7))),
          }
      },
    }
    const rows = await usageSince(view, new Date(0), new Date())
    expect(rows.length).toBeLessThanOrEqual(10_001)
    expect(rows.reduce((sum, { runs }) => sum + runs, 0)).toBe(40_000)
    expect(rows).toEqual(rows.toSorted((a, b) => b.cpuMs - a.cpuMs))
  })

  it('of a process are limited between two readings', () => {
    const { meter, burn, total } = metered()
    for (let index = 0; index < 30_000; index++) {
      burn(1)
      meter.run({ reconciler: `f${index}`, key: `n${index}.x`, step: 'written' } as RunStep)
    }
    const kept = meter.take()
    expect(kept.length).toBeLessThanOrEqual(20_002)
    expect(sumOf(kept)).toBe(total())
  })
})

describe('the store', () => {
  beforeEach(() => void vi.useFakeTimers({ now: new Date('2026-01-31T22:58:30Z') }))
  afterEach(() => void vi.useRealTimers())

  /** What NATS has: one message for each process and period. */
  function stored() {
    const { meter, step, burn } = metered()
    const messages = new Map<string, PeriodUsage>()
    let isAway = false
    let writes = 0
    let during: (() => void) | undefined
    const warn = vi.fn<() => void>()
    const store = new UsageStore({
      meter,
      declare: async () => undefined,
      async write(id, usage) {
        if (isAway) throw new Error('no answer')
        writes++
        const act = during
        during = undefined
        act?.()
        messages.set(`${usage.period} ${usage.start} ${id}`, structuredClone(usage))
      },
      log: { warn },
    })
    const stop = new AbortController()
    void store.run(stop.signal)
    const run = (ms: number) => {
      step('at', 'shop', { step: 'started' })
      burn(ms)
      step('at', 'shop', { step: 'ended' })
      step('at', 'shop', { step: 'finished', result: 'success' })
    }
    const cpuOf = (start: string) =>
      [...messages.values()]
        .filter((one) => one.start === start)
        .flatMap(({ rows }) => rows)
        .filter((one) => one.function === 'at')
        .reduce((sum, { cpuMs }) => sum + cpuMs, 0)
    return {
      store,
      run,
      burn,
      cpuOf,
      warn,
      messages,
      writes: () => writes,
      away: (value: boolean) => void (isAway = value),
      during: (act: () => void) => void (during = act),
    }
  }

  it('stores a minute after a use, so that a process that is killed loses a minute at most', async () => {
    const { run, cpuOf } = stored()
    run(5)
    await vi.advanceTimersByTimeAsync(59_999)
    expect(cpuOf('2026-01-31T22')).toBe(0)
    await vi.advanceTimersByTimeAsync(1)
    expect(cpuOf('2026-01-31T22')).toBe(5)
  })

  it('replaces what it has stored, so that nothing is counted twice, and begins anew with each hour and day', async () => {
    const { run, cpuOf, messages } = stored()
    run(5)
    await vi.advanceTimersByTimeAsync(60_000)
    run(7)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(cpuOf('2026-01-31T22')).toBe(12)
    run(1)
    await vi.advanceTimersByTimeAsync(3_600_000)
    run(2)
    await vi.advanceTimersByTimeAsync(60_000)
    const hours = ['2026-01-31T22', '2026-01-31T23', '2026-02-01T00']
    expect(hours.map(cpuOf)).toEqual([12, 1, 2])
    expect(['2026-01-31', '2026-02-01'].map(cpuOf)).toEqual([13, 2])
    expect(messages.size).toBe(5)
  })

  it('is quiet without work: two messages at the end of an hour', async () => {
    const { writes, burn } = stored()
    await vi.advanceTimersByTimeAsync(90_000)
    const before = writes()
    burn(3)
    await vi.advanceTimersByTimeAsync(3_600_000 - 90_000)
    expect(writes()).toBe(before)
    await vi.advanceTimersByTimeAsync(90_000)
    expect(writes()).toBe(before + 2)
  })

  it('keeps what NATS does not accept, and stores it when NATS is back, each hour in its place', async () => {
    const { run, cpuOf, warn, away } = stored()
    away(true)
    run(5)
    await vi.advanceTimersByTimeAsync(3_600_000)
    run(7)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(warn).toHaveBeenCalledTimes(1)
    away(false)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(['2026-01-31T22', '2026-01-31T23'].map(cpuOf)).toEqual([5, 7])
  })

  it('stores again a minute after what was used while it stored', async () => {
    const { run, cpuOf, during } = stored()
    // Far from the end of an hour.
    await vi.advanceTimersByTimeAsync(600_000)
    run(5)
    during(() => run(7))
    await vi.advanceTimersByTimeAsync(60_000)
    expect(cpuOf('2026-01-31T23')).toBe(5)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(cpuOf('2026-01-31T23')).toBe(12)
  })

  it('stores what is left at its end, and nothing after it: a process may serve its cluster again', async () => {
    const { store, run, cpuOf, writes, warn, away } = stored()
    run(5)
    await store.end()
    expect(cpuOf('2026-01-31T22')).toBe(5)
    const before = writes()
    away(true)
    run(7)
    await vi.advanceTimersByTimeAsync(7_200_000)
    expect([writes(), warn.mock.calls, vi.getTimerCount()]).toEqual([before, [], 0])
  })

  it('tells metrics what was used since the start, also after it was stored', async () => {
    const { store, run } = stored()
    run(5)
    await store.store()
    run(7)
    expect([...store.totals()].find((one) => one.function === 'at')).toMatchObject({ runs: 2, cpuMs: 12 })
  })
})
