import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ServerClock } from '../../streams/queue/clock.ts'
import { countedLosses } from '../../streams/queue/handler-runs.ts'
import type { NewRecord, Publish } from '../../streams/queue/record.ts'
import { backoffMs } from '../../streams/queue/types.ts'
import { demandKey, InvalidNameError, Names, recordFrom, tokenFrom, toWire } from '../../streams/queue/wire.ts'
import { afterLoss, afterRun, type Capacity, fullCapacity } from '../../streams/queue/worker.ts'

describe('backoff', () => {
  const terms = { initialSeconds: 0.25, maxSeconds: 1000, jitter: 0.1 }
  it('doubles from the initial delay to the longest', () => {
    const middle = () => 0.5
    expect([0, 1, 2, 12, 5000].map((attempt) => backoffMs(attempt, terms, middle))).toEqual([
      250, 500, 1000, 1_000_000, 1_000_000,
    ])
  })
  it('is spread by the jitter to both sides', () => {
    expect(backoffMs(0, terms, () => 0)).toBe(225)
    expect(backoffMs(0, terms, () => 0.999_999)).toBe(275)
  })
})

describe('names', () => {
  it('reads back what it wrote', () => {
    const reconciler = fc.stringMatching(/^[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?$/)
    const key = fc.stringMatching(/^[A-Za-z0-9_=-]{1,20}\.[A-Za-z0-9_=-]{1,20}$/)
    fc.assert(
      fc.property(reconciler, key, fc.constantFrom('', 'east'), (reconciler, key, prefix) => {
        const names = new Names(prefix)
        expect(names.placeOf(names.token(reconciler, 'low', key))).toEqual({
          kind: 'token',
          reconciler,
          key,
          lane: 'low',
        })
        expect(names.placeOf(names.record(reconciler, key, 'r-x-1'))).toEqual({
          kind: 'record',
          reconciler,
          key,
          generation: 'r-x-1',
        })
      }),
    )
  })
  it.each(['', 'a b', 'a.*', 'a..b', 'a.>', '.a'])('refuses the key %j', (key) => {
    expect(() => demandKey(key)).toThrow(InvalidNameError)
  })
  it('refuses function names that Kubernetes would not take', () => {
    expect(() => new Names('').token('At_x', 'high', 'a.b')).toThrow(InvalidNameError)
  })
})

it('a record comes back from its headers as it was written', () => {
  const names = new Names('')
  const address = { names, reconciler: 'at.example.com', key: 'ns.name', worker: 'w' }
  const arbitrary = fc.record(
    {
      state: fc.constantFrom('running' as const, 'waiting' as const, 'parked' as const),
      generation: fc.constant('r-x-1'),
      owner: fc.stringMatching(/^[A-Za-z0-9]{1,22}$/),
      lane: fc.constantFrom('high' as const, 'low' as const),
      attempt: fc.nat(1000),
      cuts: fc.integer({ min: 1, max: 1000 }),
      suspect: fc.constant(true),
      at: fc.integer({ min: 0, max: 4_000_000_000_000 }),
      since: fc.integer({ min: 0, max: 4_000_000_000_000 }),
      dirty: fc.boolean(),
      begun: fc.constant(true),
      otherLaneWaits: fc.boolean(),
      reason: fc.constantFrom('Requeue' as const, 'Error' as const, 'Terminal' as const),
      error: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 60 }),
      causes: fc.array(fc.string({ unit: 'binary', minLength: 1, maxLength: 60 }), { minLength: 1, maxLength: 4 }),
    },
    { requiredKeys: ['state', 'generation', 'owner', 'lane', 'attempt', 'at', 'since', 'dirty', 'otherLaneWaits'] },
  ) as fc.Arbitrary<NewRecord>
  fc.assert(
    fc.property(arbitrary, (record) => {
      const wire = toWire({ role: 'record', record, expected: { of: 'record', sequence: 1 } }, address)
      const headers = Object.fromEntries(
        Object.entries(wire.headers)
          .filter(([, value]) => value !== undefined)
          .map(([name, value]) => [name, String(value)]),
      )
      expect(headers['Fairlead-Causes'] ?? '').toMatch(/^[\x20-\x7e]*$/)
      const data = new TextEncoder().encode(wire.payload)
      const message = { subject: wire.subject, sequence: 5, storedAt: 0, headers, data }
      expect(recordFrom(message, names)).toEqual({ ...record, sequence: 5 })
    }),
  )
})

describe('a suspect', () => {
  const names = new Names('')
  const target = names.token('at', 'high', 'ns.name')
  const stored = (subject: string, headers: Record<string, string>) => ({
    subject,
    sequence: 5,
    storedAt: 0,
    headers: { 'Nats-Schedule-Target': target, ...headers },
    data: new Uint8Array(),
  })
  it.each([
    ['once', { 'Fairlead-State': 'running', 'Fairlead-Begun': '1' }, { attempt: 0 }],
    ['once, after failures', { 'Fairlead-State': 'running', 'Fairlead-Attempt': '5' }, { attempt: 5 }],
    [
      'twice',
      { 'Fairlead-State': 'running', 'Fairlead-Cuts': '1', 'Fairlead-Reason': 'CutShort', 'Fairlead-Begun': '1' },
      { attempt: 0, cuts: 2, losses: 1, suspect: true },
    ],
    [
      'once, and then a lease ended under which no run had begun',
      { 'Fairlead-State': 'running', 'Fairlead-Reason': 'CutShort' },
      { attempt: 0 },
    ],
    [
      'twice, and then such a lease ended',
      { 'Fairlead-State': 'running', 'Fairlead-Cuts': '1', 'Fairlead-Suspect': '1' },
      { attempt: 0, cuts: 1, suspect: true },
    ],
    [
      'twice, and handed back in between',
      { 'Fairlead-State': 'running', 'Fairlead-Cuts': '1', 'Fairlead-Begun': '1' },
      { attempt: 0, cuts: 2, losses: 1, suspect: true },
    ],
    [
      'twice, the second time after it had changed something',
      { 'Fairlead-State': 'running', 'Fairlead-Reason': 'CutShort', 'Fairlead-Losses': '7', 'Fairlead-Begun': '1' },
      { attempt: 0, cuts: 1, losses: 8, suspect: true },
    ],
    [
      'before, and waited as a suspect',
      { 'Fairlead-Attempt': '3', 'Fairlead-Suspect': '1' },
      { attempt: 3, suspect: true },
    ],
    ['never', { 'Fairlead-Attempt': '3', 'Fairlead-Reason': 'Error' }, { attempt: 3 }],
  ])('is known by its token: cut short %s', (_, headers, expected) => {
    const {
      sequence: _sequence,
      lane: _lane,
      cutShort: _cutShort,
      ...failures
    } = tokenFrom(stored(target, headers), 'high')
    expect(failures).toEqual(expected)
  })
  it('is known after a lease that ended once, also by the token of a key that was handed back', () => {
    const message = { role: 'token', lane: 'high', attempt: 0, cutShort: true, expected: { of: 'record', sequence: 1 } }
    const address = { names, reconciler: 'at', key: 'ns.name', worker: 'w' }
    const { subject, headers } = toWire(message as Publish, address)
    expect(tokenFrom(stored(subject, headers as Record<string, string>), 'high')).toMatchObject({ cutShort: true })
  })
  it('is not the retry of a single run that was cut short, as its token says', () => {
    const retry = tokenFrom(stored(target, { 'Fairlead-State': 'waiting', 'Fairlead-Reason': 'CutShort' }), 'high')
    expect(retry).toMatchObject({ cutShort: true })
    expect(retry).not.toHaveProperty('suspect')
  })
})

describe('the clock', () => {
  function clockAt() {
    const time = { wall: 1_000_000, monotonic: 500, server: 1_000_300, delay: 0, step: 0, away: false }
    const sources = {
      wall: () => time.wall,
      monotonic: () => time.monotonic,
      server: async () => {
        if (time.away) throw new Error('no answer')
        const now = time.server
        time.monotonic += time.delay
        time.wall += time.step
        time.away = time.step > 0
        return now
      },
    }
    const clock = new ServerClock(sources, 10)
    const pass = (ms: number) => {
      time.wall += ms
      time.monotonic += ms
      time.server += ms
    }
    return { time, clock, pass }
  }
  it('follows the server', async () => {
    const { clock, pass } = clockAt()
    await clock.measure()
    expect(clock.now()).toBe(1_000_300)
    pass(5000)
    expect(clock.now()).toBe(1_005_300)
    expect(clock.at(new Date(1_006_000))).toBe(1_006_300)
    expect(clock.dateOf(1_006_300)).toEqual(new Date(1_006_000))
  })
  it('keeps a sure offset rather than take one from a slow answer', async () => {
    const { clock, time } = clockAt()
    await clock.measure()
    time.delay = 300
    await clock.measure()
    expect(clock.now() - time.monotonic).toBe(1_000_300 - 500)
  })
  it('knows two times between which the server is, whenever it answered during the request', async () => {
    for (const part of [0, 0.3, 1]) {
      const { clock, time, pass } = clockAt()
      time.delay = 100
      // The server reads its clock after this part of the request.
      time.server += part * 100
      await clock.measure()
      time.server += (1 - part) * 100
      for (const ms of [0, 30_000]) {
        pass(ms)
        const { earliest, latest } = clock.range() ?? { earliest: Number.NaN, latest: Number.NaN }
        expect(earliest).toBeLessThanOrEqual(time.server)
        expect(latest).toBeGreaterThanOrEqual(time.server)
        expect(latest - earliest).toBeLessThanOrEqual(101 + 0.001 * ms)
      }
    }
  })
  it('does not stop when the wall clock is set back', async () => {
    const { clock, time, pass } = clockAt()
    await clock.measure()
    time.wall -= 3_600_000
    pass(2000)
    expect(clock.now()).toBe(1_002_300)
  })
  it('a machine that slept has lost its leases', async () => {
    const { clock, time } = clockAt()
    await clock.measure()
    time.wall += 60_000
    expect(clock.now()).toBe(1_060_300)
  })
  it('asks the server at once whether it slept or was set, and again until there is an answer', async () => {
    const { clock, time } = clockAt()
    await clock.measure()
    time.away = true
    time.wall += 60_000
    for (let ask = 0; ask < 3; ask++) {
      expect(clock.now()).toBe(1_060_300)
      await new Promise(setImmediate)
    }
    time.away = false
    clock.now()
    await new Promise(setImmediate)
    expect(clock.now()).toBe(1_000_300)
  })
  it('gives no time to be written from a step on until the server was asked', async () => {
    const { clock, time } = clockAt()
    expect(clock.sure()).toBe(undefined)
    await clock.measure()
    expect(clock.sure()).toBe(1_000_300)
    time.wall += 60_000
    expect(clock.sure()).toBe(undefined)
    await new Promise(setImmediate)
    expect(clock.sure()).toBe(1_000_300)
  })
  it('learns nothing from an answer that a step came before', async () => {
    const { clock, time } = clockAt()
    await clock.measure()
    time.step = 60_000
    await expect(clock.measure()).rejects.toThrow('no answer')
    expect(clock.sure()).toBe(undefined)
  })
})

it.each([
  ['the first is repeated soon', 1, 1, 0],
  ['five in a row without a change wait as the fifth', 5, 5, 4],
  ['five that each changed something wait as the first', 1, 5, 0],
  ['twelve that each changed something wait as the fifth', 1, 12, 4],
  ['thirty that each changed something wait as the seventh, like all further ones', 1, 30, 6],
  ['thirty in a row without a change wait as the thirtieth', 30, 30, 29],
])('runs that end their process: %s', (_, cuts, losses, counted) => {
  expect(countedLosses(cuts, losses)).toBe(counted)
})

describe('the capacity of a worker', () => {
  const LEASE_MS = 1000
  const runs = (capacity: Capacity, count: number): Capacity =>
    Array.from({ length: count }).reduce<Capacity>(afterRun, capacity)

  it('is all slots, until a lease is lost', () => {
    expect(fullCapacity(16).limit).toBe(16)
    expect(runs(fullCapacity(16), 100).limit).toBe(16)
  })

  it('is halved by losses, once for all that come within the length of a lease', () => {
    const once = afterLoss(fullCapacity(16), 0, LEASE_MS)
    expect(once.limit).toBe(8)
    expect(afterLoss(once, LEASE_MS - 1, LEASE_MS).limit).toBe(8)
    expect(afterLoss(once, LEASE_MS, LEASE_MS).limit).toBe(4)
  })

  it('is never less than an eighth of the slots, and never none', () => {
    for (const [slots, least] of [
      [256, 32],
      [10, 2],
      [1, 1],
    ] as const) {
      let capacity = fullCapacity(slots)
      for (let lease = 0; lease < 20; lease++) capacity = afterLoss(capacity, lease * LEASE_MS, LEASE_MS)
      expect(capacity.limit).toBe(least)
    }
  })

  it('grows by one with each run that ends within its lease', () => {
    const cut = afterLoss(fullCapacity(16), 0, LEASE_MS)
    expect(runs(cut, 3).limit).toBe(11)
    expect(runs(cut, 100).limit).toBe(16)
  })
})
