import { setImmediate as turn } from 'node:timers/promises'
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { Budget } from '#primitives'

/** The admitted callers in order. */
function line(budget: Budget) {
  const admitted: string[] = []
  const ask = (name: string, bytes: number, signal?: AbortSignal) =>
    budget.acquire(bytes, signal).then((grant) => (admitted.push(name), grant))
  return { admitted, ask }
}

it('grants in the order of asking: a large request is not overtaken by small ones', async () => {
  const budget = new Budget(10)
  const { admitted, ask } = line(budget)
  const first = await ask('first', 6)
  const others = [ask('large', 8), ask('small', 1)]
  await turn()
  expect(admitted).toEqual(['first'])
  first[Symbol.dispose]()
  await Promise.all(others)
  expect(admitted).toEqual(['first', 'large', 'small'])
  expect(budget.free).toBe(1)
})

it('grants its capacity to a request for more than that', async () => {
  const budget = new Budget(10)
  using grant = await budget.acquire(1000)
  expect([grant.bytes, budget.free]).toEqual([10, 0])
})

it('lets the others in when a request is aborted while it waits', async () => {
  const budget = new Budget(10)
  const { admitted, ask } = line(budget)
  await ask('first', 6)
  const abort = new AbortController()
  const large = ask('large', 8, abort.signal)
  const small = ask('small', 1)
  abort.abort(new Error('the lease is lost'))
  await expect(large).rejects.toThrow('the lease is lost')
  await small
  expect(admitted).toEqual(['first', 'small'])
  expect(budget.waiting).toBe(0)
})

it('never waits for growth: there is none where others wait, or where too little is free', async () => {
  const budget = new Budget(10)
  const a = await budget.acquire(2)
  const b = await budget.acquire(2)
  expect(a.grow(8)).toBe(true)
  expect(b.grow(3)).toBe(false)
  const waiting = budget.acquire(5)
  a.shrink(4)
  expect(b.grow(3)).toBe(false)
  b[Symbol.dispose]()
  expect((await waiting).bytes).toBe(5)
})

it('gives back once what is disposed twice', async () => {
  const budget = new Budget(10)
  const grant = await budget.acquire(4)
  grant[Symbol.dispose]()
  grant[Symbol.dispose]()
  expect(budget.free).toBe(10)
})

it('serves every reader in the end, and never grants more than there is', async () => {
  const reader = fc.record({ first: fc.integer({ min: 1, max: 6 }), second: fc.integer({ min: 1, max: 40 }) })
  await fc.assert(
    fc.asyncProperty(fc.array(reader, { minLength: 1, maxLength: 40 }), async (readers) => {
      const budget = new Budget(20)
      let held = 0
      const hold = async (bytes: number) => {
        const grant = await budget.acquire(bytes)
        held += grant.bytes
        expect(held).toBeLessThanOrEqual(20)
        return grant
      }
      const give = (grant: Awaited<ReturnType<typeof hold>>) => {
        held -= grant.bytes
        grant[Symbol.dispose]()
      }
      await Promise.all(
        readers.map(async ({ first, second }) => {
          give(await hold(first))
          const grant = await hold(second)
          await turn()
          give(grant)
        }),
      )
      expect([budget.free, budget.waiting]).toEqual([20, 0])
    }),
  )
})
