import { setImmediate as turn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { mapAtMost } from '#primitives'
import { StateBudget, type StateMeter } from '../../dispatch/observe/state-budget.ts'
import { TooMuchStateError } from '../../reconcile/errors.ts'

const MIB = 2 ** 20
const { signal } = new AbortController()
const ordinary = { suspect: false, signal }
const suspected = { suspect: true, signal }

/** Reads so many objects of so many bytes each, a page before each of them. */
const reading =
  (count: number, bytes: number, pageBytes = 600 * 1024) =>
  async (meter: StateMeter) => {
    for (let index = 0; index < count; index++) {
      meter.demand(pageBytes)
      await turn()
      meter.add('configmaps.v1', bytes)
    }
    return count
  }

const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await turn()
}

const free = ({ small, large, suspects }: StateBudget) =>
  [small.free, large.free, suspects.free].map((one) => one / MIB)

describe('what runs hold of objects', () => {
  it('is what they have read, until they end', async () => {
    const budget = new StateBudget(16 * MIB)
    const run = budget.ofRun(ordinary)
    await run.read(reading(2, MIB / 2))
    expect(free(budget)).toEqual([31, 32, 32])
    await run.read(reading(1, MIB / 4))
    expect(free(budget)).toEqual([31.75, 32, 32])
    run[Symbol.dispose]()
    expect(free(budget)).toEqual([32, 32, 32])
  })

  it('is begun again among the large ones when it is more than an eighth of the limit', async () => {
    const budget = new StateBudget(16 * MIB)
    let begun = 0
    const run = budget.ofRun(ordinary)
    await run.read((meter) => {
      begun++
      return reading(10, MIB)(meter)
    })
    expect([begun, ...free(budget)]).toEqual([2, 32, 22, 32])
  })

  it('ends in TooMuchState above the limit, with what was read by then, and is given back', async () => {
    const budget = new StateBudget(16 * MIB)
    using run = budget.ofRun(ordinary)
    const read = run.read((meter) => {
      meter.note('k8s.example%2Ecom.v1.classes.shop._.first', 1024)
      // Too small to be worth a word.
      return reading(1000, MIB)(meter)
    })
    await expect(read).rejects.toBeInstanceOf(TooMuchStateError)
    await expect(read).rejects.toThrow('larger than 16 MiB together: 16 configmaps.v1 (16 MiB) were read')
    run[Symbol.dispose]()
    expect(free(budget)).toEqual([32, 32, 32])
  })

  it('does not grow after its run has given up', async () => {
    const budget = new StateBudget(16 * MIB)
    const run = budget.ofRun(ordinary)
    let late: StateMeter | undefined
    await expect(
      run.read(async (meter) => {
        late = meter
        throw new Error('the API server is away')
      }),
    ).rejects.toThrow('away')
    late?.add('secrets.v1', MIB)
    run[Symbol.dispose]()
    expect(free(budget)).toEqual([32, 32, 32])
  })
})

describe('waiting', () => {
  it('large runs that wait delay no small one', async () => {
    const budget = new StateBudget(16 * MIB)
    for (let count = 0; count < 2; count++) await budget.ofRun(ordinary).read(reading(10, MIB))
    const third = budget.ofRun(ordinary).read(reading(10, MIB))
    await turn()
    expect(await budget.ofRun(ordinary).read(reading(1, 1000))).toBe(1)
    await until(() => budget.large.waiting === 1)
    await Promise.race([third, turn()])
  })

  it('suspects delay nothing but suspects, however much they read', async () => {
    const budget = new StateBudget(16 * MIB)
    await budget.ofRun(suspected).read(reading(16, MIB))
    await budget.ofRun(suspected).read(reading(16, MIB))
    const third = budget.ofRun(suspected).read(reading(1, MIB))
    await turn()
    expect(await budget.ofRun(ordinary).read(reading(10, MIB))).toBe(10)
    expect(await budget.ofRun(ordinary).read(reading(1, 1000))).toBe(1)
    expect(budget.suspects.waiting).toBe(1)
    await Promise.race([third, turn()])
  })

  it('ends for every one of 256 runs of 10 MiB, with no more than six times the limit in use', async () => {
    const budget = new StateBudget(16 * MIB)
    const runs = Array.from({ length: 256 }, async () => {
      using run = budget.ofRun(ordinary)
      await run.read(reading(10, MIB))
      await turn()
    })
    await Promise.all(runs)
    expect(free(budget)).toEqual([32, 32, 32])
  })

  it('ends when the lease is lost', async () => {
    const budget = new StateBudget(MIB)
    await budget.ofRun(suspected).read(reading(1, MIB))
    await budget.ofRun(suspected).read(reading(1, MIB))
    const lease = new AbortController()
    const read = budget.ofRun({ suspect: true, signal: lease.signal }).read(reading(1, MIB))
    lease.abort(new Error('the lease is lost'))
    await expect(read).rejects.toThrow('the lease is lost')
  })
})

describe('requests of one run', () => {
  it('are so many at once, with their results in order', async () => {
    let underWay = 0
    let most = 0
    const act = async (item: number) => {
      most = Math.max(most, ++underWay)
      await turn()
      underWay--
      return item * 2
    }
    const items = Array.from({ length: 50 }, (_, index) => index)
    expect(await mapAtMost(8, items, act)).toEqual(items.map((item) => item * 2))
    expect(most).toBe(8)
  })

  it('are not begun any more after one has failed', async () => {
    let begun = 0
    const act = async (item: number) => {
      begun++
      await turn()
      if (item === 3) throw new Error('refused')
    }
    await expect(
      mapAtMost(
        8,
        Array.from({ length: 50 }, (_, index) => index),
        act,
      ),
    ).rejects.toThrow('refused')
    await turn()
    await turn()
    expect(begun).toBeLessThan(20)
  })
})
