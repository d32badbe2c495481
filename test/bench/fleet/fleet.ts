import { mkdtemp, rm } from 'node:fs/promises'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { ConfigMap } from '#sdk'
import { fairlead } from '../../support/fairlead.ts'
import { startTestCluster } from '../../support/servers.ts'
import { createOtherPods } from '../other-pods.ts'
import { requestsTo } from '../requests.ts'
import { chosen, Results } from '../results.ts'
import { FleetEdits, NAMESPACE } from './edits.ts'
import { operators, writeFunctions } from './functions.ts'
import { type ApiServer, calm, edited, failures, idle, measuredFor, restarted, type Scene, upgraded } from './scenes.ts'
import { SIDES, type Side, startFleet } from './sides.ts'
import { type Result, tableOf } from './table.ts'

/**
 * `npm run bench fleet`: many operators on controller-runtime, each with two processes and leader election, beside the same
 * functions on Fairlead with two bridges, two dispatchers and NATS. Each side has an API server of its own, since one that
 * has served the other side would keep its memory; it holds the same objects of others, which no operator owns.
 * `--results` adds the figures to a file of JSON lines, and prints the table of all that the file has.
 */
const SCENES = { idle, edited, failures, upgraded, restarted } as const
const NAMES = Object.keys(SCENES) as (keyof typeof SCENES)[]
const OTHERS = 'others'
const AT_ONCE = 16
const NODES = { group: '', version: 'v1', resource: 'nodes' }

const options = parseArgs({
  options: {
    rounds: { type: 'string', default: '1' },
    operators: { type: 'string', default: '30' },
    objects: { type: 'string', default: '100' },
    others: { type: 'string', default: '5000' },
    seconds: { type: 'string', default: '60' },
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
console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}, ${shownAs}\n\n${tableOf(results.all)}`)
process.exit(0)

async function oneSide(side: Side, say: (what: string) => void): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'fleet-'))
  await using cluster = await startTestCluster()
  let own = 0
  await using kube = createKubeClient({
    ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })),
    userAgent: 'bench',
    maxSockets: 64,
    onRequest: () => void own++,
  })
  const module = join(dir, 'functions.ts')
  await writeFunctions(module, fleetOf.length)
  const installed = await fairlead(['install', '--function', module], { KUBECONFIG: cluster.kubeconfig })
  if (installed.code !== 0) throw new Error(`fairlead install: ${installed.stderr}`)
  await createOthers(kube)
  const edits = new FleetEdits(kube)
  await edits.create(fleetOf, objects)
  const apiServer: ApiServer = {
    pid: cluster.processes.get('kube-apiserver')?.pid ?? 0,
    requests: async () => (await requestsTo(kube, '[^"]*', '[A-Z]+')) - own,
    watches: async () => gauge(await kube.text('/metrics'), 'apiserver_longrunning_requests'),
  }
  const stop = new AbortController()
  edits.watch(stop.signal)
  const alone = await measuredFor(Math.min(seconds, 20), () => [], apiServer)
  say(`the API server alone: ${JSON.stringify(alone)}`)
  await using fleet = await startFleet(side, { kube, kubeconfig: cluster.kubeconfig, module, operators: fleetOf })
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
  await rm(dir, { recursive: true, force: true })
}

async function createOthers(kube: KubeClient): Promise<void> {
  for (const namespace of [NAMESPACE, OTHERS]) {
    await kube.create('/api/v1/namespaces', { metadata: { name: namespace } })
    await kube.create(`/api/v1/namespaces/${namespace}/serviceaccounts`, { metadata: { name: 'default' } })
  }
  await createOtherPods(kube, OTHERS, 0, others)
  const numbers = (count: number) => Array.from({ length: count }, (_, index) => index)
  await forEachAtMost(AT_ONCE, numbers(Math.ceil(others * 0.4)), async (index) => {
    await kube.create(resourcePath(ConfigMap, OTHERS), { metadata: { name: `other-${index}` }, data: { a: 'b' } })
  })
  await forEachAtMost(AT_ONCE, numbers(Math.ceil(others * 0.04)), async (index) => {
    await kube.create(resourcePath(NODES), { metadata: { name: `other-${index}` } })
  })
}

/** The sum of a gauge for watches. */
function gauge(metrics: string, name: string): number {
  const found = metrics.matchAll(new RegExp(`^${name}\\{.*\\bverb="WATCH".*\\} (\\S+)$`, 'gm'))
  return [...found].reduce((sum, [, value]) => sum + Number(value), 0)
}
