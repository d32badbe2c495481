import { describe, expect, it } from 'vitest'
import { PRODUCTION } from './model/configs.ts'
import { explore } from './model/explore.ts'
import { MUTATIONS } from './model/mutations.ts'
import { counterexample } from './model/report.ts'

describe('each guard of the queue is needed', () => {
  it.each(Object.entries(MUTATIONS))('%s breaks a law', (_, { breaks, guard, subject, config }) => {
    const mutated = explore(subject, config)
    expect(mutated.violation?.law ?? 'every law holds', `without "${guard}"`).toContain(breaks)
    // As far as one had to look for that: farther, and it is the laws' own test.
    expect(counterexample(explore(PRODUCTION, config, mutated.states)), 'with the guard').toBeUndefined()
  })
})
