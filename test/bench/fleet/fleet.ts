import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { requestsTo } from '../requests.ts'
import { chosen, Results } from '../results.ts'
import { FleetEdits } from './edits.ts'
import { operators } from './functions.ts'
import { openPlace } from './place.ts'
import { type ApiServer, calm, edited, failures, idle, measuredFor, restarted, type Scene, upgraded } from './scenes.ts'
import { SIDES, type Side, startFleet } from './sides.ts'
import { type Result, sharesOf, tableOf } from './table.ts'

/**
 * `npm run bench fleet`: many operators on controller-runtime, each with two processes and leader election, beside the same
 * functions on Fairlead with two bridges, two dispatchers and NATS. Each side has an API server of its own, since one that
 * has served the other side would keep its memory; it holds the same objects of others, which no operator owns.
 * `--results` adds the figures to a file of JSON lines, and prints the table of all that the file has.
 */
const SCENES = { idle, edited, failures, upgraded, restarted } as const
const NAMES = Object.keys(SCENES) as (keyof typeof SCENES)[]

const options = parseArgs({
  options: {
    rounds: { type: 'string', default: '1' },
    operators: { type: 'string', default: '30' },
    objects: { type: 'string', default: '100' },
    others: { type: 'string', default: '5000' },
    seconds: { type: 'string', default: '40' },
    only: { type: 'string', default: NAMES.join(',') },
    sides: { type: 'string', default: SIDES.join(',') },
    results: { type: 'string' },
  },
}).values
const rounds = Number(options.rounds)
const objects = Number(options.objects)
const others = Number(options.others)
const seconds = Number(options.seconds)
const fleetOf = operators(Number(options.operators))
const results = new Results<Result>(options.results)

for (let round = 1; round <= rounds; round++) {
  const inTurn = round % 2 === 1 ? chosen(options.sides, SIDES) : chosen(options.sides, SIDES).reverse()
  for (const side of inTurn)
    await oneSide(side, (what) => void process.stderr.write(`round ${round}: ${side}: ${what}\n`))
}
const shownAs = `${fleetOf.length} operators with ${objects} objects each, beside ${others} pods of others`
console.log(
  `${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}, ${shownAs}\n\n${tableOf(results.all)}\n${sharesOf(results.all)}`,
)
process.exit(0)

async function oneSide(side: Side, say: (what: string) => void): Promise<void> {
  await using place = await openPlace(fleetOf, others)
  const { kube } = place
  const edits = new FleetEdits(kube)
  await edits.create(fleetOf, objects)
  const apiServer: ApiServer = {
    pid: place.apiServer(),
    requests: async () => (await requestsTo(kube, '[^"]*', '[A-Z]+')) - place.requests(),
    watches: async () => gauge(await kube.text('/metrics'), 'apiserver_longrunning_requests'),
  }
  const stop = new AbortController()
  await edits.watch(stop.signal)
  const alone = await measuredFor(Math.min(seconds, 20), () => [], apiServer)
  say(`the API server alone: ${JSON.stringify(alone)}`)
  await using fleet = await startFleet(side, place)
  await edits.settled(fleetOf, objects)
  const scene: Scene = { fleet, edits, apiServer, seconds, say }
  for (const name of chosen(options.only, NAMES)) {
    await calm(scene)
    const figures = await SCENES[name](scene)
    // What the API server and the bench do is of no side.
    for (const figure of ['requests', 'watches'])
      if (figures[figure] !== undefined) figures[figure] -= alone[figure] ?? 0
    say(`${name}: ${JSON.stringify(figures)}`)
    results.add({ side, scene: name, figures })
  }
  stop.abort()
}

/** The sum of a gauge for watches. */
function gauge(metrics: string, name: string): number {
  const found = metrics.matchAll(new RegExp(`^${name}\\{.*\\bverb="WATCH".*\\} (\\S+)$`, 'gm'))
  return [...found].reduce((sum, [, value]) => sum + Number(value), 0)
}
