import { describe, expect, it } from 'vitest'
import { MEDIUM, PRODUCTION, SMALL, TWO_KEYS } from './model/configs.ts'
import { type Exploration, explore, exploreWorld } from './model/explore.ts'
import { severalKeys } from './model/keys.ts'
import { counterexample, figures } from './model/report.ts'

/** `npm run soak explorations` sets it. */
const CONFIGS = process.env['FAIRLEAD_EXPLORE'] === undefined ? SMALL : { ...SMALL, ...MEDIUM }

function expectLaws(name: string, result: Exploration): void {
  console.log(`${name}: ${figures(result)}`)
  expect(counterexample(result)).toBeUndefined()
}

describe('every history of one key keeps the laws of the queue', () => {
  it.each(Object.entries(CONFIGS))('%s', (name, config) => expectLaws(name, explore(PRODUCTION, config)))
})

describe('every history of two keys and three workers keeps the laws of the queue', () => {
  it.each(Object.entries(TWO_KEYS))('%s', (name, config) =>
    expectLaws(name, exploreWorld(severalKeys(PRODUCTION, config, 2))),
  )
})
