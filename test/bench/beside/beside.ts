import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { createKubeClient, loadKubeConfig } from '#kube'
import { fairlead } from '../../support/fairlead.ts'
import { startTestCluster } from '../../support/servers.ts'
import { chosen, Results } from '../results.ts'
import { Life } from './life.ts'
import { scenes } from './scenes.ts'
import { FUNCTIONS, prepare, SIDES, type Side } from './sides.ts'
import { type Result, tableOf } from './table.ts'

const NAMES = Object.keys(scenes) as (keyof typeof scenes)[]
const USAGE = `npm run bench beside -- [--rounds 6] [--only ${NAMES.join(',')}] [--sides ${SIDES.join(',')}] [--results FILE]`

/**
 * Our At and Memcached beside the same on controller-runtime and Kopf, on the same API server, in turn. In each round every
 * side has one process, which goes through all scenes. `--results` adds the figures to a file of JSON lines, and prints the
 * table of all that the file has.
 */
const { rounds, only, sides, file } = options()
const say = (what: string) => void process.stderr.write(`${what}\n`)
const starts = new Map<Side, NonNullable<Awaited<ReturnType<typeof prepare>>>>()
for (const side of sides) {
  const start = await prepare(side)
  if (start === undefined) say(`${side} is not measured: there is no python3 with venv on PATH`)
  else starts.set(side, start)
}

await using cluster = await startTestCluster()
await fairlead(['install', ...FUNCTIONS], { KUBECONFIG: cluster.kubeconfig })
await using kube = createKubeClient({
  ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })),
  userAgent: 'bench',
  maxSockets: 64,
})
const results = new Results<Result>(file)
for (let round = 1; round <= rounds; round++) await oneRound(round)
console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}\n\n${tableOf(results.all)}`)
process.exit(0)

async function oneRound(round: number): Promise<void> {
  const inTurn = round % 2 === 1 ? [...starts] : [...starts].reverse()
  await using lives = new AsyncDisposableStack()
  const begun: Life[] = []
  for (const [side, start] of inTurn) {
    say(`round ${round}: ${side} starts`)
    const namespace = `${side.toLowerCase()}-${round}`
    begun.push(lives.use(await Life.begin(side, start, { kube, kubeconfig: cluster.kubeconfig, namespace })))
  }
  for (const scene of only) {
    for (const life of begun) {
      const { side } = life
      const figures = await scenes[scene].run(life)
      say(`round ${round}: ${side}, ${scenes[scene].title}: ${JSON.stringify(figures)}`)
      results.add({ scene, side, figures })
    }
  }
}

function options() {
  try {
    const { values } = parseArgs({
      options: {
        rounds: { type: 'string', default: '6' },
        only: { type: 'string', default: NAMES.join(',') },
        sides: { type: 'string', default: SIDES.join(',') },
        results: { type: 'string' },
      },
    })
    return {
      rounds: Number(values.rounds),
      only: chosen(values.only, NAMES),
      sides: chosen(values.sides, SIDES),
      file: values.results,
    }
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${USAGE}\n`)
    process.exit(2)
  }
}
