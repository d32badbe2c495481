import { expect, it } from 'vitest'
import { afterLoss, afterRun, type Capacity, fullCapacity } from '../../streams/queue/worker.ts'

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
