import { describe, expect, it } from 'vitest'
import { brokenBy, mutants } from './mutants.ts'

const called = (mutant: (typeof mutants)[number]) => ({ ...mutant, operator: mutant.of.exported })

describe('the law that finds a bug', () => {
  it.each(mutants.filter(({ law }) => law !== undefined).map(called))('in $operator: $bug: $law', async (mutant) => {
    const [[law, error] = []] = Object.entries(await brokenBy(mutant, mutant.law))
    expect(law).toBeDefined()
    const lines = error?.message.split('\n') ?? []
    expect(lines.at(-1)).toMatch(
      /^to repeat this case alone: FAIRLEAD_CASE=\d+(\.\d+\.\d+)? npx vitest run .* -t '.*'$/,
    )
    // The cause with its place, the headline, the sides, 25 differences, and the way to repeat.
    expect(lines.length).toBeLessThanOrEqual(2 + 1 + 1 + 25 + 1)
  })

  it.each(mutants.filter(({ missed }) => missed !== undefined).map(called))(
    'is none, in $operator: $bug: $missed',
    async (mutant) => expect(await brokenBy(mutant)).toEqual({}),
  )

  it('is there for at least 28 of each 30', () => {
    const found = mutants.filter(({ law }) => law !== undefined).length
    expect(mutants.length).toBeGreaterThanOrEqual(30)
    expect(found / mutants.length).toBeGreaterThanOrEqual(28 / 30)
  })
})
