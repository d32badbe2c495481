import { describe, expect, it } from 'vitest'
import { CALM, MEDIUM, PRODUCTION, SMALL, TWO_KEYS } from './model/configs.ts'
import { type Exploration, explore, exploreWorld } from './model/explore.ts'
import { severalKeys } from './model/keys.ts'
import { MUTATIONS } from './model/mutations.ts'
import { counterexample } from './model/report.ts'
import type { Config } from './model/state.ts'

const nameOf = (config: Config): string =>
  Object.entries(config)
    .filter(([field, value]) => CALM[field as keyof Config] !== value)
    .map(([field, value]) => `${field} ${value}`)
    .join(', ')

/** So many show that a guard is missing, whichever it is: breadth first, so these are the shortest histories. */
const MOST_STATES = 11_000

/** The configurations in which that happens. */
const SMALLEST = Object.fromEntries(Object.values(MUTATIONS).map(({ config }) => [nameOf(config), config]))

/** `npm run soak explorations` sets it. */
const isWhole = process.env['FAIRLEAD_EXPLORE'] !== undefined

const expectLaws = (result: Exploration) => expect(counterexample(result)).toBeUndefined()

describe('each guard of the queue is needed', () => {
  it.each(Object.entries(MUTATIONS))('%s breaks a law', (_, { breaks, guard, subject, config }) => {
    const { violation, states } = explore(subject, config)
    expect(violation?.law ?? 'every law holds', `without "${guard}"`).toContain(breaks)
    expect(states).toBeLessThanOrEqual(MOST_STATES)
  })
})

describe('the shortest histories of one key keep the laws of the queue', () => {
  it.each(Object.entries(SMALLEST))('%s', (_, config) => expectLaws(explore(PRODUCTION, config, MOST_STATES)))
})

describe.runIf(isWhole)('every history of one key keeps the laws of the queue', () => {
  it.each(Object.entries({ ...SMALL, ...MEDIUM }))('%s', (_, config) => expectLaws(explore(PRODUCTION, config)))
})

describe.runIf(isWhole)('every history of two keys and three workers keeps the laws of the queue', () => {
  it.each(Object.entries(TWO_KEYS))('%s', (_, config) => expectLaws(exploreWorld(severalKeys(PRODUCTION, config, 2))))
})
