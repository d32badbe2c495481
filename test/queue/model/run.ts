import { LARGE, MEDIUM, PRODUCTION, SMALL, TWO_KEYS } from './configs.ts'
import { explore, exploreWorld } from './explore.ts'
import { severalKeys } from './keys.ts'
import { MUTATIONS } from './mutations.ts'
import { counterexample, figures } from './report.ts'

/**
 * node test/queue/model/run.ts [configuration | mutation]...   without a name: all configurations, small ones first.
 * A large one wants memory: NODE_OPTIONS=--max-old-space-size=8000.
 */
const MAX_STATES = 30_000_000

const production = Object.entries({ ...SMALL, ...MEDIUM, ...LARGE }).map(
  ([name, config]) => [name, () => explore(PRODUCTION, config, MAX_STATES)] as const,
)
const twoKeys = Object.entries(TWO_KEYS).map(
  ([name, config]) => [name, () => exploreWorld(severalKeys(PRODUCTION, config, 2), MAX_STATES)] as const,
)
const mutated = Object.entries(MUTATIONS).map(
  ([name, { config, subject }]) => [name, () => explore(subject, config, MAX_STATES)] as const,
)
const asked = process.argv.slice(2)
const all = [...production, ...twoKeys]
const chosen = asked.length === 0 ? all : [...all, ...mutated].filter(([name]) => asked.includes(name))

for (const [name, exploration] of chosen) {
  const began = performance.now()
  const result = exploration()
  const seconds = ((performance.now() - began) / 1000).toFixed(1)
  console.log(`${name}: ${counterexample(result) ?? 'all laws hold'} (${figures(result)}, ${seconds} s)`)
  if (result.violation) process.exitCode = 1
}
