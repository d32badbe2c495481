import { LARGE, PRODUCTION, SMALL } from './configs.ts'
import { explore } from './explore.ts'
import { MUTATIONS } from './mutations.ts'
import { counterexample, figures } from './report.ts'

/**
 * node test/queue/model/run.ts [configuration | mutation]...   without a name: all configurations, small ones first.
 * A large one wants memory: NODE_OPTIONS=--max-old-space-size=8000.
 */
const MAX_STATES = 30_000_000

const production = Object.entries({ ...SMALL, ...LARGE }).map(([name, config]) => ({
  name,
  config,
  subject: PRODUCTION,
}))
const mutated = Object.entries(MUTATIONS).map(([name, { config, subject }]) => ({ name, config, subject }))
const asked = process.argv.slice(2)
const chosen = asked.length === 0 ? production : [...production, ...mutated].filter(({ name }) => asked.includes(name))

for (const { name, subject, config } of chosen) {
  const began = performance.now()
  const result = explore(subject, config, MAX_STATES)
  const seconds = ((performance.now() - began) / 1000).toFixed(1)
  console.log(`${name}: ${counterexample(result) ?? 'all laws hold'} (${figures(result)}, ${seconds} s)`)
  if (result.violation) process.exitCode = 1
}
