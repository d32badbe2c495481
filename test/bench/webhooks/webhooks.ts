import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { chosen, Results } from '../results.ts'
import { away } from './away.ts'
import { bad } from './bad.ts'
import { faults } from './faults.ts'
import { openPlace, Replicas } from './place.ts'
import { calls, conversions, fill, type Scene, writes } from './scenes.ts'
import { SIDES, type Side, sideOf } from './sides.ts'
import { type Result, tableOf } from './table.ts'
import { Writes } from './writes.ts'

/**
 * `npm run bench webhooks`: a resource with two versions and checks in code, served by `fairlead admit` and by a webhook on
 * controller-runtime, in turn, each with an API server of its own. `--results` adds the figures to a file of JSON lines,
 * and prints the table of all that the file has.
 */
const SCENES = { writes, calls, conversions, bad, fill, faults, away } as const
const NAMES = Object.keys(SCENES) as (keyof typeof SCENES)[]

const options = parseArgs({
  options: {
    rounds: { type: 'string', default: '1' },
    objects: { type: 'string', default: '10000' },
    seconds: { type: 'string', default: '40' },
    only: { type: 'string', default: NAMES.join(',') },
    sides: { type: 'string', default: SIDES.join(',') },
    results: { type: 'string' },
  },
}).values
const results = new Results<Result>(options.results)

for (let round = 1; round <= Number(options.rounds); round++) {
  const inTurn = round % 2 === 1 ? chosen(options.sides, SIDES) : chosen(options.sides, SIDES).reverse()
  for (const side of inTurn)
    await oneSide(side, (what) => void process.stderr.write(`round ${round}: ${side}: ${what}\n`))
}
console.log(
  `${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}, ${options.objects} objects of 10 kB\n\n${tableOf(results.all)}`,
)
process.exit(0)

async function oneSide(side: Side, say: (what: string) => void): Promise<void> {
  await using place = await openPlace()
  const webhook = await sideOf(side, place)
  await using replicas = new Replicas(place, webhook.start)
  await replicas.alone()
  await webhook.install()
  const [sites, plains] = [new Writes(place, 'Site'), new Writes(place, 'Plain')]
  const numbers = { seconds: Number(options.seconds), objects: Number(options.objects) }
  const scene: Scene = { side, place, webhook, replicas, sites, plains, ...numbers, say }
  for (const name of chosen(options.only, NAMES)) {
    const began = performance.now()
    const figures = await SCENES[name](scene)
    say(`${name}, ${((performance.now() - began) / 1000).toFixed(0)} s: ${JSON.stringify(figures)}`)
    results.add({ side, scene: name, figures })
  }
}
