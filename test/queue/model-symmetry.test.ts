import { expect, it } from 'vitest'
import { canonical } from './model/canonical.ts'
import { CALM, PRODUCTION } from './model/configs.ts'
import { initialState, successors } from './model/explore.ts'
import type { Config, State } from './model/state.ts'

const WORLDS: Record<string, Config> = {
  'two lanes and late clocks': { ...CALM, low: 1, lates: 1, slow: 1 },
  'renewals, crashes, ambiguity': { ...CALM, renews: 1, crashes: 1, faults: 1, expiries: 1, slow: 1 },
  'all endings, a killed server': {
    ...CALM,
    high: 2,
    ends: 1,
    resurrections: 1,
    slow: 1,
    endings: ['requeue', 'error', 'terminal', 'handback'],
  },
}

const MAX_STATES = 2000

/** What the reduction relies on: one of two states that are the same up to renaming may stand for the other. */
it.each(Object.entries(WORLDS))('states that look alike behave alike: %s', (_, config) => {
  const futureOf = (state: State) => {
    const next = successors(state, PRODUCTION, config)
    return { next, keys: [...new Set(next.map((move) => canonical(move.state, config)))].sort() }
  }
  const seen = new Map<string, string[]>()
  const differences: { expected: string[]; found: string[] }[] = []
  let compared = 0
  let frontier = [initialState(config)]
  while (frontier.length > 0 && seen.size < MAX_STATES) {
    const level = frontier
    frontier = []
    for (const state of level) {
      const key = canonical(state, config)
      const { next, keys } = futureOf(state)
      const before = seen.get(key)
      if (before) {
        compared++
        if (keys.join('\n') !== before.join('\n')) differences.push({ expected: before, found: keys })
        continue
      }
      seen.set(key, keys)
      frontier.push(...next.map((move) => move.state))
    }
  }
  expect(differences).toEqual([])
  expect(compared).toBeGreaterThan(1000)
})
