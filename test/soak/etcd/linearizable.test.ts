import { describe, expect, it } from 'vitest'
import { randomFrom } from '../../support/random.ts'
import { type Operation, violationOf } from './linearizable.ts'

const write = (value: string, calledAt: number, returnedAt?: number): Operation => ({
  kind: 'write',
  value,
  calledAt,
  ...(returnedAt !== undefined && { returnedAt }),
})
const read = (value: string | null, calledAt: number, returnedAt: number): Operation => ({
  kind: 'read',
  value,
  calledAt,
  returnedAt,
})

describe('a register is linearizable', () => {
  it.each([
    ['that was never used', []],
    ['whose reads see the write before', [write('a', 0, 1), read('a', 2, 3), write('b', 4, 5), read('b', 6, 7)]],
    ['that is read while it is written', [write('a', 0, 1), write('b', 2, 9), read('b', 3, 4), read('b', 5, 6)]],
    [
      'whose write without an answer was done later',
      [write('a', 0, 1), write('b', 2), read('a', 3, 4), read('b', 5, 6)],
    ],
    ['whose write without an answer was never done', [write('a', 0, 1), write('b', 2), read('a', 3, 4)]],
    ['that is empty before its first write', [read(null, 0, 1), write('a', 2, 3)]],
  ] satisfies [string, Operation[]][])('%s', (_, history) => {
    expect(violationOf(history)).toBeUndefined()
  })
})

describe('a register is not linearizable', () => {
  it.each([
    ['whose acknowledged write is lost', [write('a', 0, 1), write('b', 2, 3), read('a', 4, 5)]],
    ['that is empty after a write', [write('a', 0, 1), read(null, 2, 3)]],
    ['that goes back', [write('a', 0, 1), write('b', 2, 9), read('b', 3, 4), read('a', 5, 6)]],
    ['whose write without an answer is undone', [write('a', 0, 1), write('b', 2), read('b', 3, 4), read('a', 5, 6)]],
    ['that shows what was never written', [read('x', 0, 1)]],
    ['that shows what is written later', [read('a', 0, 1), write('a', 2, 3)]],
  ] satisfies [string, Operation[]][])('%s', (_, history) => {
    expect(violationOf(history)).toEqual(expect.any(String))
  })
})

it('agrees with a search of all orders, on random histories', () => {
  const seed = Number(process.env['FAIRLEAD_SEED'] ?? Date.now() % 1_000_000)
  const random = randomFrom(seed)
  const verdicts = { linearizable: 0, not: 0 }
  for (let round = 0; round < 5000; round++) {
    const history = randomHistory(random)
    const found = violationOf(history)
    verdicts[found === undefined ? 'linearizable' : 'not']++
    expect(found === undefined, `FAIRLEAD_SEED=${seed} ${JSON.stringify(history)}`).toBe(hasOrder(history))
  }
  expect(Math.min(verdicts.linearizable, verdicts.not)).toBeGreaterThan(500)
})

/** Distinct times; reads of a value that some write has, mostly. */
function randomHistory(random: () => number): Operation[] {
  const count = 2 + Math.floor(random() * 5)
  const times = Array.from({ length: 2 * count }, () => random()).sort((a, b) => a - b)
  const free = times.map((_, index) => index)
  const draw = () => free.splice(Math.floor(random() * free.length), 1)[0] ?? 0
  const values: (string | null)[] = [null]
  const spans = Array.from({ length: count }, () => [draw(), draw()].sort((a, b) => a - b) as [number, number])
  return spans.map(([calledAt, returnedAt], index) => {
    if (random() < 0.5) {
      values.push(`v${index}`)
      return random() < 0.2 ? write(`v${index}`, calledAt) : write(`v${index}`, calledAt, returnedAt)
    }
    return read(values[Math.floor(random() * values.length)] ?? null, calledAt, returnedAt)
  })
}

/** Whether some order of the operations explains them; a write without an answer may be left out. */
function hasOrder(history: readonly Operation[], value: string | null = null): boolean {
  const deadline = Math.min(...history.map(({ returnedAt = Number.POSITIVE_INFINITY }) => returnedAt))
  if (deadline === Number.POSITIVE_INFINITY) return true
  return history.some((operation, index) => {
    if (operation.calledAt > deadline) return false
    if (operation.kind === 'read' && operation.value !== value) return false
    return hasOrder(history.toSpliced(index, 1), operation.value)
  })
}
