import { describe, expect, it } from 'vitest'
import { PRODUCTION } from './model/configs.ts'
import { explore } from './model/explore.ts'
import { MUTATIONS } from './model/mutations.ts'
import { counterexample } from './model/report.ts'

const ENOUGH_STATES = 10_000

describe('each guard of the queue is needed', () => {
  it.each(Object.entries(MUTATIONS))('%s breaks a law', (_, { breaks, guard, subject, config }) => {
    const mutated = explore(subject, config)
    expect(mutated.violation?.law ?? 'every law holds', `without "${guard}"`).toContain(breaks)
    expect(counterexample(explore(PRODUCTION, config, ENOUGH_STATES)), 'with the guard').toBeUndefined()
  })
})
